"""The rows of one side of a join: their times and keys in memory, what results show of them in a store that pages.

Invariants:
1. Rows have positions from 0 on, in the order in which they entered; rows before `base` have left for good. Arrays
   begin with the row at `origin`, which is not after `base`; they are moved when there is no room at their end.
2. A row that fails the side's condition is in no chain and `passing` is false for it. Only windows that count rows
   have such rows at all.
3. `fresh` is the first row of the run that is being worked on. Rows enter the chains of an index when they are first
   searched, or at the end of the run; a slot of a table is in use as long as some index has a row of it.
4. Memory of times, keys, chains and strings is on the account before it is taken. `_at` is the shortest of the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.columns import Argument
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column, Expression
from penstock.operators.chunk import CHUNK_ROWS, Chunk
from penstock.operators.column_texts import interners_for, release_texts, restore_texts, saved_texts, use_texts
from penstock.operators.columns import to_argument, to_data
from penstock.operators.groups import GroupTable
from penstock.operators.joins.key_index import KeyIndex
from penstock.operators.joins.windows import SideRows
from penstock.operators.resources import Resources
from penstock.plan.joins.steps import Keys
from penstock.store.charged import ChargedArray
from penstock.store.fifo import ColumnSpec
from penstock.types import Schema, SqlType
from penstock.windows.spec import WindowSpec

_FIRST_ROOM, _LITTLE_ROOM = 1024, 16


@component("JoinRows")
class JoinRows:
    """The rows of a side; `kept` are the columns that are stored, `keys` those that it is looked up by, with the tables
    of their classes, `narrowing` which of these narrow a search, and whether a NULL makes a row odd there, and
    `moments` the TIMESTAMP columns that bands compare."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        window: WindowSpec,
        where: Expression | None,
        kept: Sequence[str],
        keys: Mapping[Keys, GroupTable],
        narrowing: Mapping[Keys, bool],
        moments: Sequence[str],
        resources: Resources,
        computed: Mapping[Keys, Keys] | None = None,
    ) -> None:
        """`computed` says in which columns of the rows that come the keys are, if these have been computed."""
        self._reject = resources.reject
        self._where = None if where is None else compile_expression(where)
        self._filters_first = window.extent.is_told_by_times
        self._account = resources.account(f"{name}: times and keys")
        given = computed or {}
        self.indexes = {
            own: KeyIndex(given.get(own, own), table, self._account, narrowing.get(own)) for own, table in keys.items()
        }
        fields = {field.name: field for field in schema}
        self._kept = {column: place for place, column in enumerate(kept)}
        self._types = [fields[column].type for column in kept]
        self._columns = [compile_expression(Column(c, t)) for c, t in zip(kept, self._types, strict=True)]
        self._interners = interners_for(self._types, self._account)
        self._texts = [place for place, interner in enumerate(self._interners) if interner is not None]
        specs = [ColumnSpec(c, t.storage, fields[c].nullable) for c, t in zip(kept, self._types, strict=True)]
        self._store = resources.rows(name, specs) if specs else None
        self._leaving = self._store.cursor(columns=self._texts) if self._store is not None and self._texts else None
        self._moments = {column: compile_expression(Column(column, SqlType.TIMESTAMP)) for column in moments}
        self.shifts: dict[str, int | None] = {}
        """How far a TIMESTAMP column is from the time of its row; None if that differs from row to row."""
        self.base = self.head = self.fresh = self._origin = 0
        self._passing = ChargedArray(self._account, np.bool_)
        """Which rows take part; without any as long as all do."""
        self._at = ChargedArray(self._account, np.int64)
        self._arrays = [self._passing, *(array for index in self.indexes.values() for array in index.rows), self._at]

    # Rows come and go

    def enter(self, chunk: Chunk) -> tuple[Bools | None, Bools | None]:
        """Takes rows in; returns which of them have entered and which of those take part (None for all)."""
        self.fresh = self.head
        keep = self._passes(chunk)
        entered = None
        if keep is not None and self._filters_first:
            chunk, entered, keep = chunk.filter(keep), keep, None
        if chunk.rows == 0:
            return entered, None
        self._make_room(chunk.rows)
        arguments = [
            to_argument(column(chunk.columns), kind, interner)
            for column, kind, interner in zip(self._columns, self._types, self._interners, strict=True)
        ]
        slots = {own: index.slots_of(chunk, keep) for own, index in self.indexes.items()}
        if self._store is not None:
            self._store.append(arguments)
        use_texts(self._interners, arguments)
        used = self.head - self._origin
        self._times[used : used + chunk.rows] = chunk.times
        if keep is not None and not len(self._passing):
            self._passing.resize(len(self._at))
            self._passing.array[:] = True
        if len(self._passing):
            self._passing.array[used : used + chunk.rows] = True if keep is None else keep
        for own, index in self.indexes.items():
            index.enter(slots[own], self._origin, self.head)
        self._note_moments(chunk)
        self.head += chunk.rows
        return entered, keep

    def _passes(self, chunk: Chunk) -> Bools | None:
        if self._where is None or chunk.rows == 0:
            return None
        return self._where(chunk.columns).true

    def _note_moments(self, chunk: Chunk) -> None:
        """A band can be searched for where its column follows the time of the rows."""
        for name, column in self._moments.items():
            if name in self.shifts and self.shifts[name] is None:
                continue
            values, valid = column(chunk.columns).columns
            shifts = values.astype(np.int64) - chunk.times
            known = self.shifts.setdefault(name, int(shifts[0]))
            if (valid is not None and not valid.all()) or (shifts != known).any():
                self.shifts[name] = None

    def settle(self) -> None:
        """The run of events has ended."""
        self.fresh = self.head
        for index in self.indexes.values():
            index.settle(self._origin, self.head)

    def release(self, before: int) -> None:
        """Rows before a position are needed no more. All sides are settled, for they may have slots in common."""
        if before <= self.base:
            return
        if self._leaving is not None:
            self._forget_texts(before)
        if self._store is not None:
            self._store.release(before)
        for index in self.indexes.values():
            index.leave(self.base, before)
        self.base = before

    def _forget_texts(self, before: int) -> None:
        assert self._leaving is not None
        while self._leaving.position < before:
            view = self._leaving.view(before)
            release_texts([self._interners[place] for place in self._texts], view.columns)
            self._leaving.advance(view.count)

    def _make_room(self, rows: int) -> None:
        """Room for more rows at the end: those that are there move to the front once as many have left. What all arrays
        need is asked for together, so that a refusal says all of it."""
        start, used = self.base - self._origin, self.head - self._origin
        if used + rows <= len(self._at):
            return
        held = used - start
        arrays = [array for array in self._arrays if array is not self._passing or len(self._passing)]
        width = sum(array.array.itemsize for array in arrays)
        room = max(_FIRST_ROOM, len(self._at), 2 * (held + rows))
        if (room - len(self._at)) * width > self._account.free // 2:
            room = max(len(self._at), held + rows + max(_LITTLE_ROOM, (held + rows) // 8))  # moves more often
        more = (room - len(self._at)) * width
        self._account.charge(more)
        self._account.release(more)
        for array in arrays:
            array.array[:held] = array.array[start:used]
        self._origin = self.base
        for array in arrays:
            array.resize(room)

    @property
    def _times(self) -> Int64s:
        return self._at.array

    # Rows are looked at

    @property
    def rows(self) -> SideRows:
        return SideRows(self.base, self._times[self.base - self._origin : self.head - self._origin])

    def passing(self, positions: Int64s) -> Bools | None:
        """Which of these rows take part; None if all rows do."""
        return self._passing.array[positions - self._origin] if len(self._passing) else None

    def slots(self, keys: Keys, positions: Int64s) -> Slots:
        """The slots of rows; none where there is no row."""
        there = positions >= 0
        if there.all():
            return self.indexes[keys].slots[positions - self._origin]
        found = np.full(len(positions), -1, np.int32)
        found[there] = self.indexes[keys].slots[positions[there] - self._origin]
        return found

    def find(
        self, keys: Keys, asked: Slots, low: Int64s, high: Int64s, reach: Int64s
    ) -> Iterator[tuple[Int64s, Int64s]]:
        used = self.head - self._origin
        return self.indexes[keys].find(asked, low, high, reach, self._origin, self.fresh, used)

    def odd(self, keys: Keys) -> Int64s:
        """The positions of rows whose key cannot be computed."""
        odd = self.indexes[keys].odd
        assert odd is not None
        return odd.positions

    @property
    def has_odd(self) -> bool:
        """Whether there is a row without a key by which a search is narrowed."""
        return any(index.odd for index in self.indexes.values())

    def times(self, positions: Int64s) -> Int64s:
        return self._times[positions - self._origin]

    def values(self, names: Sequence[str], positions: Int64s) -> dict[str, Data]:
        """Columns of rows; NULL where there is no row, as a position below 0 says."""
        if not names:
            return {}
        assert self._store is not None
        missing = positions < 0
        padded = bool(missing.any())
        if padded and missing.all():
            return {name: self._nulls(self._kept[name], len(positions)) for name in names}
        if padded:
            positions = np.where(missing, positions[~missing][0], positions)
        found: dict[str, Data] = {}
        places = [self._kept[name] for name in names]
        for name, place, column in zip(names, places, self._store.gather(positions, places), strict=True):
            valid = column.valid
            if padded:
                valid = ~missing if valid is None else valid & ~missing
            found[name] = to_data(column.values, valid, self._types[place], self._interners[place])
        return found

    def _nulls(self, place: int, count: int) -> Data:
        kind = self._types[place]
        codes = np.zeros(count, kind.storage)
        return to_data(codes, np.zeros(count, np.bool_), kind, self._interners[place])

    # Rows go elsewhere

    @property
    def nbytes(self) -> int:
        """What times, keys, chains and strings take."""
        return self._account.nbytes

    def held(self) -> Iterator[tuple[Int64s, dict[str, Data], dict[Keys, Slots]]]:
        """The rows that have not left, some at a time: their times, the columns that are stored, and their slots."""
        names = list(self._kept)
        views = [] if self._store is None else self._store.scan(self.base, self.head)
        runs = ((view.count, view.columns) for view in views)
        start = self.base
        for count, columns in runs if self._store is not None else self._bare():
            own = slice(start - self._origin, start - self._origin + count)
            data: dict[str, Data] = {
                name: to_data(column.values, column.valid, self._types[place], self._interners[place])
                for place, (name, column) in enumerate(zip(names, columns, strict=True))
            }
            yield self._times[own], data, {keys: index.slots[own] for keys, index in self.indexes.items()}
            start += count

    def _bare(self) -> Iterator[tuple[int, tuple[Argument, ...]]]:
        """Rows of which no column is stored."""
        for start in range(self.base, self.head, CHUNK_ROWS):
            yield min(CHUNK_ROWS, self.head - start), ()

    def close(self) -> None:
        """Gives the memory back; it is not used any more."""
        for interner in self._interners:
            if interner is not None:
                interner.close()
        for array in self._arrays:
            array.clear()
        for index in self.indexes.values():
            index.close()
        self._store = self._leaving = None

    # Durability

    def snapshot(self) -> dict[str, Any]:
        held = slice(self.base - self._origin, self.head - self._origin)
        return {
            "base": self.base,
            "head": self.head,
            "times": self._times[held].copy(),
            "passing": self._passing.array[held].copy() if len(self._passing) else None,
            "slots": [index.slots[held].copy() for index in self.indexes.values()],
            "texts": saved_texts(self._interners),
            "shifts": [[name, shift] for name, shift in self.shifts.items()],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.base, self.head = snapshot["base"], snapshot["head"]
        self.fresh, self._origin = self.head, self.base
        self._at.set(snapshot["times"])
        self._passing.clear()
        if snapshot["passing"] is not None:
            self._passing.set(snapshot["passing"])
        for index, slots in zip(self.indexes.values(), snapshot["slots"], strict=True):
            index.restore(slots, self.base)
        restore_texts(self._interners, snapshot["texts"])
        self.shifts = dict(snapshot["shifts"])
