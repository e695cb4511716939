"""Which groups rows have entered or left between evaluations, and how they are looked at before and after.

    evaluation     ---------|-----------|------|
    segment            0          1        2     (rows after the last evaluation)
    touched          a b        b c        a
    looked at      a b c    a b         b c
                   first    after 0     after 1

A group that is in no segment between two evaluations has the same row in both. So all groups that a turn touches are
looked at once before its first row, and then after each segment that touches them. What a group was before a segment is
what the last look has shown; for the last segment it is held (`held_rows`), since the evaluation at its end comes with
a later turn.

With PARTITION BY an evaluation is of one partition, and each partition has segments of its own.

Why: docs/decisions/changed-groups.md
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Schedule
from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import kernel
from penstock.operators.evaluation import RowMoves
from penstock.operators.groups import GroupTable
from penstock.operators.held_rows import NOT_HELD, TakenSlots
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray

NO_ROW = -1
"""In place of a row's number."""

_NOT_LOOKED_AT = -2

_FEW = 8
"""Less than this part of all groups are put in order by themselves."""

_DENSE = 8
"""More than this part of all groups, in all segments, are in order once each has its place among all."""


@kernel
def _find(
    added: Slots,
    removed: Slots,
    add_upto: Int64s,
    left: Int64s,
    segments: Int64s,
    also: Slots,
    also_segments: Int64s,
    evaluations: int,
    held: Int64s,
    marks: Int64s,
    stamp: int,
) -> Int64s:
    """The distinct groups of each segment, as (segment << 32) + slot; `also` is touched before the first step. Groups
    of open segments that are held are left out."""
    found = np.empty(len(added) + len(removed) + len(also), np.int64)
    count = a = r = 0
    for i in range(len(also)):
        slot, mark = also[i], stamp + also_segments[i]
        if marks[slot] != mark:
            marks[slot] = mark
            found[count] = (also_segments[i] << 32) + slot
            count += 1
    for step in range(len(add_upto)):
        segment = segments[step]
        mark = stamp + segment
        while a < add_upto[step]:
            slot = added[a]
            if slot >= 0 and marks[slot] != mark:
                marks[slot] = mark
                if segment < evaluations or held[slot] == NOT_HELD:
                    found[count] = (segment << 32) + slot
                    count += 1
            a += 1
        while r < left[step]:
            slot = removed[r]
            if slot >= 0 and marks[slot] != mark:
                marks[slot] = mark
                if segment < evaluations or held[slot] == NOT_HELD:
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
    evaluates: Bools,
    touched: Slots,
    touched_upto: Int64s,
    taken: Slots,
    had_row: Bools,
    last: Int64s,
    counts: Int64s,
) -> tuple[Slots, Int64s, Int64s, Int64s, Int64s]:
    """Plays the counts; looks at all touched groups before the first step, except at those that were held (`taken`),
    and at those of each segment after it. A group without rows is not shown. Returns what is shown, the counts, how
    much by each step (the first one is before all rows), and for each touched group its rows before and after: first
    the numbers of the rows that were held, then of those shown. `last` is written: a group's row at the last look."""
    steps = len(add_upto)
    slots = np.empty(2 * len(touched), np.int32)
    values = np.empty(2 * len(touched), np.int64)
    upto = np.empty(steps + 1, np.int64)
    before = np.empty(len(touched), np.int64)
    after = np.full(len(touched), NO_ROW, np.int64)
    shown = a = r = begin = evaluation = first_row = 0
    for slot in touched:
        last[slot] = _NOT_LOOKED_AT
    for i in range(len(taken)):
        last[taken[i]] = NO_ROW
        if had_row[i]:
            last[taken[i]] = first_row
            first_row += 1
    for slot in touched:
        if last[slot] == _NOT_LOOKED_AT:
            last[slot] = NO_ROW
            if counts[slot] > 0:
                slots[shown], values[shown], last[slot] = slot, counts[slot], first_row + shown
                shown += 1
    upto[0] = shown
    for step in range(steps):
        while a < add_upto[step]:
            if added[a] >= 0:
                counts[added[a]] += 1
            a += 1
        while r < left[step]:
            if removed[r] >= 0:
                counts[removed[r]] -= 1
            r += 1
        if evaluates[step]:
            for t in range(begin, touched_upto[evaluation]):
                slot = touched[t]
                before[t] = last[slot]
                last[slot] = NO_ROW
                if counts[slot] > 0:
                    slots[shown], values[shown], last[slot] = slot, counts[slot], first_row + shown
                    shown += 1
                after[t] = last[slot]
            begin = touched_upto[evaluation]
            evaluation += 1
        upto[step + 1] = shown
    for t in range(begin, len(touched)):
        before[t] = last[touched[t]]
    return slots[:shown], values[:shown], upto, before, after


