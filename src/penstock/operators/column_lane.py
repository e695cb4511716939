"""The lane of columns: the rows of a chunk are stored, played and shown by one compiled call.

The call comes back for blocks, and for results that need the evaluator.

The slots of the rows are found first. A `ColumnProgram` reads the columns of the chunk where they are. It computes the
arguments, writes the rows into the open block, plays the states and writes the select list into the columns of the
results.

Invariant, besides those of `storing_lane`: it takes rows up to the first one with a value that needs the ordinary path.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Int64s, Slots
from penstock.expressions.vector import Evaluated
from penstock.lane import words
from penstock.lane.column_program import ColumnProgram
from penstock.lane.row_program import RowPlan
from penstock.operators.aggregation import Aggregation
from penstock.operators.arguments import Computed
from penstock.operators.chunk import Chunk
from penstock.operators.played_states import played_states
from penstock.operators.results import ResultShow, slice_of
from penstock.operators.shared_window import SharedWindow
from penstock.operators.storing_lane import StoringLane
from penstock.operators.window_member import WindowMember
from penstock.plan.nodes import AggregateNode
from penstock.types import SqlType
from penstock.windows.steps import EventPolicy

LEAST_ROWS = 64
"""Fewer rows take another path: the lane is loaded only by apps that have a use for it."""

_NOTHING_COMPUTED = Computed({}, {}, {})


class ColumnLane(StoringLane[ColumnProgram]):
    """`node` has all states of the aggregation of the window's only member, and `show` shows its results."""

    def __init__(
        self,
        plan: RowPlan,
        node: AggregateNode,
        window: SharedWindow,
        member: WindowMember,
        aggregation: Aggregation,
        policy: EventPolicy,
        show: ResultShow,
    ) -> None:
        self._outputs = sorted({register for register, _ in plan.outputs if register >= 0})
        given = [0, *plan.columns.values(), plan.slots, plan.starts, *self._outputs]
        program = ColumnProgram(played_states(node, member, aggregation), plan, given)
        super().__init__(program, window, member, aggregation, policy)
        self._plan = plan
        self._show = show
        kinds = {field.name: field.type for field in node.input.schema.fields}
        self._columns = [(register, name, kinds[name].arrow) for name, register in plan.columns.items()]

    def enter(self, chunk: Chunk) -> int:
        """Takes rows of a chunk, in order; returns how many."""
        rows = chunk.rows
        if not isinstance(chunk.columns, pa.RecordBatch):
            return 0
        inputs = self._inputs(chunk.columns)
        if inputs is None:
            return 0
        slots, keys = self._member.grouping.assign(chunk, None, _NOTHING_COMPUTED)
        if not self._link():
            return 0
        outputs: dict[int, NDArray[Any]] = {register: np.empty(rows, np.int64) for register in self._outputs}
        outputs[self._plan.starts] = np.empty(rows, np.int64)
        times: Int64s = np.ascontiguousarray(chunk.times)
        self.program.take(inputs | outputs | {0: times, self._plan.slots: slots}, rows)
        shown, status = 0, self._begin()
        while status == words.MARKED:
            marked = self.program.marked_from
            self._show_plain(shown, marked, keys, times, outputs)
            self._show_ordinarily(marked, self.done, keys, times, slots, outputs[self._plan.starts])
            shown = self.done
            self.program.clear_marks()
            status = self._go_on()
        self._show_plain(shown, self.done, keys, times, outputs)
        self._policy.pass_rows(self.done)
        self._window.note_rows(self.done, self.left)
        return self.done

    def _inputs(self, batch: pa.RecordBatch) -> dict[int, NDArray[Any]] | None:
        """The columns that arguments read, by register; None if one has a NULL."""
        found: dict[int, NDArray[Any]] = {}
        for register, name, kind in self._columns:
            column = batch.column(name)
            if column.null_count or column.type != kind:
                return None
            found[register] = column.to_numpy() if kind != _TIMESTAMP else column.view(pa.int64()).to_numpy()
        return found

    def _show_plain(
        self, first: int, stop: int, keys: list[Evaluated], times: Int64s, outputs: dict[int, NDArray[Any]]
    ) -> None:
        """Results that are in the outputs."""
        if first == stop:
            return
        columns = [
            _typed(kind, outputs[register][first:stop])
            if register >= 0
            else keys[-1 - register].values.slice(first, stop - first)
            for register, kind in self._plan.outputs
        ]
        self._show.put(columns, outputs[self._plan.starts][first:stop], times[first:stop])

    def _show_ordinarily(
        self, first: int, stop: int, keys: list[Evaluated], times: Int64s, slots: Slots, starts: Int64s
    ) -> None:
        """The select list is computed by the evaluator, which knows what is rejected and why."""
        shown = [slice_of(key, first, stop - first) for key in keys]
        self._show.see(shown, self.played(slots[first:stop]), None, starts[first:stop], times[first:stop])


_TIMESTAMP = SqlType.TIMESTAMP.arrow


def _typed(kind: SqlType, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind.arrow, len(values), [None, pa.py_buffer(values)])
