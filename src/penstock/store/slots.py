"""Which slots of a device are taken, free, or waiting for a commit.

Invariants:
1. A slot is in exactly one place: taken, free, waiting (released while a snapshot still names it) or retired.
2. Every block gets a sequence number of its own, rising for the life of the device; a slot is named by the last
   snapshot exactly if its block's number is below `_named_below`.
3. Free slots are reused in the order they were released: least recently released first.

Why: docs/decisions/addresses-after-commit.md
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import numpy as np

from penstock.components import component
from penstock.errors import StorageError

_NOT_TAKEN = -1


@component("SlotMap")
class SlotMap:
    """Slots are numbered from zero; eight bytes per slot that ever existed."""

    def __init__(self) -> None:
        self._sequences = array("q")
        self._next = 0
        self._named_below = 0
        self._reusable_from = 0
        self._snapshots = 0
        self._free: deque[int] = deque()
        self._waiting: deque[tuple[int, int]] = deque()
        self.taken = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def take(self) -> tuple[int, int]:
        """A slot for a new block and the block's sequence number."""
        if self._free:
            slot = self._free.popleft()
        else:
            slot = len(self._sequences)
            self._sequences.append(_NOT_TAKEN)
        sequence = self._next
        self._sequences[slot] = sequence
        self._next += 1
        self.taken += 1
        return slot, sequence

    def sequence(self, slot: int) -> int:
        """The number of the block in this slot."""
        if not 0 <= slot < len(self._sequences) or self._sequences[slot] == _NOT_TAKEN:
            raise StorageError(f"block {slot} is not in use; the state that names it does not fit these blocks")
        return self._sequences[slot]

    def undo_take(self, slot: int) -> None:
        """Nothing was stored in the slot after all; it is the next to be tried."""
        self._sequences[slot] = _NOT_TAKEN
        self._free.appendleft(slot)
        self.taken -= 1

    def release(self, slot: int) -> None:
        sequence = self.sequence(slot)
        if slot >= self._reusable_from:
            if sequence < self._named_below:
                self._waiting.append((self._snapshots, slot))
            else:
                self._free.append(slot)
        self._sequences[slot] = _NOT_TAKEN
        self.taken -= 1

    def commit(self) -> None:
        """The last snapshot is the one to go back to: slots released before it was taken are free."""
        while self._waiting and self._waiting[0][0] < self._snapshots:
            self._free.append(self._waiting.popleft()[1])

    def snapshot(self) -> dict[str, Any]:
        self._snapshots += 1
        self._named_below = self._next
        return {"sequences": np.array(self._sequences, np.int64), "next": self._next}

    def restore(self, snapshot: dict[str, Any], reusable_from: int = 0) -> None:
        """Slots below `reusable_from` are released but never used again."""
        sequences = snapshot["sequences"]
        self._sequences = array("q", sequences.tobytes())
        self._next = self._named_below = snapshot["next"]
        self._snapshots += 1
        self._reusable_from = reusable_from
        unused = np.flatnonzero(sequences == _NOT_TAKEN)
        self._free = deque(unused[unused >= reusable_from].tolist())
        self._waiting.clear()
        self.taken = len(sequences) - len(unused)
