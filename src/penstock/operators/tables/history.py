"""The previous rows of a table, kept as long as a reader may still need them.

Changes have numbers, in their total order (time, stream position, sequence). An entry is a change: its stamp, its key
and the row before it. A reader as of a moment counts the changes up to that moment, N. It sees for a key the row before
the first change of that key whose number is N or more; if there is no such change, it sees the row of now.

Invariants:
1. Entries are in the order of their numbers, which have no gaps: entry i is change `first + i`.
2. Stamps never fall.
3. Entries, and their order by key once it is needed, are on the account before they are kept.
4. No two entries from number `_differ_from` on concern the same key.
5. `single` is the only entry, if it is there: an event changes a row, reads it as it was, and the entry is gone. It
   gets to the arrays, which have room for it, when anything else is asked.

Why: docs/decisions/table-history.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.jit import kernel
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray, power_of_two
from penstock.store.keyed import KeyedStore

LITTLE = 1024
"""Changes of a table that may be kept for a reader to which no time is handed on."""

_ORDER_BYTES = 48
"""What the order of the entries takes for each, besides the words of its key."""

_KEPT_ROOM = 4096
"""Entries for which there is room even when there are none."""

_KEPT_TIMES, _KEPT_SHARE = 4, 16
"""There is also room for so many times the entries there were, if that is no more than this part of the memory that is
free: what changes comes in bursts."""

_BURSTS = 64
"""How many there were is forgotten by this part with each burst: small ones may come between large ones."""

AFTER_ALL = 1 << 62
"""A stream position after all others: of rows that come from no stream, which see all changes of their time."""

DERIVED = 1 << 32
"""Where the stream positions of derived streams begin."""

BEFORE_ALL = (-1, -1)
"""A stream position and a sequence before all others."""


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


_UNKNOWN = -2
"""Instead of an entry: keys must be compared to find it."""


@kernel
def _near(keys: Int64s, differ_from: int, asked: Int64s, numbers: Int64s, found: Int64s) -> bool:
    """The entries that `History.as_of` finds without a search: events mostly ask for what they change themselves. The
    keys differ from one place on. Returns whether others remain."""
    remain = False
    for i in range(len(numbers)):
        n = numbers[i]
        if n >= len(keys):
            found[i] = -1
            continue
        same_next, same_last = True, n > differ_from
        for w in range(keys.shape[1]):
            same_next = same_next and keys[n, w] == asked[i, w]
            same_last = same_last and keys[n - 1, w] == asked[i, w]
        if same_next:
            found[i] = n
        elif same_last:
            found[i] = -1
        else:
            found[i] = _UNKNOWN
            remain = True
    return remain


class Stamps(NamedTuple):
    """When changes were made, or events read."""

    times: Int64s
    positions: Int64s
    sequences: Int64s


class Entries(NamedTuple):
    """Changes in order: what they concerned and what was there before; `existed` is False where nothing was. `differ`
    says that all keys do."""

    stamps: Stamps
    keys: Int64s
    existed: Bools
    columns: list[Argument]
    differ: bool = False


class SingleChange(NamedTuple):
    """A change of one row: time, stream position and sequence, the key, and the columns besides it as they were, in
    Python values; None if there was no row."""

    stamp: tuple[int, int, int]
    key: tuple[int, ...]
    row: list[Any] | None


@component("History")
class History:
    """`columns` are those of the table besides its key. Entries are in arrays that grow, from `_start` on."""

    def __init__(self, words: int, columns: Sequence[ColumnSpec], account: Account) -> None:
        self._words = words
        self._specs = columns
        self._account = account
        self.first = 0
        self._start = self._stop = 0
        self._in_order = (
            ChargedArray(account, np.int64),
            ChargedArray(account, np.int64),
            ChargedArray(account, np.int64),
        )
        """The stamps."""
        self._key_words = ChargedArray(account, np.int64, (words,))
        self._had = ChargedArray(account, np.bool_)
        self._values = [ChargedArray(account, spec.dtype) for spec in columns]
        self._masks = [ChargedArray(account, np.bool_) for _ in columns]
        """Which values are there; without any where all are."""
        self._order: tuple[KeyedStore, Int64s, Int64s] | None = None
        self._order_bytes = 0
        self._differ_from = 0
        self._most = 0
        """About the most entries there were of late."""
        self.single: SingleChange | None = None

    def __len__(self) -> int:
        return 1 if self.single is not None else self._stop - self._start

    @property
    def stop(self) -> int:
        """The number of the next change."""
        return self.first + len(self)

    def put_single(self, single: SingleChange) -> None:
        """Appends an entry."""
        is_first = not len(self)
        if not is_first:
            self._settle()
        elif not len(self._had):
            self._make_room(1)
        self.single = single
        if not is_first:
            self._settle()

    def _settle(self) -> None:
        """The single entry becomes one like all."""
        if self.single is None:
            return
        (time, position, sequence), key, row = self.single
        assert row is not None, "what is put has changed a row that was there"
        self.single = None
        columns = [
            Argument(np.zeros(1, spec.dtype), np.zeros(1, np.bool_))
            if value is None
            else Argument(np.array([value], spec.dtype), None)
            for spec, value in zip(self._specs, row, strict=True)
        ]
        stamps = Stamps(np.array([time]), np.array([position]), np.array([sequence]))
        self.append(Entries(stamps, np.array([key], np.int64), np.ones(1, np.bool_), columns, differ=True))

    @property
    def _arrays(self) -> list[ChargedArray]:
        masks = [mask for mask in self._masks if len(mask)]
        return [*self._in_order, self._key_words, *self._values, *masks, self._had]

    @property
    def _stamps(self) -> Stamps:
        return Stamps(*(array.array[self._start : self._stop] for array in self._in_order))

    @property
    def _keys(self) -> Int64s:
        return self._key_words.array[self._start : self._stop]

    @property
    def _existed(self) -> Bools:
        return self._had.array[self._start : self._stop]

    @property
    def _columns(self) -> list[Argument]:
        held = slice(self._start, self._stop)
        return [
            Argument(values.array[held], mask.array[held] if len(mask) else None)
            for values, mask in zip(self._values, self._masks, strict=True)
        ]

    def append(self, entries: Entries) -> None:
        self._settle()
        count = len(entries.existed)
        self._make_room(count)
        for mask, column in zip(self._masks, entries.columns, strict=True):
            if column.valid is not None and not len(mask):
                mask.resize(len(self._had))
                mask.array[:] = True
        own = slice(self._stop, self._stop + count)
        for array, stamps in zip(self._in_order, entries.stamps, strict=True):
            array.array[own] = stamps
        self._key_words.array[own] = entries.keys
        self._had.array[own] = entries.existed
        for values, mask, column in zip(self._values, self._masks, entries.columns, strict=True):
            values.array[own] = column.values
            if len(mask):
                mask.array[own] = True if column.valid is None else column.valid
        self._differ_from = self.first + len(self) + (0 if entries.differ else count)
        self._stop += count
        self._forget_order()

    def _make_room(self, count: int) -> None:
        """Room for more entries at the end; those there are move to the front if others have left it."""
        held, arrays = len(self), self._arrays
        if self._stop + count <= min(map(len, arrays)):  # where memory is short, their lengths differ
            return
        if self._start:
            for array in arrays:
                array.array[:held] = array.array[self._start : self._stop]
            self._start, self._stop = 0, held
        for array in arrays:
            array.fit(held + count)

    def _forget_order(self) -> None:
        self._order = None
        self._account.release(self._order_bytes)
        self._order_bytes = 0

    def numbers(self, times: Int64s, position: int, sequences: Int64s, *, before: bool = False) -> Int64s:
        """For each of the moments, in order, how many of the entries come up to it; with `before` those of the moment
        itself do not count."""
        self._settle()
        found = np.empty(len(times), np.int64)
        _count(*self._stamps, times, position, sequences, not before, found)
        return found

    def as_of(self, keys: Int64s, numbers: Int64s) -> Int64s:
        """For each key, the entry that has its row as of so many entries; -1 where that is the row of now."""
        found = np.empty(len(numbers), np.int64)
        if _near(self._keys, max(0, self._differ_from - self.first), keys, numbers, found):
            rest = np.flatnonzero(found == _UNKNOWN)
            found[rest] = self._searched(keys[rest], numbers[rest])
        return found

    def _searched(self, keys: Int64s, numbers: Int64s) -> Int64s:
        store, ordered, order = self._sorted()
        found = store.find(keys, None, False).rows.astype(np.int64)
        size = len(self) + 1
        at = np.searchsorted(ordered, found * size + numbers)
        at_most = np.minimum(at, len(order) - 1)
        hit = (found >= 0) & (at < len(order)) & (ordered[at_most] // size == found)
        return np.where(hit, order[at_most], -1)

    def _sorted(self) -> tuple[KeyedStore, Int64s, Int64s]:
        """A number for each key, and the entries sorted by (key, number)."""
        self._settle()
        if self._order is None:
            nbytes = len(self) * (8 * self._words + _ORDER_BYTES)
            self._account.charge(nbytes)
            self._order_bytes = nbytes
            store, ids, _ = KeyedStore.numbering(self._keys)
            order = np.argsort(ids, kind="stable")
            self._order = store, ids[order].astype(np.int64) * (len(self) + 1) + order, order
        return self._order

    def row_before(self, key: tuple[int, ...], moment: tuple[int, int, int], *, before: bool) -> SingleChange | None:
        """The change of a key before which its row was that of the moment; None if that is the row of now. `before` as
        in `numbers`."""
        if self.single is not None:
            is_later = self.single.stamp >= moment if before else self.single.stamp > moment
            return self.single if is_later and self.single.key == key else None
        time, position, sequence = moment
        numbers = self.numbers(np.array([time]), position, np.array([sequence]), before=before)
        entry = self.as_of(np.array([key], np.int64), numbers).item(0)
        if entry < 0:
            return None
        at, row = self._start + entry, None
        if self._had.array[at]:
            row = [
                None if len(mask) and not mask.array[at] else values.array[at].item()
                for values, mask in zip(self._values, self._masks, strict=True)
            ]
        return SingleChange(self._stamp(at), key, row)

    def existed(self, entries: Int64s) -> Bools:
        return self._existed[entries]

    def column(self, place: int, entries: Int64s) -> Argument:
        at, mask = self._start + entries, self._masks[place]
        return Argument(self._values[place].array[at], mask.array[at] if len(mask) else None)

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

    def collect(self, before: int, place: tuple[int, int] = BEFORE_ALL) -> Entries | None:
        """Forgets the entries with times below `before`, and those of that time before a place, and returns them: they
        hold until others are appended. A `single` entry has no texts to release, so it is not returned."""
        if self.single is not None:
            if self.single.stamp < (before, *place):
                self.single = None
                self.first += 1
            return None
        count = self._count_before(before, place)
        # What is sorted is sorted anew, so as much must go as that costs.
        if count == 0 or count * 2 < len(self):
            return None
        gone = self._part(0, count)
        self._start += count
        self.first += count
        self._forget_order()
        if not len(self):
            is_small = self._account.nbytes * _KEPT_SHARE <= self._account.free
            self._most = max(self._stop, self._most - self._most // _BURSTS)
            room = max(_KEPT_ROOM, power_of_two(_KEPT_TIMES * self._most) if is_small else 0)
            self._start = self._stop = 0
            for array in (*self._arrays, *self._masks):
                array.resize(min(len(array), room))
        return gone

    def _count_before(self, time: int, place: tuple[int, int]) -> int:
        low, high = 0, len(self)
        # Mostly all entries are behind the moment, or all before it.
        if not high or self._stamp(self._start) >= (time, *place):
            return 0
        if self._stamp(self._stop - 1) < (time, *place):
            return high
        for stamps, least in zip(self._stamps, (time, *place), strict=True):
            equal = stamps[low:high]
            low, high = low + int(np.searchsorted(equal, least)), low + int(np.searchsorted(equal, least, "right"))
        return low

    def _stamp(self, at: int) -> tuple[int, int, int]:
        times, positions, sequences = self._in_order
        return int(times.array[at]), int(positions.array[at]), int(sequences.array[at])

    def _part(self, start: int, stop: int) -> Entries:
        columns = [column.at(slice(start, stop)) for column in self._columns]
        stamps = Stamps(*(part[start:stop] for part in self._stamps))
        return Entries(stamps, self._keys[start:stop], self._existed[start:stop], columns)

    def snapshot(self) -> dict[str, Any]:
        self._settle()
        return {
            "first": self.first,
            "stamps": [part.copy() for part in self._stamps],
            "keys": self._keys.copy(),
            "existed": self._existed.copy(),
            "values": [c.values.copy() for c in self._columns],
            "valid": [None if c.valid is None else c.valid.copy() for c in self._columns],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.single = None
        self._forget_order()
        self.first = snapshot["first"]
        self._start, self._stop = 0, len(snapshot["existed"])
        self._differ_from = self.first + self._stop
        for array, stamps in zip(self._in_order, snapshot["stamps"], strict=True):
            array.set(stamps)
        self._key_words.set(snapshot["keys"])
        self._had.set(snapshot["existed"])
        for values, mask, saved, valid in zip(
            self._values, self._masks, snapshot["values"], snapshot["valid"], strict=True
        ):
            values.set(saved)
            mask.clear()
            if valid is not None:
                mask.set(valid)
