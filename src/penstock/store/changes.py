"""Which rows of the arrays by slot have changed since they were last written: what a checkpoint by differences asks.

Invariants:
1. Between two calls of `take`, every slot whose row changes in some array of the tree is marked. More may be marked.
2. Nothing is tracked before the first `take`, or where memory is short: `take` answers None then, for "all of them".
   Nothing gives memory back for the flags, and they are given up before groups are refused.

A snapshot marks its arrays with `by_slot` and is a `Changing`, or the `components.Saved` made of one. To all but
`differences` these are arrays and dicts.

Why: docs/decisions/checkpoints-by-difference.md
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools, Slots
from penstock.jit import kernel
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray


@kernel
def _mark(slots: Slots, flags: Bools) -> None:
    for slot in slots:
        if slot >= 0:
            flags[slot] = True


class Taken(NamedTuple):
    """The slots that have changed since state number `since` was taken, which is one more now; None for all of them."""

    since: int
    slots: Slots | None


class ChangedSlots:
    """One byte for each slot below a capacity, once it is tracked."""

    __slots__ = ("_account", "_capacity", "_flags", "is_tracked", "taken")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._flags = ChargedArray(account, np.bool_)
        self._capacity = 0
        self.is_tracked = False
        self.taken = 0
        """How often changes were taken: while it stays the same and no slot is new, `flags` is the same array."""

    @property
    def flags(self) -> Bools:
        """True for those that have changed; empty where nothing is tracked."""
        return self._flags.array

    @property
    def slot_bytes(self) -> int:
        """What a slot takes."""
        return int(self.is_tracked)

    def fit(self, capacity: int) -> None:
        """Slots are below this from now on."""
        self._capacity = max(self._capacity, capacity)
        if self.is_tracked:
            self._flags.resize(self._capacity)

    def mark(self, slots: Slots) -> None:
        """These have changed; those below 0 are none."""
        if self.is_tracked and len(slots):
            _mark(slots if slots.flags.c_contiguous else np.ascontiguousarray(slots), self._flags.array)

    def take(self) -> Taken:
        """What has changed since the last call; from now on the next changes are noted."""
        since, slots = self.taken, None
        self.taken += 1
        if self.is_tracked:
            slots = np.flatnonzero(self._flags.array).astype(np.int32)
            self._flags.array[slots] = False
        elif self._capacity <= self._account.unused:
            self._flags.resize(self._capacity)
            self.is_tracked = True
        return Taken(since, slots)

    def clear(self) -> None:
        """Nothing is tracked, and nothing is on the account."""
        self._flags.clear()
        self.is_tracked = False


class BySlot(np.ndarray[Any, np.dtype[Any]]):
    """An array that has `width` elements for each slot, one slot after the other."""

    width: int = 1


def by_slot(array: NDArray[Any], width: int = 1) -> BySlot:
    """The same array, marked. Its first axis counts slots, or `width` elements of each slot. New slots are zeros.

    >>> by_slot(np.arange(6), 2).width
    2
    """
    marked = array.view(BySlot)
    marked.width = width
    return marked


class Changing(dict[str, Any]):
    """A tree of state whose arrays by slot change where `changes` says so."""

    def __init__(self, changes: ChangedSlots, tree: dict[str, Any]) -> None:
        super().__init__(tree)
        self.changes = changes


def changes_of(value: object) -> ChangedSlots | None:
    """What says where the arrays by slot of a tree change; None for other values."""
    found = getattr(value, "changes", None) if isinstance(value, dict) else None
    assert found is None or isinstance(found, ChangedSlots)
    return found
