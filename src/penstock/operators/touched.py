"""Which groups rows have entered or left between evaluations, and how they are looked at before and after.

    evaluation     ---------|-----------|------|
    segment            0          1        2     (rows after the last evaluation)
    touched          a b        b c        a
    looked at      a b      a b   b c    b c  a
                   before   after
                            before   after  before

A group that is in no segment between two evaluations has the same row in both. What a group was *before* is taken down
when the first row of a segment touches it, for the evaluation at the segment's end may come with a later call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Schedule
from penstock.arrays import Int64s, Slots
from penstock.jit import kernel
from penstock.operators.evaluation import Turn
from penstock.operators.groups import GroupTable
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray

NOT_HELD, NO_ROW = -2, -1
"""In place of a row's number: the group is not held back, or it had no row before."""

_FEW = 8
"""Less than this part of all groups are put in order by themselves."""


@kernel
def _find(
    added: Slots, removed: Slots, add_upto: Int64s, left: Int64s, also: Slots, marks: Int64s, stamp: int
) -> Int64s:
    """The distinct groups of each segment, as (segment << 32) + slot; `also` is touched in the first."""
    found = np.empty(len(added) + len(removed) + len(also), np.int64)
    count = a = r = 0
    for slot in also:
        if marks[slot] != stamp:
            marks[slot] = stamp
            found[count] = slot
            count += 1
    for segment in range(len(add_upto)):
        mark = stamp + segment
        while a < add_upto[segment]:
            slot = added[a]
            if slot >= 0 and marks[slot] != mark:
                marks[slot] = mark
                found[count] = (segment << 32) + slot
                count += 1
            a += 1
        while r < left[segment]:
            slot = removed[r]
            if slot >= 0 and marks[slot] != mark:
                marks[slot] = mark
                found[count] = (segment << 32) + slot
                count += 1
            r += 1
    return found[:count]


@kernel
def _play(
    added: Slots,
    removed: Slots,
    add_upto: Int64s,
    left: Int64s,
    touched: Slots,
    touched_upto: Int64s,
    held: Int64s,
    first_row: int,
    counts: Int64s,
) -> tuple[Slots, Int64s, Int64s, Int64s, Int64s]:
    """Plays the counts; looks at the groups of each segment before and, if an evaluation ends it, after. A group
    without rows is not shown. Returns what is shown, the counts, how much by each step (the first one is before all
    rows), and for each touched group its rows before and after, numbered from `first_row` on."""
    segments = len(add_upto)
    slots = np.empty(2 * len(touched), np.int32)
    values = np.empty(2 * len(touched), np.int64)
    upto = np.empty(segments + 1, np.int64)
    before = np.full(len(touched), NO_ROW, np.int64)
    after = np.full(len(touched), NO_ROW, np.int64)
    shown = a = r = begin = 0
    for t in range(touched_upto[0]):
        slot = touched[t]
        if held[slot] != NOT_HELD:
            before[t] = held[slot]
        elif counts[slot] > 0:
            slots[shown], values[shown], before[t] = slot, counts[slot], first_row + shown
            shown += 1
    upto[0] = shown
    for segment in range(segments):
        while a < add_upto[segment]:
            if added[a] >= 0:
                counts[added[a]] += 1
            a += 1
        while r < left[segment]:
            if removed[r] >= 0:
                counts[removed[r]] -= 1
            r += 1
        if segment < segments - 1:
            for t in range(begin, touched_upto[segment]):
                slot = touched[t]
                if counts[slot] > 0:
                    slots[shown], values[shown], after[t] = slot, counts[slot], first_row + shown
                    shown += 1
            begin = touched_upto[segment]
            for t in range(begin, touched_upto[segment + 1]):
                slot = touched[t]
                if counts[slot] > 0:
                    slots[shown], values[shown], before[t] = slot, counts[slot], first_row + shown
                    shown += 1
        upto[segment + 1] = shown
    return slots[:shown], values[:shown], upto, before, after


class Touched(NamedTuple):
    """Groups by segment and within it in the order of their keys, with the numbers of their rows before and after the
    segment (`NO_ROW` for none). The last segment has no evaluation yet."""

    slots: Slots
    segments: Int64s
    before: Int64s
    after: Int64s

    def part(self, chosen: slice) -> Touched:
        return Touched(self.slots[chosen], self.segments[chosen], self.before[chosen], self.after[chosen])


class Toucher:
    """Finds what a turn touches. `held[slot]` is the number of the row that a group of the open segment had before.
    What it keeps for each group is on the `account`."""

    def __init__(self, groups: GroupTable, account: Account) -> None:
        self._groups = groups
        self._marks = ChargedArray(account, np.int64)
        self._rank = ChargedArray(account, np.int64)
        self._held = ChargedArray(account, np.int64, fill=NOT_HELD)
        self._stamp = 1
        self._ranked: Slots | None = None

    @property
    def held(self) -> Int64s:
        return self._held.array

    def fit(self) -> None:
        """Room for all groups that there are."""
        if self._groups.capacity > len(self._held):
            for array in (self._marks, self._rank, self._held):
                array.resize(self._groups.capacity)

    def play(self, turn: Turn, also: Slots, first_row: int, counts: Int64s) -> tuple[Schedule, Int64s, Touched]:
        """The schedule of a turn's evaluations, the row counts of what it shows, and what they are compared for."""
        self.fit()
        stops = np.append(np.flatnonzero(turn.evaluates), len(turn.evaluates) - 1)
        add_upto, left = turn.add_upto[stops], turn.left[stops]
        found = _find(turn.added.slots, turn.removed.slots, add_upto, left, also, self._marks.array, self._stamp)
        self._stamp += len(stops)
        segments, slots = self._sorted(found >> 32, (found & 0xFFFF_FFFF).astype(np.int32))
        upto = np.searchsorted(segments, np.arange(len(stops)), "right")
        shown, shown_counts, shown_upto, before, after = _play(
            turn.added.slots, turn.removed.slots, add_upto, left, slots, upto, self.held, first_row, counts
        )
        schedule = Schedule(np.append(0, add_upto), np.append(0, left), shown_upto, shown)
        return schedule, shown_counts, Touched(slots, segments, before, after)

    def _sorted(self, segments: Int64s, slots: Slots) -> tuple[Int64s, Slots]:
        """By segment and within it in the order of the keys."""
        order = self._order(slots)
        keys = (segments << 32) + self._rank.array[slots]
        keys.sort()
        return keys >> 32, order[keys & 0xFFFF_FFFF]

    def _order(self, slots: Slots) -> Slots:
        """Slots in the order of their keys, with `_rank` of each: all that there are, or these alone where they are few
        and others have come since all were put in order."""
        if not self._groups.is_ordered and len(slots) * _FEW < self._groups.size:
            order, self._ranked = self._groups.sorted(np.unique(slots)), None
        else:
            order = self._groups.order()
            if order is self._ranked:
                return order
            self._ranked = order
        self._rank.array[order] = np.arange(len(order))
        return order
