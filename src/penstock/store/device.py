"""Block devices: where closed blocks live. This file is the interface; see `memory_device` and `file_device`.

Invariants:
1. A block is written once under an address the device chose, and never changed until it is freed.
2. A freed address is not reused before the next `commit()`: the last committed checkpoint may still name it.
3. `read` returns exactly the bytes that were written or raises `StorageError`; it never returns wrong bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class BlockDevice(ABC):
    @abstractmethod
    def write(self, payload: bytes | memoryview) -> int:
        """Stores a block of at most the device's block size; returns its address."""

    @abstractmethod
    def read(self, address: int) -> memoryview:
        """The block at an address, verified."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Gives an address back, for reuse after the next commit."""

    @abstractmethod
    def sync(self) -> None:
        """Makes everything written so far durable."""

    @abstractmethod
    def commit(self) -> None:
        """The addresses freed before this call are no longer named by any checkpoint: they may be reused."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """What `restore` needs to continue from here: the addresses in use."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Takes over the blocks that a snapshot names; all others are free."""

    @abstractmethod
    def close(self) -> None: ...
