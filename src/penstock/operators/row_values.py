"""Rows by their values: which rows that enter or leave a window change the multiset of its rows, and how.

An evaluation has rows that have entered since the one before and rows that have left. ISTREAM is those that entered,
without the first ones of each value for which others of that value left. DSTREAM is as many of each value as have left
and were not replaced; of equal rows those that came first stayed, so it is the last ones that there were.

    evaluation before     a b a c          a and b leave, c enters      evaluation     a c c
    ISTREAM               c                the second one
    DSTREAM                 b a            the second a: the first one stayed

Rows are told apart by positions: evaluation k has the rows `[tails[k], heads[k])` of a window.

Why: docs/decisions/changed-rows.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Int64s, Slots
from penstock.expressions.vector import Evaluated, Vector
from penstock.jit import kernel
from penstock.operators.columns import image_of
from penstock.operators.groups import GroupTable
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray, power_of_two
from penstock.types import SqlType


@kernel
def _entered(tails: Int64s, heads: Int64s, leaving: Slots, entering: Slots, left: Int64s) -> tuple[Int64s, Int64s]:
    """ISTREAM of the evaluations after the first: places among the rows that enter, and the numbers of evaluations.
    `left` is zero for all slots, before and after."""
    places = np.empty(len(entering), np.int64)
    evaluations = np.empty(len(entering), np.int64)
    first_leaving, first_entering = tails[0], heads[0]
    count = 0
    for k in range(1, len(tails)):
        last_leaving = min(tails[k], heads[k - 1])
        for position in range(tails[k - 1], last_leaving):
            slot = leaving[position - first_leaving]
            if slot >= 0:
                left[slot] += 1
        for position in range(max(heads[k - 1], tails[k]), heads[k]):
            place = position - first_entering
            slot = entering[place]
            if slot < 0:
                continue
            if left[slot] > 0:
                left[slot] -= 1
            else:
                places[count], evaluations[count] = place, k - 1
                count += 1
        for position in range(tails[k - 1], last_leaving):
            slot = leaving[position - first_leaving]
            if slot >= 0:
                left[slot] = 0
    return places[:count], evaluations[:count]


@kernel
def _left(
    tails: Int64s,
    heads: Int64s,
    leaving: Slots,
    entering: Slots,
    counts: Int64s,
    newest: Int64s,
    previous: Int64s,
    came: Int64s,
    chosen: Int64s,
) -> tuple[Int64s, Int64s, Int64s]:
    """DSTREAM of the evaluations after the first: the positions of rows, places among the rows that leave of rows with
    the same values, and the numbers of evaluations. `came` and `chosen` are zero for all slots, before and after."""
    positions = np.empty(len(leaving), np.int64)
    places = np.empty(len(leaving), np.int64)
    evaluations = np.empty(len(leaving), np.int64)
    first_leaving, first_entering, mask = tails[0], heads[0], len(previous) - 1
    count = 0
    for k in range(1, len(tails)):
        begin = count
        last_leaving, first_new = min(tails[k], heads[k - 1]), max(heads[k - 1], tails[k])
        for position in range(first_new, heads[k]):
            slot = entering[position - first_entering]
            if slot >= 0:
                came[slot] += 1
        for position in range(tails[k - 1], last_leaving):
            slot = leaving[position - first_leaving]
            if slot < 0:
                continue
            if came[slot] > 0:
                came[slot] -= 1
            else:
                copy = newest[slot] if chosen[slot] == 0 else previous[(chosen[slot] - 1) & mask]
                chosen[slot] = copy + 1
                positions[count], places[count], evaluations[count] = copy, position - first_leaving, k - 1
                count += 1
        for position in range(tails[k - 1], last_leaving):
            slot = leaving[position - first_leaving]
            if slot >= 0:
                chosen[slot] = 0
                counts[slot] -= 1
        for position in range(first_new, heads[k]):
            slot = entering[position - first_entering]
            if slot >= 0:
                came[slot] = 0
                previous[position & mask] = newest[slot]
                newest[slot] = position
                counts[slot] += 1
        for i in range(begin + 1, count):
            if positions[i] < positions[i - 1]:
                order = begin + np.argsort(positions[begin:count])
                positions[begin:count], places[begin:count] = positions[order], places[order]
                break
    return positions[:count], places[:count], evaluations[:count]


class Values(NamedTuple):
    """The values of rows, as they are stored, and which of the rows are shown."""

    columns: Sequence[Argument]
    shown: Argument


class RowValues:
    """Slots of rows, equal for equal values. What it keeps is on the `account`."""

    def __init__(self, types: Sequence[SqlType], account: Account) -> None:
        self._types = types
        self._table = GroupTable((SqlType.BIGINT,) * len(types), account)
        self._scratch = ChargedArray(account, np.int64)
        self._chosen = ChargedArray(account, np.int64)
        self._newest = ChargedArray(account, np.int64)
        self._previous = ChargedArray(account, np.int64)

    def entered(self, tails: Int64s, heads: Int64s, leaving: Values, entering: Values) -> tuple[Int64s, Int64s]:
        """ISTREAM: places among the rows that enter, and the evaluations, numbered from 0, that they are of. `tails`
        and `heads` begin with those of the evaluation before the first."""
        slots = self._slots(leaving, entering)
        return _entered(tails, heads, *slots, self._scratch.array)

    def left(self, tails: Int64s, heads: Int64s, leaving: Values, entering: Values) -> tuple[Int64s, Int64s, Int64s]:
        """DSTREAM: positions of rows, places among the rows that leave of rows with equal values, and evaluations. All
        rows that entered before have been given to it."""
        leaving_slots, entering_slots = self._slots(leaving, entering)
        self._make_room(int(tails[0]), int(heads[0]), int(heads[-1]))
        newest, previous, counts = self._newest.array, self._previous.array, self._table.counts
        found = _left(
            tails,
            heads,
            leaving_slots,
            entering_slots,
            counts,
            newest,
            previous,
            self._scratch.array,
            self._chosen.array,
        )
        return found

    def collect(self, left: int) -> None:
        """So many rows have left: values that no row has are forgotten."""
        self._table.collect(left)

    def _slots(self, leaving: Values, entering: Values) -> tuple[Slots, Slots]:
        """-1 for rows that are not shown."""
        count = len(leaving.shown.values)
        columns: list[Evaluated] = []
        total = count + len(entering.shown.values)
        for one, other, kind in zip(leaving.columns, entering.columns, self._types, strict=True):
            images, valid = image_of(_joined(one, other), kind)
            columns.append(Evaluated(Vector(images, valid), SqlType.BIGINT, total, ()))
        keep = np.concatenate([leaving.shown.values, entering.shown.values]) != 0
        slots = self._table.assign(columns, total, keep)
        if self._table.capacity > len(self._scratch):
            for array in (self._scratch, self._chosen, self._newest):
                array.resize(self._table.capacity)
        return slots[:count], slots[count:]

    def _make_room(self, tail: int, head: int, new_head: int) -> None:
        """Room in `_previous`, a ring, for the rows from `tail` on; it has those up to `head`."""
        wanted = power_of_two(new_head - tail)
        if wanted <= len(self._previous):
            return
        held = np.arange(tail, head)
        links = self._previous.array[held & (len(self._previous) - 1)] if len(held) else held
        self._previous.resize(wanted)
        self._previous.array[held & (wanted - 1)] = links


def _joined(one: Argument, other: Argument) -> Argument:
    valid = None
    if one.valid is not None or other.valid is not None:
        valid = np.concatenate(
            [np.ones(len(part.values), np.bool_) if part.valid is None else part.valid for part in (one, other)]
        )
    return Argument(np.concatenate([one.values, other.values]), valid)