@kernel
def _partition_segments(partitions: Slots, evaluates: Bools, evaluations: int, nexts: Int64s, stamp: int) -> Int64s:
    """For each step the number of the evaluation that ends its partition's segment. `nexts` of a partition is `stamp` +
    the number of its next evaluation, and less if there is none."""
    segments = np.full(len(partitions), evaluations, np.int64)
    number = evaluations
    for step in range(len(partitions) - 1, -1, -1):
        partition = partitions[step]
        if evaluates[step]:
            number -= 1
            nexts[partition] = stamp + number
        if nexts[partition] >= stamp:
            segments[step] = nexts[partition] - stamp
    return segments


def segments_of_all(evaluates: Bools) -> Int64s:
    """For each step the number of the evaluation that ends its segment, or of all evaluations where none does yet."""
    segments: Int64s = np.cumsum(evaluates) - evaluates
    return segments


class PartitionSegments:
    """The same where an evaluation is of one partition. What is kept for each partition is on the `account`."""

    def __init__(self, account: Account) -> None:
        self._nexts = ChargedArray(account, np.int64)
        self._stamp = 1

    def find(self, partitions: Slots, evaluates: Bools) -> Int64s:
        """`partitions` are those of the steps."""
        evaluations, nexts = int(evaluates.sum()), self._nexts.fit(int(partitions.max()) + 1)
        segments = _partition_segments(partitions, evaluates, evaluations, nexts, self._stamp)
        self._stamp += evaluations
        return segments


class Touched(NamedTuple):
    """Groups by segment and within it in the order of their keys, with the numbers of their rows before and after the
    segment (`NO_ROW` for none). Segments after the last evaluation have no row after them yet."""

    slots: Slots
    segments: Int64s
    before: Int64s
    after: Int64s

    def part(self, chosen: slice) -> Touched:
        return Touched(self.slots[chosen], self.segments[chosen], self.before[chosen], self.after[chosen])


class TouchFinder:
    """Finds what a turn touches. What it keeps for each group is on the `account`."""

    def __init__(self, groups: GroupTable, account: Account) -> None:
        self._groups = groups
        self._marks = ChargedArray(account, np.int64)
        self._rank = ChargedArray(account, np.int64)
        self._last = ChargedArray(account, np.int64)
        self._stamp = 1
        self._ranked: Slots | None = None
        self._apart = 0
        """How many groups have been put in order by themselves since all were."""

    def play(
        self,
        turn: RowMoves,
        segments: Int64s,
        taken: TakenSlots,
        failing: tuple[Slots, Int64s],
        held: Int64s,
        counts: Int64s,
    ) -> tuple[Schedule, Int64s, Touched]:
        """The schedule of a turn's evaluations, the row counts of what it shows, and what they are compared for.
        `segments` are those of the steps; the groups that were held and those that are `failing` are looked at in the
        segments that are given with them. `held` are the flags of `HeldRows`."""
        if self._groups.capacity > len(self._last):
            for array in (self._marks, self._rank, self._last):
                array.resize(self._groups.capacity)
        also, also_segments = taken.slots, taken.evaluations
        if len(failing[0]):
            also, also_segments = np.append(also, failing[0]), np.append(also_segments, failing[1])
        added, removed, add_upto, left = turn.added.slots, turn.removed.slots, turn.add_upto, turn.left
        evaluations = int(turn.evaluates.sum())
        marks, stamp = self._marks.array, self._stamp
        found = _find(added, removed, add_upto, left, segments, also, also_segments, evaluations, held, marks, stamp)
        self._stamp += evaluations + 1
        numbers, slots = self._sorted(found >> 32, (found & 0xFFFF_FFFF).astype(np.int32))
        upto = np.searchsorted(numbers, np.arange(evaluations), "right")
        last, evaluates, (out, had_row, _) = self._last.array, turn.evaluates, taken
        shown, shown_counts, shown_upto, before, after = _play(
            added, removed, add_upto, left, evaluates, slots, upto, out, had_row, last, counts
        )
        schedule = Schedule(np.append(0, add_upto), np.append(0, left), shown_upto, shown)
        return schedule, shown_counts, Touched(slots, numbers, before, after)

    def _sorted(self, segments: Int64s, slots: Slots) -> tuple[Int64s, Slots]:
        """By segment and within it in the order of the keys."""
        order = self._order(slots)
        size = len(order)
        keys = segments * size + self._rank.array[slots]
        all_keys = (int(segments.max(initial=-1)) + 1) * size
        if all_keys < _DENSE * len(keys):
            is_key = np.zeros(all_keys, np.bool_)
            is_key[keys] = True
            keys = np.flatnonzero(is_key)
        else:
            keys.sort()
        numbers = keys // max(size, 1)
        return numbers, order[keys - numbers * size]

    def _order(self, slots: Slots) -> Slots:
        """Slots in the order of their keys, with `_rank` of each: all that there are, or these alone where they are few
        and others have come since all were put in order. All are put in order again once that costs no more than what
        has been put in order by itself."""
        is_few = len(slots) * _FEW < self._groups.size and self._apart < self._groups.size
        if is_few and not self._groups.is_ordered:
            self._apart += len(slots)
            order, self._ranked = self._groups.sorted(np.unique(slots)), None
        else:
            self._apart = 0
            order = self._groups.order()
            if order is self._ranked:
                return order
            self._ranked = order
        self._rank.array[order] = np.arange(len(order))
        return order
