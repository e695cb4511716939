"""What rows of a table were before they changed, for as long as someone may still read them.

Changes have numbers, in their total order (time, stream position, sequence). An entry is a change: its stamp, the key
it concerned and what was there before. Who reads as of a moment counts the changes up to it, N; the row of a key is
then what was there before the first change of that key whose number is N or more, and without one what is there now.

Invariants:
1. Entries are in the order of their numbers, which have no gaps: entry i is change `first + i`.
2. Stamps never fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Argument, Bools, Int64s
from penstock.jit import kernel
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Account
from penstock.store.keyed import KeyedStore

AFTER_ALL = 1 << 62
"""A stream position after all others: of rows that come from no stream, which see all changes of their time."""


@kernel
def _count(
    times: Int64s, positions: Int64s, sequences: Int64s,
    at_times: Int64s, at_position: int, at_sequences: Int64s, inclusive: bool, numbers: Int64s,
) -> None:  # fmt: skip
    """For each moment, in order, how many stamps come up to it (or before it)."""
    n = 0
    for i in range(len(at_times)):
        while n < len(times):
            if times[n] != at_times[i]:
                passed = times[n] < at_times[i]
            elif positions[n] != at_position:
                passed = positions[n] < at_position
            elif sequences[n] != at_sequences[i]:
                passed = sequences[n] < at_sequences[i]
            else:
                passed = inclusive
            if not passed:
                break
            n += 1
        numbers[i] = n


class Stamps(NamedTuple):
    """When changes were made, or events read."""

    times: Int64s
    positions: Int64s
    sequences: Int64s


class Entries(NamedTuple):
    """Changes in order: what they concerned and what was there before; `existed` is False where nothing was."""

    stamps: Stamps
    keys: Int64s
    existed: Bools
    columns: list[Argument]


class History:
    """`columns` are those of the table besides its key."""

    def __init__(self, words: int, columns: Sequence[ColumnSpec], account: Account) -> None:
        self._words = words
        self._specs = columns
        self._account = account
        self._clear(0)

    def _clear(self, first: int) -> None:
        none: Int64s = np.empty(0, np.int64)
        self.first = first
        self._stamps = Stamps(none, none, none)
        self._keys: Int64s = np.empty((0, self._words), np.int64)
        self._existed: Bools = np.empty(0, np.bool_)
        self._columns = [Argument(np.empty(0, spec.dtype), None) for spec in self._specs]
        self._order: tuple[KeyedStore, Int64s, Int64s] | None = None

    def __len__(self) -> int:
        return len(self._existed)

    @property
    def nbytes(self) -> int:
        return len(self) * (8 * (3 + self._words) + 1 + sum(spec.dtype.itemsize + 1 for spec in self._specs))

    def append(self, entries: Entries) -> None:
        stamps = (np.concatenate([old, new]) for old, new in zip(self._stamps, entries.stamps, strict=True))
        self._stamps = Stamps(*stamps)
        self._keys = np.concatenate([self._keys, entries.keys])
        self._existed = np.concatenate([self._existed, entries.existed])
        before = len(self) - len(entries.existed)
        self._columns = [
            Argument(np.concatenate([old.values, new.values]), _joined(old.valid, before, new.valid, len(new.values)))
            for old, new in zip(self._columns, entries.columns, strict=True)
        ]
        self._order = None
        self._account.resize(self.nbytes)

    def numbers(self, times: Int64s, position: int, sequences: Int64s, *, before: bool = False) -> Int64s:
        """For each of the moments, in order, how many of the entries come up to it; with `before` those of the moment
        itself do not count."""
        found = np.empty(len(times), np.int64)
        _count(*self._stamps, times, position, sequences, not before, found)
        return found

    def as_of(self, keys: Int64s, numbers: Int64s) -> Int64s:
        """For each key, the entry that has its row as of so many entries; -1 where that is the row of now."""
        store, ordered, order = self._sorted()
        found = store.find(keys, None, False).rows.astype(np.int64)
        size = len(self) + 1
        at = np.searchsorted(ordered, found * size + numbers)
        at_most = np.minimum(at, len(order) - 1)
        hit = (found >= 0) & (at < len(order)) & (ordered[at_most] // size == found)
        return np.where(hit, order[at_most], -1)

    def _sorted(self) -> tuple[KeyedStore, Int64s, Int64s]:
        """A number for each key, and the entries sorted by (key, number)."""
        if self._order is None:
            store, ids, _ = KeyedStore.numbering(self._keys)
            order = np.argsort(ids, kind="stable")
            self._order = store, ids[order].astype(np.int64) * (len(self) + 1) + order, order
        return self._order

    def existed(self, entries: Int64s) -> Bools:
        return self._existed[entries]

    def column(self, place: int, entries: Int64s) -> Argument:
        values, valid = self._columns[place]
        return Argument(values[entries], None if valid is None else valid[entries])

    def place(self, number: int, entries: Int64s) -> Argument:
        """A column of the key."""
        return Argument(self._keys[entries, number], None)

    def last_numbers(self, keys: Int64s) -> Int64s:
        """For each key, how many entries there are up to its last change; 0 where it has not changed."""
        store, ordered, order = self._sorted()
        found = store.find(keys, None, False).rows.astype(np.int64)
        at = np.searchsorted(ordered, (found + 1) * (len(self) + 1)) - 1
        return np.where(found >= 0, order[np.maximum(at, 0)] + 1, 0)

    def intervals(self) -> tuple[Int64s, Int64s]:
        """For each entry, the numbers N from and up to which (inclusive) what it holds was there."""
        _, ordered, order = self._sorted()
        ids = ordered // (len(self) + 1)
        since = np.zeros(len(order), np.int64)
        same = ids[1:] == ids[:-1]
        since[1:][same] = order[:-1][same] + 1
        begins = np.empty(len(order), np.int64)
        begins[order] = since
        return begins, np.arange(len(order), dtype=np.int64)

    def keys_of(self, entries: Int64s) -> Int64s:
        return self._keys[entries]

    def collect(self, before: int) -> Entries | None:
        """Forgets the entries with times below `before`, and returns them."""
        count = int(np.searchsorted(self._stamps.times, before))
        # Copying what stays costs as much as it is, so as much as that must go.
        if count == 0 or count * 2 < len(self):
            return None
        gone = self._part(0, count)
        kept = self._part(count, len(self))
        self._stamps, self._keys, self._existed, self._columns = kept
        self.first += count
        self._order = None
        self._account.resize(self.nbytes)
        return gone

    def _part(self, start: int, stop: int) -> Entries:
        columns = [
            Argument(c.values[start:stop].copy(), None if c.valid is None else c.valid[start:stop].copy())
            for c in self._columns
        ]
        stamps = Stamps(*(part[start:stop].copy() for part in self._stamps))
        return Entries(stamps, self._keys[start:stop].copy(), self._existed[start:stop].copy(), columns)

    def snapshot(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "stamps": list(self._stamps),
            "keys": self._keys,
            "existed": self._existed,
            "values": [c.values for c in self._columns],
            "valid": [c.valid for c in self._columns],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._clear(snapshot["first"])
        self._stamps = Stamps(*snapshot["stamps"])
        self._keys, self._existed = snapshot["keys"].reshape(-1, self._words), snapshot["existed"]
        self._columns = [Argument(*pair) for pair in zip(snapshot["values"], snapshot["valid"], strict=True)]
        self._account.resize(self.nbytes)


def _joined(old: Bools | None, old_rows: int, new: Bools | None, new_rows: int) -> Bools | None:
    if old is None and new is None:
        return None
    first = np.ones(old_rows, np.bool_) if old is None else old
    return np.concatenate([first, np.ones(new_rows, np.bool_) if new is None else new])
