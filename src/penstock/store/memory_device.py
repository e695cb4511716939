"""Blocks in memory: for runs without a budget and for tests. Invariants: see `device`."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.columns import Values
from penstock.components import component
from penstock.errors import StorageError
from penstock.store.device import BlockDevice
from penstock.store.slots import SlotMap


@component("MemoryDevice")
class MemoryDevice(BlockDevice):
    """Keeps the very payload it is given, without a copy. A snapshot holds the blocks themselves."""

    def __init__(self, block_size: int = 65536) -> None:
        self._capacity = block_size
        self._slots = SlotMap()
        self._blocks: dict[int, memoryview] = {}

    @property
    def capacity(self) -> int:
        return self._capacity

    def write(self, payload: bytes | memoryview) -> int:
        assert len(payload) <= self._capacity
        slot, _ = self._slots.take()
        self._blocks[slot] = memoryview(payload)
        self.writes += 1
        self.written += len(payload)
        self.stored += len(payload)
        self.held += len(payload)
        return slot

    def read(self, address: int, room: Values | None = None) -> memoryview:
        block = self._blocks.get(address)
        if block is None:
            raise StorageError(f"block {address} is not in use; the state that names it does not fit these blocks")
        self.reads += 1
        return block

    def free(self, address: int) -> None:
        self._slots.release(address)
        self.held -= len(self._blocks.pop(address))

    def sync(self) -> None:
        """Memory does not outlive the process; a snapshot carries the blocks."""

    def commit(self) -> None:
        self._slots.commit()

    def snapshot(self) -> dict[str, Any]:
        blocks = [[slot, np.frombuffer(block, np.uint8)] for slot, block in sorted(self._blocks.items())]
        return {"kind": "memory", "slots": self._slots.snapshot(), "blocks": blocks}

    def restore(self, snapshot: dict[str, Any]) -> None:
        if snapshot["kind"] != "memory":
            raise StorageError("the saved state has its blocks in a file; restore it with a directory for blocks")
        self._slots.restore(snapshot["slots"])
        self._blocks = {slot: block.data for slot, block in snapshot["blocks"]}
        self.held = sum(len(block) for block in self._blocks.values())

    def close(self) -> None:
        self._blocks.clear()
