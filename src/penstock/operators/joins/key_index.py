"""The rows of one side of a join by a key: chains of rows, and the walk along them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.vector import Evaluated
from penstock.operators.chunk import Chunk
from penstock.operators.columns import validity
from penstock.operators.groups import GroupTable
from penstock.operators.joins.kernels import link, walk
from penstock.operators.joins.odd import ODD, OddRows
from penstock.plan.joins.steps import Keys
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.types import SqlType

_NOBODY = -1
_FIRST_ROOM = 1024

ANSWERS_AT_ONCE = 1 << 18
"""So many rows that may match are looked at together, however many there are."""


class KeyIndex:
    """The rows of a side by a key. Sides that are compared by the same key have their slots from one table."""

    def __init__(self, keys: Keys, table: GroupTable, account: Account, with_nulls: bool | None = None) -> None:
        """`keys` give the key of a row that comes. `with_nulls` is for keys that narrow a search: whether a NULL makes
        a row odd."""
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

    def close(self) -> None:
        for array in (*self.rows, self._chains):
            array.clear()
        if self.odd is not None:
            self.odd.clear()
