"""What lanes have in common that store their rows themselves: a program, the open block and the tail of the window.

A lane belongs to the only member of a shared window with one show.

Invariants:
1. Between calls all state is where the ordinary path has it.
2. A row that the lane does not take has changed nothing.
3. A program knows the arrays of groups and states by their addresses. What may move them is followed by `_link`.
4. The frame of the tail's block is in the pool when a call begins. While the tail is in it, the store uses its memory
   for no other block: only a full block ahead of the tail or a block behind it has its memory used again.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.errors import BudgetError, StorageError
from penstock.lane import words
from penstock.lane.memory import block_at
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
        self._block_rows = window.store.block_rows
        self._member = member
        self._tail: WindowTail = member.tail
        self._aggregation = aggregation
        self._changes = member.groups.changes
        self._policy = policy
        self.done = self.left = 0
        """How many rows of the last call are in, and how many have left with them."""
        self._tail_at = 0
        self._opened: Frame | None = None
        self._open_rows = 0
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
        program.link(self._member.counts, self._changes.flags)
        return True

    def _begin(self) -> int:
        """Runs the program from its first row on. It ends with FINISHED, STOPS or MARKED (`lane.words`)."""
        self.done = self.left = 0
        if not (self._open_block() and self._stands()):
            return words.STOPS
        return self._supplied(self.program.start(self._store.head))

    def _go_on(self) -> int:
        """Runs the program from where it was marked."""
        return self._supplied(self.program.run())

    def _supplied(self, status: int) -> int:
        """What a run of the program ends with that is given the blocks that it needs. It stops where a block cannot be
        had: the ordinary path meets the error again, when the rows that are in have been shown."""
        program, store, now = self.program, self._store, self.program.words
        while True:
            done, tail_at = now[words.DONE] - program.row, now[words.TAIL_AT]
            gone = tail_at - self._tail_at
            if done != self.done:
                store.grow(done - self.done)
                self.done = done
            if gone:
                self.left, self._tail_at, self._position = self.left + gone, tail_at, self._position + gone
                self._tail.pass_rows(gone)
            if status not in (words.NEEDS_TAIL, words.NEEDS_BLOCK):
                return status
            try:
                if not (self._stand() if status == words.NEEDS_TAIL else self._turn()):
                    return words.STOPS
            except (BudgetError, StorageError):
                return words.STOPS
            status = program.run()

    def _turn(self) -> bool:
        """The open block is full: the next one begins. The tail's block is where it was, even if the pool has given it
        up meanwhile; but it may no longer be the last one."""
        return self._open_block() and (not self._is_last or self._stand())

    def _open_block(self) -> bool:
        """Gives the program the block that row `done` of the call enters; False if it holds a NULL."""
        opened = self._store.block_with_room()
        if self._nullable and self._holds_null(opened):
            return False
        rows = opened.count - self.done - self.program.row
        if opened is not self._opened or rows != self._open_rows:
            self._opened, self._open_rows = opened, rows
            self.program.open(block_at(opened)[0], rows, self._block_rows)
        return True

    def _stands(self) -> bool:
        """Whether the program has the block in which the tail is; it is given it if need be."""
        tail, block = self._tail, self._block
        if block is not None and self._is_last == (block is self._opened) and tail.stands_in(block, self._position):
            return True
        return self._stand()

    def _stand(self) -> bool:
        """Gives the program the block in which the tail is; False if it holds a NULL."""
        tail = self._tail
        frame, first, at, _ = tail.block()
        if self._nullable and self._holds_null(frame):
            self._block = None
            return False
        address, offsets = block_at(frame)
        columns = [address + offsets[place] for place in self._places]
        slots = 0 if self._slots_place is None else address + offsets[self._slots_place]
        is_last = frame is self._opened
        rows = self._block_rows if is_last else frame.count
        self.program.stand(address + offsets[self._time_place], slots, columns, first, at, rows, is_last=is_last)
        self._block, self._position, self._tail_at, self._is_last = frame, first + at, at, is_last
        return True

    def _holds_null(self, block: Frame) -> bool:
        """Whether an argument is NULL in some row of a block."""
        return any(block.valid[place] is not None for place in self._nullable)

    def played(self, slots: Slots) -> EvaluatedGroups:
        """The evaluations of the rows that were taken last, for the ordinary way of results."""
        program = self.program
        none: Int64s = np.empty(0, np.int64)
        return EvaluatedGroups(slots, none, program.tally(), program.results(), self._aggregation.first_interners)
