"""What lanes have in common that store their rows themselves: a program, the open block and the tail of the window.

A lane belongs to the only member of a shared window with one show.

Invariants:
1. Between calls all state is where the ordinary path has it.
2. A row that the lane does not take has changed nothing.
3. A program knows the arrays of groups and states by their addresses. What may move them is followed by `_link`.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.lane import words
from penstock.lane.row_program import RowProgram
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.leaving import WindowTail
from penstock.operators.shared_window import SharedWindow
from penstock.operators.window_member import WindowMember
from penstock.store.blocks import Frame
from penstock.store.fifo import FifoStore
from penstock.windows.steps import EventPolicy

Made = TypeVar("Made", bound=RowProgram)


class StoringLane(Generic[Made]):
    def __init__(
        self,
        program: Made,
        window: SharedWindow,
        member: WindowMember,
        aggregation: Aggregation,
        policy: EventPolicy,
    ) -> None:
        assert window.store is not None
        assert member.tail is not None
        self.program = program
        self._window = window
        self._store: FifoStore = window.store
        self._member = member
        self._tail: WindowTail = member.tail
        self._aggregation = aggregation
        self._policy = policy
        self._open: Frame | None = None
        self._block: Frame | None = None
        self._is_last = False
        self._position = -1
        time, *places = member.tail.columns
        self._time_place = time
        self._slots_place = places.pop(0) if member.has_slots else None
        self._places = places[: len(member.names)]
        self._nullable = [p for p, spec in zip(self._places, member.columns.specs, strict=True) if spec.nullable]

    def _link(self) -> bool:
        """Finds the arrays of groups and states where they are now; False if the lane cannot run."""
        program = self.program
        if self._policy.first_time is None or self._window.has_texts or not program.is_ready:
            return False
        self._aggregation.fit()
        program.link(self._member.counts)
        return True

    def _stand(self, opened: Frame) -> bool:
        """Gives the program the open block, and the block in which the tail is; False if one of them holds a NULL."""
        if self._nullable and self._holds_null(opened):
            return False
        if opened is not self._open:
            self._open = opened
            self.program.open(opened.address)
        tail, block = self._tail, self._block
        if block is not None and self._is_last == (block is opened) and tail.stands_in(block, self._position):
            return True
        frame, first, at, _ = tail.block()
        if self._nullable and self._holds_null(frame):
            self._block = None
            return False
        address, offsets = frame.address, frame.offsets
        columns = [address + offsets[place] for place in self._places]
        slots = 0 if self._slots_place is None else address + offsets[self._slots_place]
        is_last = frame is opened
        rows = self._store.block_rows if is_last else frame.count
        self.program.stand(address + offsets[self._time_place], slots, columns, first, at, rows)
        self.program.stand_last(is_last)
        self._block, self._position, self._is_last = frame, tail.position, is_last
        return True

    def _holds_null(self, block: Frame) -> bool:
        """Whether an argument is NULL in some row of a block."""
        return any(block.valid[place] is not None for place in self._nullable)

    def _play(self, opened: Frame) -> tuple[int, int]:
        """Runs the program, whose blocks are given, for rows that fit into the open one. Returns how many are in, and
        how many rows have left."""
        program, store, now = self.program, self._store, self.program.words
        at, status = now[words.TAIL_AT], program.start(store.head, opened.count)
        done = left = 0
        while True:
            moved, gone = now[words.DONE] - program.row - done, now[words.TAIL_AT] - at
            done, left = done + moved, left + gone
            store.grow(moved)
            self._tail.pass_rows(gone)
            self._position += gone
            if status != words.NEEDS_TAIL or not self._stand(opened):
                break
            at, status = now[words.TAIL_AT], program.run()
        self._policy.pass_rows(done)
        return done, left

    def played(self, slots: Slots) -> EvaluatedGroups:
        """The evaluations of the rows that were taken last, for the ordinary way of results."""
        program = self.program
        none: Int64s = np.empty(0, np.int64)
        return EvaluatedGroups(slots, none, program.tally(), program.results(), self._aggregation.first_interners)
