"""The groups of a query: from key columns to slots, and how many rows each slot has in the window.

A key is a row of int64 images (integers as they are, floats by their bits, strings by their interned code) and behind
them words of NULL bits, one for every 64 columns. Slots are small integers that index every aggregate state.

Invariants:
1. A slot belongs to one key as long as it has rows in some window; `collect` frees the others for new keys.
2. `counts[slot]` is the number of the slot's rows in the window: COUNT(*) comes from here. Where several windows share
   the groups, each has a `Tally` of its own instead. An operator that knows without counting which slots have rows
   calls `hold`.
3. `order()` lists all slots in use in the order of their keys: NULL first, numbers up (NaN last), strings by bytes.
4. Slots, keys and their strings are on the account before they are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.vector import Evaluated
from penstock.jit import inline, kernel, prefetch, tight
from penstock.operators.column_texts import restore_texts, saved_texts
from penstock.operators.columns import from_images, image
from penstock.operators.interner import Interner
from penstock.operators.single_keys import assign_single, empty_table, rehash_single, table_bytes
from penstock.store.budget import Account
from penstock.store.changes import ChangedSlots, Changing, by_slot
from penstock.store.charged import LEAST, SHARE_OF_FREE, UNLIMITED, ChargedArray, power_of_two, step_of
from penstock.types import SqlType


@inline
def _hash(keys: Int64s, row: int, words: int) -> int:
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(words):
        h ^= np.uint64(keys[row, w])
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    return int(np.int64(h & np.uint64(0x7FFFFFFFFFFFFFFF)))


_BLOCK = 64
_IN_CACHE = 1 << 16
"""From so many places on, a table is larger than the cache: places are fetched ahead."""


@kernel
def _assign(
    keys: Int64s, keep: Bools, table: Slots, stored: Int64s, used: int, free: Slots, free_count: int, slots: Slots
) -> tuple[int, int, int]:
    """Finds or makes the slot of each key; stops when the table must grow. Returns (rows done, used, free left).

    In a large table each look misses the cache. So a block of keys is hashed together: the processor fetches first
    their places, and then the keys that stand there, while it works on others."""
    words = keys.shape[1]
    mask = len(table) - 1
    masked = len(keep) > 0
    is_large = len(table) > _IN_CACHE
    tables, rows = table.ctypes.data, stored.ctypes.data
    places = np.empty(_BLOCK, np.int64)
    for begin in range(0, len(keys), _BLOCK):
        end = min(begin + _BLOCK, len(keys))
        for row in range(begin, end):
            at = _hash(keys, row, words) & mask
            places[row - begin] = at
            if is_large:
                prefetch(tables + 4 * at)
        if is_large:
            for row in range(begin, end):
                prefetch(rows + 8 * words * max(table[places[row - begin]], 0))
        for row in range(begin, end):
            if masked and not keep[row]:
                slots[row] = -1
                continue
            at = places[row - begin]
            while True:
                slot = table[at]
                if slot < 0:
                    if free_count > 0:
                        slot = free[free_count - 1]
                        free_count -= 1
                    elif used < len(stored):
                        slot = used
                        used += 1
                    else:
                        return row, used, free_count
                    table[at] = slot
                    for w in range(words):
                        stored[slot, w] = keys[row, w]
                    break
                same = True
                for w in range(words):
                    if stored[slot, w] != keys[row, w]:
                        same = False
                        break
                if same:
                    break
                at = (at + 1) & mask
            slots[row] = slot
    return len(keys), used, free_count


@kernel
def _rehash(table: Slots, stored: Int64s, used: int, alive: Bools) -> None:
    words = stored.shape[1]
    mask = len(table) - 1
    table[:] = -1
    for slot in range(used):
        if alive[slot]:
            at = _hash(stored, slot, words) & mask
            while table[at] >= 0:
                at = (at + 1) & mask
            table[at] = slot


@tight
def _look_up(known: Slots, places: Slots, slots: Slots) -> bool:
    """The slots of dictionary entries by their places; False if one has none."""
    least = np.int32(0)
    for row in range(len(places)):
        slots[row] = known[places[row]]
        least = min(least, slots[row])
    return bool(least >= 0)


_FLAGS = 64
"""NULL bits in a word."""

_SORTED_BYTES = 32
"""What a slot takes while slots are put in order, for each key."""

_KNOWN_KEYS = 4096
"""How many keys of single events are remembered beside the hash table."""

_KNOWN_TEXT = 64
"""Keys with longer texts are not remembered."""

_KNOWN_SHARE = 1 << 15
"""One key is remembered for so many bytes of the memory: all of them take about a hundredth of it."""

_ENTRIES_SHARE = 64
"""The slots of a dictionary are remembered if it takes no more than this part of the memory."""

_NO_TABLE = np.empty(0, np.int32)


class TooManyGroups(Exception):
    """There would be more slots than `GroupTable.most`. Those that have been made stay."""


class Tally:
    """How many rows each slot has in one of several windows; the table lets it grow with itself."""

    __slots__ = ("_rows",)

    def __init__(self, account: Account, capacity: int) -> None:
        self._rows = ChargedArray(account, np.int64)
        self._rows.resize(capacity)

    @property
    def rows(self) -> Int64s:
        return self._rows.array

    def fit(self, capacity: int) -> None:
        if capacity > len(self._rows):
            self._rows.resize(capacity)

    def close(self) -> None:
        self._rows.clear()


@component("GroupTable")
class GroupTable:
    """What it holds is on the `account`, which others may use too."""

    def __init__(self, types: tuple[SqlType, ...], account: Account = UNLIMITED) -> None:
        self.types = types
        self.interners = tuple(Interner(account) if t is SqlType.STRING else None for t in types)
        self._account = account
        self._words = len(types) + max(1, -(-len(types) // _FLAGS))
        self._is_single = len(types) == 1
        self._used = 0
        self._alive = ChargedArray(account, np.bool_)
        self._counts = ChargedArray(account, np.int64)
        self._keys = ChargedArray(account, np.int64, (self._words,))
        self._free = ChargedArray(account, np.int32)
        self._free_count = 0
        self._table: NDArray[Any] = _NO_TABLE
        self._tallies: list[Tally] = []
        self.changes = ChangedSlots(account)
        """The slots that have changed here or in the states of an aggregation over these groups. `counts`, which others
        change as well, is not among what it tells."""
        self._holders: list[Callable[[int], Bools]] = []
        self._left = 0
        self._known: dict[tuple[object, ...], Slots] = {}
        self._known_entries: tuple[pa.Array, Slots] | None = None
        """The last dictionary of strings and the slot of each entry, -1 for one that has not come."""
        self._most_known = min(_KNOWN_KEYS, account.total // _KNOWN_SHARE)
        self._order: Slots | None = None
        self.most: int | None = None
        """If so many slots are not enough, `assign` raises `TooManyGroups`."""
        self._fit(16 if types else 1)

    @property
    def capacity(self) -> int:
        """Every slot is below this."""
        return len(self._keys)

    @property
    def counts(self) -> Int64s:
        return self._counts.array

    @property
    def _stored(self) -> Int64s:
        return self._keys.array

    @property
    def size(self) -> int:
        """How many slots are in use."""
        return self._used - self._free_count

    @property
    def table(self) -> NDArray[Any]:
        """The hash table of groups with one key (`single_keys`)."""
        return self._table

    def tally(self) -> Tally:
        """For one of several windows over these groups, until `forget`."""
        tally = Tally(self._account, self.capacity)
        self._tallies.append(tally)
        return tally

    def forget(self, tally: Tally) -> None:
        """Its window is gone: its rows hold no slot."""
        self._tallies.remove(tally)
        tally.close()

    def close(self) -> None:
        """Gives its memory back; it is not used any more."""
        for array in (self._alive, self._counts, self._keys, self._free, self.changes, *self._tallies, *self.interners):
            if isinstance(array, ChargedArray | ChangedSlots):
                array.clear()
            elif array is not None:
                array.close()
        self._account.release(self._table.nbytes)
        self._table = _NO_TABLE

    def hold(self, holds: Callable[[int], Bools]) -> None:
        """Slots are in use as well if they are held. Asked when some are to be freed, for as many as there are."""
        self._holders.append(holds)

    def assign(self, columns: list[Evaluated], rows: int, keep: Bools | None) -> Slots:
        """The slot of each row, making new ones as needed; -1 where `keep` is false."""
        if rows == 1 and keep is None and self.types:
            return self._assign_one(columns)
        if keep is None and self._is_single and isinstance(held := columns[0].held, pa.DictionaryArray):
            return self._assign_encoded(columns, held, rows)
        return self._assign_all(columns, rows, keep)

    def _assign_encoded(self, columns: list[Evaluated], column: pa.DictionaryArray, rows: int) -> Slots:
        """The slots of a column of strings that comes with its dictionary: a source that sends the same dictionary
        again has its slots looked up by place."""
        if column.indices.null_count:
            return self._assign_all(columns, rows, None)
        places = column.indices.to_numpy()
        known = self._known_entries
        if known is not None and known[0].equals(column.dictionary):
            slots: Slots = np.empty(rows, np.int32)
            if _look_up(known[1], places, slots):
                return slots
        slots = self._assign_all(columns, rows, None)
        if column.dictionary.null_count == 0 and column.dictionary.nbytes * _ENTRIES_SHARE <= self._account.total:
            if known is None or not known[0].equals(column.dictionary):
                known = self._known_entries = (column.dictionary, np.full(len(column.dictionary), -1, np.int32))
            known[1][places] = slots
        return slots

    def _assign_one(self, columns: list[Evaluated]) -> Slots:
        """A single event's slot, found without the machinery for many once its key has been seen."""
        key = tuple([column.only for column in columns])
        known = self._known.get(key)
        if known is None:
            known = self._assign_all(columns, 1, None)
            if len(self._known) < self._most_known and _is_short(key):
                self._known[key] = known
        return known

    def _assign_all(self, columns: list[Evaluated], rows: int, keep: Bools | None) -> Slots:
        slots = np.zeros(rows, np.int32) if keep is None else np.where(keep, 0, -1).astype(np.int32)
        if not self.types:
            if self._used == 0:
                self._used = 1
                self._alive.array[0] = True
                self.changes.mark(np.zeros(1, np.int32))
                self._order = None
            return slots
        keys = np.zeros((rows, self._words), np.int64)
        for w, (column, kind, interner) in enumerate(zip(columns, self.types, self.interners, strict=True)):
            values, valid = image(column, kind, interner)
            keys[:, w] = values
            if valid is not None:
                keys[~valid, w] = 0
                keys[:, len(self.types) + w // _FLAGS] |= (~valid).astype(np.int64) << w % _FLAGS
        mask = keep if keep is not None else np.empty(0, np.bool_)
        assign = assign_single if self._is_single else _assign
        done = 0
        while True:
            used, free = self._used, self._free_count
            count, self._used, self._free_count = assign(
                keys[done:], mask[done:], self._table, self._stored, used, self._free.array, free, slots[done:]
            )
            if self._used != used or self._free_count != free:
                self._begin_slots(
                    np.concatenate(
                        [self._free.array[self._free_count : free], np.arange(used, self._used, dtype=np.int32)]
                    )
                )
            done += count
            if done == rows:
                break
            if self.most is not None and self.most <= self.capacity:
                raise TooManyGroups
            self._fit(min(power_of_two(self.capacity + 1), self.most or 1 << 31))
        for interner in self.interners:
            if interner is not None:
                interner.sweep()
        return slots

    def _begin_slots(self, made: Slots) -> None:
        """These slots have got keys."""
        self._alive.array[made] = True
        self.changes.mark(made)
        self._order = None
        for w, interner in enumerate(self.interners):
            if interner is not None:
                named = made[~self._nulls(made, w)]
                interner.use(self._stored[named, w].astype(np.int32))

    def _fit(self, wanted: int) -> None:
        """Room for so many slots or, where memory is short (`charged`), for a step more."""
        places = power_of_two(wanted)
        bytes_of_slot = 8 * self._words + 9 + 8 * len(self._tallies) + self.changes.slot_bytes
        table = self._table_bytes(places)
        more = (wanted - self.capacity) * bytes_of_slot + table - self._table.nbytes
        if wanted > LEAST and more > self._account.free // SHARE_OF_FREE:
            wanted = self.capacity + step_of(wanted)
            more = (wanted - self.capacity) * bytes_of_slot + table - self._table.nbytes
        if more > self._account.free and self.changes.is_tracked:
            more -= self.changes.slot_bytes * (wanted - self.capacity)
            self.changes.clear()
        self._account.charge(more)  # all of it or nothing
        self._account.release(more - table + self._table.nbytes)
        self._table = _NO_TABLE  # the old one goes before the new one comes
        for array in (self._alive, self._counts, self._keys):
            array.resize(wanted)
        for tally in self._tallies:
            tally.fit(wanted)
        self.changes.fit(wanted)
        self._table = self._empty_table(places)
        self._rehash()

    def _table_bytes(self, places: int) -> int:
        return table_bytes(places) if self._is_single else 16 * places

    def _empty_table(self, places: int) -> Slots | Int64s:
        return empty_table(places) if self._is_single else np.full(4 * places, -1, np.int32)

    def _rehash(self) -> None:
        rehash = rehash_single if self._is_single else _rehash
        rehash(self._table, self._stored, self._used, self._alive.array)

    def collect(self, left: int) -> None:
        """Frees the slots whose rows have left every window, once half as many rows have left as there are slots:
        looking for them costs nothing per row then, and where every row has a key of its own, the slots are at most
        twice the window. Called between runs, never while slots are in flight."""
        self._left += left
        if not self.types or 2 * self._left < self._used:
            return
        self._left = 0
        unused = self._alive.array[: self._used] & (self.counts[: self._used] == 0)
        for tally in self._tallies:
            unused &= tally.rows[: self._used] == 0
        for holds in self._holders:
            unused &= ~holds(self._used)
        dead = np.flatnonzero(unused).astype(np.int32)
        # Freeing rebuilds the hash table, so it waits until a fair share of the slots can go.
        if len(dead) * 4 > self._used and len(dead) > 8:
            self._release(dead)

    def _release(self, dead: Slots) -> None:
        free = self._free.fit(self._free_count + len(dead))
        free[self._free_count : self._free_count + len(dead)] = dead
        self._free_count += len(dead)
        for w, interner in enumerate(self.interners):
            if interner is not None:
                named = dead[~self._nulls(dead, w)]
                interner.release(self._stored[named, w].astype(np.int32))
        self._known.clear()
        self._known_entries = None
        self._alive.array[dead] = False
        self.changes.mark(dead)
        self._order = None
        self._rehash()

    @property
    def is_ordered(self) -> bool:
        """Whether `order` costs nothing now."""
        return self._order is not None

    def order(self) -> Slots:
        if self._order is None:
            self._order = self.sorted(np.flatnonzero(self._alive.array[: self._used]).astype(np.int32))
        return self._order

    def sorted(self, slots: Slots) -> Slots:
        """Slots in the order of their keys. Sorting takes memory besides."""
        with self._account.borrowed(_SORTED_BYTES * len(slots) * len(self.types)):
            return self._sorted(slots)

    def _sorted(self, slots: Slots) -> Slots:
        sort_keys: list[Any] = []
        for w, (kind, interner) in enumerate(zip(self.types, self.interners, strict=True)):
            null = self._nulls(slots, w)
            if null.any():
                sort_keys.append(~null)
            values = self._stored[slots, w]
            if interner is not None:
                values[null] = 0
                values = np.where(null, 0, interner.ranks()[values])
            elif kind.is_floating:
                values = np.where(values < 0, np.int64(-(2**63)) - values, values)
            sort_keys.append(values)
        if len(sort_keys) == 1:
            return slots[np.argsort(sort_keys[0], kind="stable")]
        return slots[np.lexsort(sort_keys[::-1])] if sort_keys else slots

    def keys(self, slots: Slots) -> list[Data]:
        """The key columns of slots."""
        columns: list[Data] = []
        for w, (kind, interner) in enumerate(zip(self.types, self.interners, strict=True)):
            null = self._nulls(slots, w)
            valid = ~null if null.any() else None
            columns.append(from_images(self._stored[slots, w], valid, kind, interner))
        return columns

    def _nulls(self, slots: Slots, column: int) -> Bools:
        """Whether the slots' keys are NULL in the column."""
        flags = self._stored[slots, len(self.types) + column // _FLAGS]
        flags &= np.int64(1) << column % _FLAGS
        nulls: Bools = flags != 0
        return nulls

    def words(self, slots: Slots, key: int = 0) -> Int64s:
        """The first or another key of slots, as the integer it is."""
        words: Int64s = self._stored[slots, key]
        return words

    @property
    def nbytes(self) -> int:
        """What is on the account for it."""
        arrays = (self._alive, self._counts, self._keys, self._free)
        own = sum(array.nbytes for array in arrays) + self._table.nbytes + self.changes.flags.nbytes
        own += sum(tally.rows.nbytes for tally in self._tallies)
        return own + sum(i.nbytes for i in self.interners if i is not None)

    def snapshot(self) -> dict[str, Any]:
        tree = {
            "used": self._used,
            "alive": by_slot(self._alive.array),
            "stored": by_slot(self._stored),
            "free": self._free.array[: self._free_count],
            "counts": self.counts,
            "interners": saved_texts(self.interners),
        }
        return Changing(self.changes, tree)

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._used, self._free_count = snapshot["used"], len(snapshot["free"])
        self._alive.set(snapshot["alive"])
        self._keys.set(snapshot["stored"])
        self._counts.set(snapshot["counts"])
        self._free.set(snapshot["free"])
        restore_texts(self.interners, snapshot["interners"])
        self._known.clear()
        self._known_entries = None
        self._order = None
        self._fit(max(self.capacity, 1))


def _is_short(key: tuple[object, ...]) -> bool:
    return sum([len(word) for word in key if isinstance(word, str)]) <= _KNOWN_TEXT
