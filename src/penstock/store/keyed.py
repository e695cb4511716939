"""Rows of fixed width by their key, changed in place: what a table is kept in.

    index    [partition, slot]           4 bytes each: a tag and where in the partition the row is
    keys     [partition, place, word]    int32, or int64 where a key needs it
    columns  [partition, place]          as wide as their types; a mask beside those that have had a NULL

Rows are spread over partitions by the hash of their key, few enough each that a partition's index and columns fit the
processor's cache. A batch of keys can be looked up as it is (`hash`), or partition by partition (`grace`: the batch
grace hash join), which reads each part of the table once for the whole batch.

Invariants:
1. The rows of a partition are at its first `counts` places, in no particular order.
2. A row number is the partition times the capacity plus the place. It holds as long as `layout` is the same: until a
   `put` that needs more room, or the next `remove`.
3. All partitions have the same capacity; it grows by an eighth, or the partitions are split. Columns grow one after the
   other, so that growing takes the room of one column more, which the account is asked for first.
4. `dirty` marks the partitions that have changed since the marks were taken.
5. `_direct` finds keys of one word without a hash where they are dense. Whatever adds, removes or moves rows drops it.

Why: docs/decisions/table-history.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Bools, Int32s, Int64s
from penstock.columns import Argument, Values
from penstock.errors import BudgetError, StorageError
from penstock.plan.tables.cost import GRACE_EVENTS, GRACE_ROWS
from penstock.store import keyed_kernels as kernels
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Account, Budget
from penstock.store.direct_index import DirectIndex
from penstock.store.keyed_growth import MOST_BITS, fullest, grown, held, peak, slots, splits
from penstock.store.own_memory import zeros

PARTITION_ROWS = 16384
"""So many rows a partition has at most on average: with its index and a few columns, it fits a second-level cache."""

SMALL = 1 << 14
"""A store of so many places is small enough to stay as it is."""

MOST_EMPTY = 8
"""A store shrinks when no more than this part of its places has a row."""

NOBODY: Bools = np.empty(0, np.bool_)


class Found(NamedTuple):
    """The rows of a batch of keys, -1 where there is none. With `order` they are partition by partition, and `order`
    says for each which key it belongs to; keys that it leaves out have no row."""

    rows: Int32s
    order: Int32s | None
    keys: int

    def in_order(self) -> Int32s:
        """The row of each key, in the order of the keys."""
        if self.order is None:
            return self.rows
        rows = np.full(self.keys, -1, np.int32)
        kernels.scatter_rows(self.rows, self.order, rows)
        return rows


class KeyedStore:
    """Keys are of `words` int64 words; with `narrow` all of them fit 32 bits."""

    def __init__(self, words: int, narrow: bool, columns: Sequence[ColumnSpec], account: Account) -> None:
        self._account = account
        self.specs = tuple(columns)
        self.key_type = np.dtype(np.int32 if narrow else np.int64)
        self.words = words
        self._direct = DirectIndex(account)
        self.changes = 0
        self.layout = 0
        self._one_key = np.zeros((1, words), np.int64)
        self._one_word = self._one_key.reshape(-1).data
        self._one_row = np.empty(1, np.int32)
        self._known: tuple[tuple[int, ...], int, int] = ((), -1, -1)
        """The key that was found last, its row, and the layout in which it is that."""
        self._take(0, 16)
        self._account.resize(self.nbytes)

    def _take(self, bits: int, capacity: int) -> None:
        """Empty arrays of such a shape."""
        self._cells: list[tuple[memoryview, memoryview | None]] | None = None
        self.layout += 1
        self._bits = bits
        parts = 1 << bits
        self.counts = np.zeros(parts, np.int32)
        self.dirty = np.ones(parts, np.bool_)
        self._index = zeros((parts, slots(capacity)), np.uint32)
        self._keys = zeros((parts, capacity, self.words), self.key_type)
        self._values = [zeros((parts, capacity), spec.dtype) for spec in self.specs]
        self._valid: list[Bools | None] = [None] * len(self.specs)

    # What there is

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def partitions(self) -> int:
        return len(self.counts)

    @property
    def capacity(self) -> int:
        """Places of a partition."""
        return int(self._keys.shape[1])

    @property
    def nbytes(self) -> int:
        arrays = self._index.nbytes + self._keys.nbytes + sum(values.nbytes for values in self._values)
        masks = sum(valid.nbytes for valid in self._valid if valid is not None)
        return arrays + masks + self.counts.nbytes + self._direct.nbytes

    @property
    def raw_nbytes(self) -> int:
        """Bytes of the values alone."""
        return self.rows * sum(self._widths)

    def all_rows(self) -> Int32s:
        """The numbers of all rows, by partition and place."""
        places = np.arange(self.capacity, dtype=np.int32)[None, :] < self.counts[:, None]
        return np.flatnonzero(places).astype(np.int32)

    # Looking up

    def by_grace(self, keys: int) -> bool:
        """Whether so many keys are better looked up partition by partition."""
        return self.rows >= GRACE_ROWS and keys >= GRACE_EVENTS * self.partitions

    def find(self, keys: Int64s, valid: Bools | None = None, grace: bool | None = None) -> Found:
        """Where the keys (rows of words) are; one that is not `valid` is nowhere. `grace` forces the way."""
        mask = NOBODY if valid is None else valid
        count = len(keys)
        if not (self.by_grace(count) if grace is None else grace):
            if grace is None and self.words == 1:
                found = self._direct.find(self._keys, self.counts, keys, mask)
                if found is not None:
                    return Found(found, None, count)
            rows = np.empty(count, np.int32)
            kernels.find(self._index, self._keys, self._bits, keys, mask, rows)
            return Found(rows, None, count)
        parted, order = np.empty_like(keys), np.empty(count, np.int32)
        total = kernels.spread(keys, mask, self._bits, parted, order)
        rows = np.empty(total, np.int32)
        kernels.find(self._index, self._keys, self._bits, parted[:total], NOBODY, rows)
        return Found(rows, order[:total], count)

    def column(self, place: int, found: Found) -> Argument:
        """A column of rows that were found, in the order of their keys. Where there is no row, the value is 0 and not
        valid."""
        values = self._values[place].reshape(-1)
        valid = self._valid[place]
        mask = None if valid is None else self._gathered(valid.reshape(-1), found)
        return Argument(self._gathered(values, found), mask)

    def key_words(self, found: Found) -> Int64s:
        """The keys of rows that were found."""
        words = np.empty((found.keys, self.words), np.int64)
        for w in range(self.words):
            words[:, w] = self.key_word(w, found)
        return words

    def key_word(self, place: int, found: Found) -> Values:
        """One word of the keys of rows that were found."""
        return self._gathered(self._keys.reshape(-1, self.words)[:, place], found)

    def _gathered(self, values: Values, found: Found) -> Values:
        if found.order is None:
            out = np.empty(found.keys, values.dtype)
            kernels.gather(values, found.rows, out)
        else:
            whole = len(found.order) == found.keys
            out = np.empty(found.keys, values.dtype) if whole else np.zeros(found.keys, values.dtype)
            kernels.gather_to(values, found.rows, found.order, out)
        return out

    def values_of(self, partition: int, place: int) -> Values:
        """A column of a partition's rows, as it is stored."""
        return self._values[place][partition, : self.counts[partition]]

    def least(self, place: int) -> int | float | None:
        """The least value of a column without NULLs. It may be asked while rows change, and is about right then."""
        values, counts = self._values[place], self.counts
        parts = (values[p, :count] for p, count in enumerate(counts[: len(values)].tolist()) if count)
        return min((part.min().item() for part in parts), default=None)

    # One row

    def find_one(self, words: tuple[int, ...]) -> int:
        """The row of one key, -1 if there is none."""
        known, row, layout = self._known
        if words == known and layout == self.layout:
            return row  # what an event changes it mostly reads, too
        for w, word in enumerate(words):
            self._one_word[w] = word
        kernels.find(self._index, self._keys, self._bits, self._one_key, NOBODY, self._one_row)
        row = self._one_row.item(0)
        if row >= 0:
            self._known = words, row, self.layout
        return row

    def read_one(self, row: int) -> list[Any]:
        """The columns of a row that was found, as Python values; NULL is None."""
        return [
            values[row] if valid is None or valid[row] else None for values, valid in self._cells or self._open_cells()
        ]

    def has_nulls(self, place: int) -> bool:
        """Whether a column has a mask of NULLs."""
        return self._valid[place] is not None

    def write_one(self, row: int, places: Sequence[int], found: Sequence[Any]) -> None:
        """Sets columns of a row that was found; None only where the column `has_nulls`."""
        cells = self._cells or self._open_cells()
        for place, value in zip(places, found, strict=True):
            values, valid = cells[place]
            if valid is not None:
                valid[row] = value is not None
            if value is not None:
                values[row] = value
        self.dirty[row // self.capacity] = True
        self.changes += 1

    def _open_cells(self) -> list[tuple[memoryview, memoryview | None]]:
        """Each column and its mask, cell by cell: Python reads and writes one much sooner than numpy does. They keep
        the arrays alive, so they are forgotten before these are exchanged."""
        self._cells = [
            (values.reshape(-1).data, None if valid is None else valid.reshape(-1).data)
            for values, valid in zip(self._values, self._valid, strict=True)
        ]
        return self._cells

    # Changing

    def reserve(self, rows: int) -> None:
        """Makes an empty store as large as so many rows need."""
        assert self.rows == 0, "only an empty store is made to measure"
        bits = 0
        while rows > PARTITION_ROWS << bits and bits < MOST_BITS:
            bits += 1
        capacity = fullest(rows, bits) + 16
        if capacity <= self.capacity and bits == self._bits:
            return
        self._account.resize(held(bits, capacity, self._widths, 0))
        self._take(bits, capacity)

    def can_take(self, rows: int, most: int | None = None) -> bool:
        """Whether there is memory for so many rows more, within `most` bytes: it is asked for, and given back until
        they come."""
        wanted = self._peak(rows)
        if wanted > self._account.nbytes:
            if most is not None and wanted > most:
                return False
            try:
                self.ask(rows)
            except BudgetError:
                return False
        return True

    def ask(self, rows: int) -> None:
        """The same, refused with the reason."""
        self._account.resize(max(self.nbytes, self._peak(rows)))
        self._account.resize(self.nbytes)

    def is_free(self, rows: int) -> bool:
        """Whether so many rows more need nothing that others would have to give up."""
        return self._peak(rows) - self._account.nbytes <= self._account.unused

    def _peak(self, rows: int) -> int:
        """The most bytes that the account is asked for on the way to so many rows more, with a mask for each column."""
        unmasked = sum(spec.nullable and valid is None for spec, valid in zip(self.specs, self._valid, strict=True))
        masks = sum(spec.nullable for spec in self.specs)
        larger = peak(self.rows + rows, self._bits, self.capacity, self._widths, masks, PARTITION_ROWS)
        return max(larger, self.nbytes + unmasked * self.partitions * self.capacity)

    @property
    def _widths(self) -> list[int]:
        return [self.words * self.key_type.itemsize, *(spec.dtype.itemsize for spec in self.specs)]

    def add_column(self, spec: ColumnSpec) -> None:
        """One column more, behind the others, of an empty store."""
        assert self.rows == 0, "rows have no value of the column"
        self.specs = (*self.specs, spec)
        self.clear()

    @classmethod
    def numbering(cls, keys: Int64s) -> tuple[KeyedStore, Int32s, Bools]:
        """A number for each different key of a batch, and which keys come for the first time: a store for a moment,
        beside the budget, and its rows."""
        store = cls(keys.shape[1], False, (), Budget(1 << 60).account("keys of a batch"))
        store.reserve(len(keys))
        return store, *store.put(keys)

    def put(self, keys: Int64s, known: Int32s | None = None) -> tuple[Int32s, Bools]:
        """The rows of the keys, added where they are new: then all columns are NULL or 0 until `write`. A key may come
        several times. Returns the rows and which are new. `known` are the rows of now, -1 where there is none."""
        if known is not None:
            return self._put_missing(keys, known)
        rows, fresh = np.empty(len(keys), np.int32), np.empty(len(keys), np.bool_)
        done, layout = 0, self.layout
        while True:
            done = kernels.add(self._index, self._keys, self.counts, self._bits, keys, done, rows, fresh)
            if done == len(keys):
                break
            self._grow()
        if self.layout != layout:
            # Rows that were given out before have other numbers now.
            kernels.find(self._index, self._keys, self._bits, keys, NOBODY, rows)
        self._mark(rows)
        if fresh.any():
            self._direct.drop()
            for place, valid in enumerate(self._valid):
                if valid is not None:
                    valid.reshape(-1)[rows[fresh]] = False
                self._values[place].reshape(-1)[rows[fresh]] = 0
        return rows, fresh

    def _put_missing(self, keys: Int64s, known: Int32s) -> tuple[Int32s, Bools]:
        missing, layout = np.flatnonzero(known < 0), self.layout
        fresh = np.zeros(len(keys), np.bool_)
        if not len(missing):
            self._mark(known)
            return known, fresh
        added, fresh[missing] = self.put(keys[missing])
        if self.layout != layout:
            rows = self.find(keys, None, False).rows
        else:
            rows = known.copy()
            rows[missing] = added
        self._mark(rows)
        return rows, fresh

    def write(self, place: int, rows: Int32s, values: Values, valid: Bools | None) -> None:
        """Sets a column of rows that `put` has given. Of a row that comes several times the last counts."""
        self._values[place].reshape(-1)[rows] = values
        mask = self._valid[place]
        if mask is None and valid is not None and not valid.all():
            self._direct.drop()
            self._account.resize(self.nbytes + self._values[place].size)
            mask = self._valid[place] = np.ones(self._values[place].shape, np.bool_)
            self._cells = None
        if mask is not None:
            mask.reshape(-1)[rows] = True if valid is None else valid
        self.changes += 1

    def remove(self, keys: Int64s) -> None:
        """Takes rows out, as far as they are there."""
        self._direct.drop()
        moved_from, moved_to = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
        before = self.counts.copy()
        moves = kernels.remove(self._index, self._keys, self.counts, self._bits, keys, moved_from, moved_to)
        for values in (*self._values, *(valid for valid in self._valid if valid is not None)):
            kernels.copy_moves(values.reshape(-1), moved_from[:moves], moved_to[:moves])
        self.dirty |= before != self.counts
        self.changes += 1
        self.layout += 1

    def shrink(self) -> None:
        """Gives room back where few of many places have a row, and there is memory to move these."""
        rows = self.all_rows()
        if self.partitions * self.capacity <= SMALL or len(rows) * MOST_EMPTY > self.partitions * self.capacity:
            return
        found = Found(rows, None, len(rows))
        width = 8 * self.words + sum(spec.dtype.itemsize + 1 for spec in self.specs)
        if not self._account.try_resize(self.nbytes + len(rows) * width):
            return
        keys = self.key_words(found)
        columns = [self.column(place, found) for place in range(len(self.specs))]
        self.clear()
        self.reserve(2 * len(rows))
        moved, _ = self.put(keys)
        for place, column in enumerate(columns):
            self.write(place, moved, column.values, column.valid)
        self._account.resize(self.nbytes)

    def clear(self) -> None:
        self._direct.drop()
        self._take(0, 16)
        self._account.resize(self.nbytes)
        self.changes += 1

    def _mark(self, rows: Int32s) -> None:
        self.dirty[rows // np.int32(self.capacity)] = True
        self.changes += 1

    # Growing

    def _grow(self) -> None:
        self._direct.drop()
        self._cells = None
        capacity = self.capacity
        wanted = grown(capacity)
        if splits(wanted, self._bits, PARTITION_ROWS):
            self._split()
            return
        if wanted > 65535:
            raise StorageError(f"a table has at most {65535 << MOST_BITS:,} rows")
        self._ask(self.partitions, wanted)
        self._index = zeros((self.partitions, slots(wanted)), np.uint32)
        self._keys = _longer(self._keys, wanted)
        for place, values in enumerate(self._values):
            self._values[place] = _longer(values, wanted)
            valid = self._valid[place]
            if valid is not None:
                self._valid[place] = _longer(valid, wanted)
        kernels.reindex(self._index, self._keys, self.counts)
        self._settle()

    def _split(self) -> None:
        """Twice as many partitions, each with room for an eighth more than the fullest has."""
        bits = self._bits + 1
        counts = np.empty(1 << bits, np.int32)
        places = np.empty(self.rows, np.int32)
        kernels.split_places(self._keys, self.counts, bits, counts, places)
        capacity = int(counts.max()) * 9 // 8 + 16
        self._ask(1 << bits, capacity, places.nbytes + 2 * (capacity << bits) * self.key_type.itemsize)
        shape = (1 << bits, capacity)

        def moved(old: Values) -> Values:
            new = zeros(shape, old.dtype)
            kernels.split_column(self._keys, self.counts, bits, places, old, new)
            return new

        self._index = zeros((1 << bits, slots(capacity)), np.uint32)
        for place, values in enumerate(self._values):
            self._values[place] = moved(values)
            valid = self._valid[place]
            if valid is not None:
                self._valid[place] = moved(valid)
        keys = zeros((*shape, self.words), self.key_type)
        for w in range(self.words):
            keys[:, :, w] = moved(np.ascontiguousarray(self._keys[:, :, w]))
        self._keys, self._bits, self.counts = keys, bits, counts
        kernels.reindex(self._index, self._keys, self.counts)
        self._settle()

    def _ask(self, parts: int, capacity: int, besides: int = 0) -> None:
        """Asks for the room of arrays of such a shape, of the largest of them once more while it is copied, and of what
        it takes `besides`."""
        masks = sum(valid is not None for valid in self._valid)
        most = held(parts.bit_length() - 1, capacity, self._widths, masks) + besides
        self._account.resize(most + max(self._widths) * self._keys.shape[0] * self._keys.shape[1])

    def _settle(self) -> None:
        self._account.resize(self.nbytes)
        self.dirty = np.ones(self.partitions, np.bool_)
        self.changes += 1
        self.layout += 1

    # Pages: a partition is what is saved together

    def page(self, partition: int) -> list[Values]:
        """The arrays of a partition's rows: keys, then each column and the mask of those that have one."""
        count = int(self.counts[partition])
        arrays: list[Values] = [self._keys[partition, :count]]
        for values, valid in zip(self._values, self._valid, strict=True):
            arrays.append(values[partition, :count])
            if valid is not None:
                arrays.append(valid[partition, :count])
        return arrays

    def shape(self) -> dict[str, Any]:
        """What `reshape` needs besides the pages."""
        masked = [valid is not None for valid in self._valid]
        return {"bits": self._bits, "capacity": self.capacity, "counts": self.counts, "masked": masked}

    def reshape(self, shape: dict[str, Any]) -> None:
        """Makes room for pages that `page` then gives to be filled; `refilled` ends it."""
        self._direct.drop()
        self._account.resize(held(shape["bits"], shape["capacity"], self._widths, sum(shape["masked"])))
        self._take(shape["bits"], shape["capacity"])
        for place, masked in enumerate(shape["masked"]):
            if masked:
                self._valid[place] = np.ones(self._values[place].shape, np.bool_)
        self._cells = None
        self.counts[:] = shape["counts"]

    def refilled(self) -> None:
        kernels.reindex(self._index, self._keys, self.counts)
        self.dirty[:] = False
        self.changes += 1

    def close(self) -> None:
        self._account.close()


def _longer(old: Values, capacity: int) -> Values:
    new = zeros((old.shape[0], capacity, *old.shape[2:]), old.dtype)
    new[:, : old.shape[1]] = old
    return new
