"""The signs of zeros that a row shows which stands for others with equal values.

0.0 and -0.0 are equal, so of rows of a partition that differ in the signs of their zeros alone, any one stands for all.
DSTREAM shows the last of them: those of equal rows that came first stay. Only rows with zeros are known here; all other
rows with equal values are the same to the bit.

Why: docs/decisions/changed-rows.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.expressions.vector import Evaluated, Vector
from penstock.jit import kernel
from penstock.operators.columns import image_of
from penstock.operators.groups import GroupTable
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.types import SqlType


@kernel
def _play(
    leaves: Int64s, leaving: Slots, entering: Slots, entering_signs: Int64s, counts: Int64s, last_signs: Int64s
) -> Int64s:
    """At event i the row `leaves[i]` leaves, if that is not -1, and then row i enters. Returns the signs of the last
    rows that were equal to those that leave."""
    signs = np.zeros(len(leaving), np.int64)
    for event in range(len(leaves)):
        row = leaves[event]
        if row >= 0 and leaving[row] >= 0:
            signs[row] = last_signs[leaving[row]]
            counts[leaving[row]] -= 1
        slot = entering[event]
        if slot >= 0:
            last_signs[slot] = entering_signs[event]
            counts[slot] += 1
    return signs


@component("ZeroSigns")
class ZeroSigns:
    """For rows with these columns. What it keeps is on the `account`."""

    def __init__(self, types: Sequence[SqlType], account: Account) -> None:
        self._types = types
        self._floats = [place for place, kind in enumerate(types) if kind.is_floating]
        self._table = GroupTable((SqlType.BIGINT,) * (1 + len(types)), account)
        self._last_signs = ChargedArray(account, np.int64)

    def exchange(
        self, leaves: Int64s, partitions: Slots, leaving: Sequence[Argument], entering: Sequence[Argument]
    ) -> list[Argument]:
        """Event i is of `partitions[i]`; the row `leaves[i]` leaves with it, if that is not -1. Columns are given with
        the one that says which rows are shown in front. Returns the columns of rows that leave with the signs of the
        last rows that were equal."""
        owners = np.zeros(len(leaving[0].values), np.int32)
        owners[leaves[leaves >= 0]] = partitions[leaves >= 0]
        entering_slots, leaving_slots = self._slots(entering, partitions), self._slots(leaving, owners)
        entering_signs = np.zeros(len(partitions), np.int64)
        for bit, place in enumerate(self._floats):
            entering_signs |= np.signbit(entering[1 + place].values).astype(np.int64) << bit
        last_signs = self._last_signs.fit(self._table.capacity)
        signs = _play(leaves, leaving_slots, entering_slots, entering_signs, self._table.counts, last_signs)
        self._table.collect(len(owners))
        columns = list(leaving[1:])
        for bit, place in enumerate(self._floats):
            values, valid = columns[place]
            is_zero = (leaving_slots >= 0) & (values == 0)
            zeros = np.where(signs >> bit & 1, -0.0, 0.0).astype(values.dtype)
            columns[place] = Argument(np.where(is_zero, zeros, values), valid)
        return columns

    def _slots(self, columns: Sequence[Argument], partitions: Slots) -> Slots:
        """-1 for rows without zeros."""
        count = len(partitions)
        has_zero = np.zeros(count, np.bool_)
        for place in self._floats:
            values, valid = columns[1 + place]
            has_zero |= (values == 0) if valid is None else (values == 0) & valid
        has_zero &= columns[0].values != 0
        if not has_zero.any():
            return np.full(count, -1, np.int32)
        keys = [Evaluated(Vector(partitions.astype(np.int64), None), SqlType.BIGINT, count, ())]
        for column, kind in zip(columns[1:], self._types, strict=True):
            keys.append(Evaluated(Vector(*image_of(column, kind)), SqlType.BIGINT, count, ()))
        return self._table.assign(keys, count, has_zero)

    def snapshot(self) -> dict[str, Any]:
        return {"table": self._table.snapshot(), "signs": self._last_signs.array}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._table.restore(snapshot["table"])
        self._last_signs.set(snapshot["signs"])
