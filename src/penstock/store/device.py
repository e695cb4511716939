"""Block devices: where closed blocks live. This file is the interface; see `memory_device` and `file_device`.

Invariants:
1. A block is written once under an address the device chose, and never changed until it is freed.
2. An address that a snapshot names is not reused before a later snapshot, which does not name it, is committed:
   the last committed checkpoint can always be restored. An address that no snapshot names is reused at once.
3. `read` returns exactly the bytes that were written or raises `StorageError`; it never returns wrong bytes.

Why: docs/decisions/addresses-after-commit.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.columns import Values


class BlockDevice(ABC):
    written = 0
    """Bytes of all blocks written so far."""
    stored = 0
    """Bytes that these took on the device: less where blocks were compressed."""
    writes = reads = 0
    """Blocks written and read so far, where the device counts them."""
    held = 0
    """Bytes on the device of the blocks that are in use, where the device counts them."""
    copies = False
    """Whether a block has no memory in common with what is written or read here."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """The most bytes that one block can hold."""

    @abstractmethod
    def write(self, payload: bytes | memoryview) -> int:
        """Stores a block of at most `capacity` bytes; returns its address. The caller never changes `payload` again,
        except where the device `copies`."""

    @abstractmethod
    def read(self, address: int, room: Values | None = None) -> memoryview:
        """The block at an address, verified. It may be in `room`, if that has its size."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Gives an address back."""

    @abstractmethod
    def sync(self) -> None:
        """Makes everything written so far durable."""

    @abstractmethod
    def commit(self) -> None:
        """The last snapshot is durable: what was freed before it was taken may be reused."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """What `restore` needs to continue from here: the addresses in use. They are protected by invariant 2."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Takes over the blocks that a committed snapshot names; all others are free."""

    @abstractmethod
    def close(self) -> None: ...
