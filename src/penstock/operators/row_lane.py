"""The lane of single events: a few rows that come as Python values are stored and played by one compiled call.

The rows are packed into the registers of a `RowProgram`. It finds their slots, computes the arguments, writes the rows
into the open block, plays the states and computes the select list. `RowLane` belongs to the only member of a shared
window with one show.

Invariants:
1. Between calls all state is where the ordinary path has it.
2. A row that the lane does not take has changed nothing: it takes rows up to the first one with a key or a value that
   needs the ordinary path, and none if the open block has no room for all.
3. Rows that enter on the ordinary path move the head of the store. While it is where the lane left it, the arrays of
   groups and states are where they were.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.lane import words
from penstock.lane.memory import address_of
from penstock.lane.row_program import RowProgram, packer
from penstock.operators import single_keys
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.leaving import WindowTail
from penstock.operators.row_plan import RowPlan
from penstock.operators.shared_window import SharedWindow
from penstock.operators.window_member import WindowMember
from penstock.plan.nodes import AggregateNode
from penstock.store.blocks import Frame
from penstock.store.fifo import FifoStore
from penstock.windows.steps import EventPolicy


class RowLane:
    """`node` has all states of the aggregation of the window's only member."""

    def __init__(
        self,
        plan: RowPlan,
        node: AggregateNode,
        window: SharedWindow,
        member: WindowMember,
        aggregation: Aggregation,
        policy: EventPolicy,
    ) -> None:
        assert window.store is not None
        assert member.tail is not None
        self.plan = plan
        self.program = RowProgram(
            node.window.extent,
            aggregation.states,
            node.states,
            [own.arguments[0] if own.arguments else -1 for own in member.state_columns],
            plan.registers,
            plan.front,
            plan.back,
            values=plan.values,
            answers=plan.answers,
            tally=plan.tally,
            times=0,
            starts=plan.starts,
            slots=plan.slots if member.has_slots else None,
        )
        self._window = window
        self._store: FifoStore = window.store
        self._member = member
        self._tail: WindowTail = member.tail
        self._aggregation = aggregation
        self._policy = policy
        self._open: Frame | None = None
        self._head = -1
        self._table: Any = None
        self._block: Frame | None = None
        self._position = -1
        time, *places = member.tail.columns
        self._time_place = time
        self._slots_place = places.pop(0) if member.has_slots else None
        self._places = places[: len(member.names)]
        self._nullable = [p for p, spec in zip(self._places, member.columns.specs, strict=True) if spec.nullable]

    def packer(self, rows: int) -> Any:
        """Packs so many rows into `program.cells`: times, keys, and then the columns, each column as a whole."""
        return packer(self.plan.formats, rows)

    @property
    def codes(self) -> Mapping[bytes, int] | None:
        """The codes of the key's strings; None if it is a number."""
        interner = self._member.groups.interners[0] if self.plan.key is not None else None
        return None if interner is None else interner.codes

    def enter(self, rows: int) -> int:
        """Takes rows that are packed, in order; returns how many."""
        program, store = self.program, self._store
        frame = store.open_block
        if frame is None or frame.count + rows > store.block_rows:
            return 0
        if (store.head != self._head or frame is not self._open) and not self._link(frame):
            return 0
        if not self._stand(frame):
            return 0
        at, status = program.tail_at, program.start(store.head, frame.count)
        done = left = 0
        while True:
            moved, gone = program.done - done, program.tail_at - at
            done, left = done + moved, left + gone
            store.grow(moved)
            self._tail.pass_rows(gone)
            self._position += gone
            if status != words.NEEDS_TAIL or not self._stand(frame):
                break
            at, status = program.tail_at, program.run()
        self._head = store.head
        self._policy.pass_rows(done)
        self._window.note_entered(done, left)
        return done

    def _link(self, frame: Frame) -> bool:
        """The ordinary path has been at work: finds the arrays where they are now; False if the lane cannot run."""
        program, member = self.program, self._member
        if self._policy.first_time is None or self._window.has_texts or not program.is_ready:
            return False
        self._aggregation.fit()
        program.link(member.counts)
        table = member.groups.table
        if self.plan.find_at >= 0 and table is not self._table:
            program.set_word(self.plan.find_at, single_keys.TABLE, address_of(table))
            program.set_word(self.plan.find_at, single_keys.PLACES, len(table))
            self._table = table
        if frame is not self._open:
            self._open = frame
            program.open(frame.address)
        return True

    def _stand(self, opened: Frame) -> bool:
        """Gives the program the block in which the tail is; False if that or the open block holds a NULL."""
        tail = self._tail
        if self._block is not None and tail.position == self._position and tail.is_in(self._block):
            return True
        frame, first, at, _ = tail.block()
        for place in self._nullable:
            if frame.valid[place] is not None or opened.valid[place] is not None:
                self._block = None
                return False
        address, offsets = frame.address, frame.offsets
        columns = [address + offsets[place] for place in self._places]
        slots = 0 if self._slots_place is None else address + offsets[self._slots_place]
        is_last = frame is opened
        rows = len(frame.values[0]) if is_last else frame.count
        self.program.stand(address + offsets[self._time_place], slots, columns, first, at, rows)
        self.program.stand_last(is_last)
        self._block, self._position = frame, tail.position
        return True

    def played(self) -> EvaluatedGroups:
        """The evaluations of the rows that were taken last, for the ordinary way of results."""
        program = self.program
        slots: Slots = np.zeros(program.emitted, np.int32)
        none: Int64s = np.empty(0, np.int64)
        return EvaluatedGroups(slots, none, program.tally(), program.results(), self._aggregation.first_interners)
