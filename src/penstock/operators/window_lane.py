"""The lane of one member of a shared window: rows that have entered the store are played by one compiled loop.

The ordinary path (`leaving`, `aggregation`) defines what happens. The lane does the same on the same arrays, as far as
it can, and says how many rows are in; the ordinary path goes on from there.

Invariants:
1. Between calls all state is where the ordinary path has it: the cursor of the tail, the counts of groups, the states.
2. A row that the lane does not take has changed nothing.

Rows with a NULL, values beyond the narrow sums and blocks that hold a NULL are for the ordinary path.
`lane.eligibility` says which aggregations have a lane at all.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.columns import INT32, INT64, plain
from penstock.arrays import Int64s
from penstock.lane import words
from penstock.lane.memory import block_at
from penstock.lane.program import Program
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.leaving import WindowTail
from penstock.operators.played_states import played_states
from penstock.operators.window_member import Entered, WindowMember
from penstock.plan.nodes import AggregateNode

_NOTHING = np.empty(0, np.int64)

LEAST_ROWS = 64
"""Fewer rows take the ordinary path: the lane is loaded only by apps that have a use for it."""


class WindowLane:
    def __init__(self, node: AggregateNode, member: WindowMember, tail: WindowTail, aggregation: Aggregation) -> None:
        self._member = member
        self._tail = tail
        self._aggregation = aggregation
        self._by_position = node.window.extent.limit is not None
        self._extent = node.window.extent.length or 0
        self._storage = [spec.dtype for spec in member.columns.specs]
        self._time_place, *places = tail.columns
        self._slots_place = places.pop(0) if member.has_slots else None
        self._places = places[: len(member.names)]
        self._nullable = [p for p, spec in zip(self._places, member.columns.specs, strict=True) if spec.nullable]
        self._node = node
        self._made: Program | None = None

    @property
    def _program(self) -> Program:
        """Made when it is first asked for: it loads what it is compiled to."""
        if self._made is None:
            self._made = Program(played_states(self._node, self._member, self._aggregation))
        return self._made

    @property
    def slots_name(self) -> str:
        """The name of its grouping."""
        return self._member.grouping.key.name

    def enter(self, entered: Entered, *, with_counts: bool) -> tuple[int, int, EvaluatedGroups | None, Int64s]:
        """Plays the rows that have entered, as far as the lane goes. Returns how many are in, how many rows have left,
        the evaluations of those that belong to a group, and where the windows of all rows that are in begin."""
        member = self._member
        if len(entered.times) < LEAST_ROWS:
            return 0, 0, None, _NOTHING
        arguments, program = [entered.columns[name] for name in member.names], self._program
        if not program.is_ready or any(argument.valid is not None for argument in arguments):
            return 0, 0, None, _NOTHING
        self._aggregation.fit()
        times, slots = plain(entered.times, INT64), plain(entered.slots[member.grouping.key.name], INT32)
        columns = [plain(argument.values, dtype) for argument, dtype in zip(arguments, self._storage, strict=True)]
        starts = np.empty(len(times) if self._by_position else 0, np.int64)
        counts = np.empty(len(times) if with_counts else 0, np.int64)
        program.link(member.counts, member.groups.changes.flags)
        program.feed(times, slots, columns, starts, counts)
        if not self._stand():
            return 0, 0, None, _NOTHING
        left, before, status = 0, program.reached[1], program.start(entered.first)
        while True:
            done, tail_at = program.reached
            left += tail_at - before
            self._tail.pass_rows(tail_at - before)
            if status != words.NEEDS_TAIL or not self._stand():
                break
            before, status = program.reached[1], program.run()
        emitted = program.emitted
        if not done:
            return 0, left, None, _NOTHING
        if not self._by_position:
            starts = times[:done] - self._extent if self._extent > 1 else times[:done]
        shown = slots[:done]
        if emitted < done:
            shown = shown[shown >= 0]
        played = EvaluatedGroups(
            shown, _NOTHING, counts[:emitted], program.results(), self._aggregation.first_interners
        )
        return done, left, played, starts[:done]

    def _stand(self) -> bool:
        """Gives the program the block in which the tail is; False if it holds a NULL."""
        frame, first, at, is_last = self._tail.block()
        for place in self._nullable:
            if frame.valid[place] is not None:
                return False
        address, offsets = block_at(frame)
        columns = [address + offsets[place] for place in self._places]
        slots = 0 if self._slots_place is None else address + offsets[self._slots_place]
        times = address + offsets[self._time_place]
        self._program.stand(times, slots, columns, first, at, frame.count, is_last=is_last)
        return True
