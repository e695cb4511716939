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
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column, Expression
from penstock.expressions.vector import Evaluated
from penstock.operators.chunk import Chunk
from penstock.operators.column_texts import interners_for, release_texts, restore_texts, saved_texts, use_texts
from penstock.operators.columns import to_argument, to_data, validity
from penstock.operators.groups import GroupTable
from penstock.operators.joins.kernels import link, walk
from penstock.operators.joins.odd import ODD, OddRows
from penstock.operators.joins.windows import SideRows
from penstock.operators.resources import Resources
from penstock.plan.joins.steps import Keys
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.store.fifo import ColumnSpec
from penstock.types import Schema, SqlType
from penstock.windows.spec import WindowSpec

_NOBODY = -1
_FIRST_ROOM, _LITTLE_ROOM = 1024, 16

ANSWERS_AT_ONCE = 1 << 18
"""So many rows that may match are looked at together, however many there are."""


class KeyIndex:
    """The rows of a side by a key. Sides that are compared by the same key have their slots from one table."""

    def __init__(self, keys: Keys, table: GroupTable, account: Account, with_nulls: bool | None = None) -> None:
        """`with_nulls` is for keys that narrow a search: whether a NULL makes a row odd."""
        self._keys = [compile_expression(key) for key in keys]
        self._types = [key.type for key in keys]
        self.table = table
        self.rows = (ChargedArray(account, np.int32), ChargedArray(account, np.int32))
        """The slot of each row, and how far before it the last row with the same key is."""
        self._chains = ChargedArray(account, np.int64, (2,), fill=_NOBODY)
        self._linked = self._base = 0
        self.odd = None if with_nulls is None else OddRows(account)
        self._with_nulls = with_nulls
        table.hold(self._holds)

    def slots_of(self, chunk: Chunk, keep: Bools | None) -> Slots:
        """The slots of rows; rows with a NULL in the key have none, odd rows have `ODD`."""
        columns = [key(chunk.columns) for key in self._keys]
        taking_part = keep
        for column, kind in zip(columns, self._types, strict=True):
            valid = validity(column.values) if kind is SqlType.STRING else column.columns[1]
            if valid is not None:
                keep = valid if keep is None else keep & valid
        slots = self.table.assign(columns, chunk.rows, keep)
        return slots if self.odd is None else self._with_odd(slots, columns, taking_part)

    def _with_odd(self, slots: Slots, columns: Sequence[Evaluated], taking_part: Bools | None) -> Slots:
        odd = slots < 0 if self._with_nulls else np.zeros(len(slots), np.bool_)
        for column in columns:
            if column.errors is not None:
                odd |= column.errors.mask
        if taking_part is not None:
            odd &= taking_part
        return np.where(odd, np.int32(ODD), slots) if odd.any() else slots

    @property
    def slots(self) -> Slots:
        return self.rows[0].array

    def enter(self, slots: Slots, origin: int, first: int) -> None:
        """`slots` are those of rows from position `first` on."""
        self.slots[first - origin : first - origin + len(slots)] = slots
        if self.odd is not None:
            self.odd.enter(slots, first)

    def _fit(self) -> Int64s:
        """The chains. The table may have grown, also because of another side."""
        if len(self._chains) < self.table.capacity:
            self._chains.resize(self.table.capacity)
        return self._chains.array

    def settle(self, origin: int, head: int) -> None:
        """All rows are in the chains."""
        if self._linked < head:
            link(self.slots[: head - origin], self._linked, origin, self._fit(), self.rows[1].array)
            self._linked = head

    def leave(self, base: int, before: int) -> None:
        """Rows from position `base` on leave for good."""
        self._base = before
        self.table.collect(before - base)
        if self.odd is not None:
            self.odd.leave(before)

    def _holds(self, slots: int) -> Bools:
        """Which of the first slots have a row."""
        held: Bools = self._fit()[:slots, 0] >= self._base
        return held

    def find(
        self, asked: Slots, low: Int64s, high: Int64s, reach: Int64s, origin: int, fresh: int, used: int
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Pairs of (index into `asked`, position of a row found), in parts: at most `ANSWERS_AT_ONCE` pairs, or all
        pairs of one key if those are more."""
        chains = self._fit()
        room = min(max(4 * len(asked), _FIRST_ROOM), ANSWERS_AT_ONCE)
        done = 0
        while done < len(asked):
            own, found = np.empty(room, np.int64), np.empty(room, np.int64)
            upto, filled = walk(
                asked,
                low,
                high,
                reach,
                done,
                self.slots[:used],
                self.rows[1].array,
                origin,
                fresh,
                self._linked,
                chains,
                own,
                found,
            )
            self._linked = origin + used
            if upto == done:
                room *= 4
                continue
            done = upto
            yield own[:filled], found[:filled]
            room = max(room, min(4 * room, ANSWERS_AT_ONCE))

    def restore(self, slots: Slots, base: int) -> None:
        self.rows[0].set(slots)
        self.rows[1].resize(len(slots))
        self._chains.clear()
        self._linked = self._base = base
        self.settle(base, base + len(slots))
        if self.odd is not None:
            self.odd.clear()
            self.odd.enter(slots, base)


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
    ) -> None:
        self._reject = resources.reject
        self._where = None if where is None else compile_expression(where)
        self._filters_first = window.extent.is_told_by_times
        self._account = resources.account(f"{name}: times and keys")
        self.indexes = {own: KeyIndex(own, table, self._account, narrowing.get(own)) for own, table in keys.items()}
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
