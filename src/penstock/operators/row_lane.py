"""The lane of single events: a few rows that come as Python values are stored and played by one compiled call.

The rows are in the registers of a `SheetProgram`. It finds their slots, computes the arguments, writes the rows into
the open block, plays the states and computes the select list.

Invariants, besides those of `storing_lane`:
1. It takes rows up to the first one with a key or a value that needs the ordinary path. The others can be written
   again.
2. Rows that enter on another path move the head of the store. While it is where the lane left it, the arrays of groups
   and states are where they were.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.lane.memory import address_of
from penstock.lane.row_program import RowPlan
from penstock.lane.sheet_program import SheetProgram
from penstock.operators import single_keys
from penstock.operators.aggregation import Aggregation
from penstock.operators.played_states import played_states
from penstock.operators.shared_window import SharedWindow
from penstock.operators.storing_lane import StoringLane
from penstock.operators.window_member import WindowMember
from penstock.plan.nodes import AggregateNode
from penstock.types import SqlType
from penstock.windows.steps import EventPolicy


class RowLane(StoringLane[SheetProgram]):
    """`node` has all states of the aggregation of the window's only member. `shown` are the registers of the columns of
    results: the beginning of the window, its end, and the select list; None is for a key that is a text."""

    def __init__(
        self,
        plan: RowPlan,
        node: AggregateNode,
        window: SharedWindow,
        member: WindowMember,
        aggregation: Aggregation,
        policy: EventPolicy,
    ) -> None:
        has_number = plan.key is not None and plan.key.type is not SqlType.STRING
        outputs = [register if register >= 0 else 1 if has_number else None for register, _ in plan.outputs]
        self.shown: list[int | None] = [plan.starts, 0, *outputs]
        in_sheet = list(dict.fromkeys(register for register in self.shown if register is not None))
        program = SheetProgram(played_states(node, member, aggregation), plan, in_sheet)
        super().__init__(program, window, member, aggregation, policy)
        self.plan = plan
        self._head = self._taken = -1
        self._table: Any = None

    @property
    def codes_of(self) -> Callable[[Sequence[str]], list[int]] | None:
        """The codes of the key's strings, -1 for one that is not known; None if it is a number."""
        interner = self._member.groups.interners[0] if self.plan.key is not None else None
        return None if interner is None else interner.codes_of

    def enter(self, rows: int) -> int:
        """Takes rows that are in the registers, in order; returns how many."""
        if self._member.grouping.is_paged:
            return 0
        store = self._store
        stands = store.head == self._head and self._changes.taken == self._taken
        if not stands:
            if not (self._link() and self._link_table()):
                return 0
            self._taken = self._changes.taken
        self.program.limit(rows)
        self._begin()
        self._head = store.head
        self._policy.pass_rows(self.done)
        self._window.note_entered(self.done, self.left)
        return self.done

    def _link_table(self) -> bool:
        """Gives the program the table of groups."""
        table = self._member.groups.table
        if self.plan.find_at >= 0 and table is not self._table:
            self.program.set_word(self.plan.find_at, single_keys.TABLE, address_of(table))
            self.program.set_word(self.plan.find_at, single_keys.PLACES, len(table))
            self._table = table
        return True
