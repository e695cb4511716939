"""ISTREAM and DSTREAM of windows without aggregation, from the rows that enter and leave (`row_values`).

The rows of the last evaluation are those of the store from `_tail` up to `_head`. What enters after it is looked at
with the next evaluation, and what leaves stays in the store until then, so nothing else is kept for ISTREAM. For
DSTREAM `RowValues` knows all rows of the last evaluation; after a restart it is told of them again.

Why: docs/decisions/changed-rows.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Int64s
from penstock.components import component
from penstock.lang.query import Emit
from penstock.operators.chunk import CHUNK_ROWS
from penstock.operators.emitter import as_chunk
from penstock.operators.relation import WindowRelation
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.row_values import RowValues, Values
from penstock.plan.nodes import RelationNode
from penstock.windows.steps import Steps

_AT_ONCE = 2 * CHUNK_ROWS
"""About how many rows are compared together; those of one evaluation are, however many they are."""


@component("RelationChanges")
class RelationChanges(WindowRelation):
    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        super().__init__(name, node, resources)
        self._inserts = node.emission.emit is Emit.ISTREAM
        self._names = node.schema.names
        types = [output.expression.type for output in node.emission.outputs]
        self._floats = [place for place, kind in enumerate(types, 2) if kind.is_floating]
        self._account = resources.account(f"{name}: rows that enter and leave")
        self._values = RowValues(types, self._account)
        self._row_bytes = 2 * sum(spec.dtype.itemsize + 1 for spec in self._kept.specs)
        self._head = 0
        self._known_upto = 0
        self._oldest = START
        """No row that is in the window, or was at the last evaluation, is older."""

    def _play(self, steps: Steps, first: int) -> None:
        if not self._inserts and self._since is not None:
            return  # no row ever leaves
        looks = np.flatnonzero(steps.evaluates)
        ends, before = first + steps.add_upto[looks], steps.leave_before[looks]
        starts, bounds = steps.window_start[looks], steps.window_end[looks]
        done = 0
        while done < len(looks):
            tails = self._tails(before[done:], ends[done:])
            upto = done + len(tails)
            if self._by_position:
                starts[done:upto] = self._start_times(tails, ends[done:upto], starts[done:upto])
            self._compare(tails, ends[done:upto], starts[done:upto], bounds[done:upto])
            done = upto

    def _tails(self, before: Int64s, ends: Int64s) -> Int64s:
        """The position of the oldest row at each evaluation, for as many evaluations as go together."""
        together = max(1, int(np.searchsorted(ends, self._head + _AT_ONCE, "right")))
        before, ends = before[:together], ends[:together]
        if self._by_position:
            tails = np.clip(before, self._tail, ends)
        elif before[-1] <= self._oldest:
            tails = np.full(len(before), self._tail, np.int64)
        else:
            tails = self._tails_by_time(before, ends)
        together = max(1, int(np.searchsorted(tails, self._tail + _AT_ONCE, "right")))
        if together < len(tails):
            self._oldest = START
        return tails[:together]

    def _tails_by_time(self, before: Int64s, ends: Int64s) -> Int64s:
        """Reads the oldest rows: all that leave, or as many as go together."""
        tails = np.full(len(before), self._tail, np.int64)
        self._oldest = START
        for view in self._store.scan(self._tail, int(ends[-1])):
            times = view.columns[0].values
            older = np.searchsorted(times, before)
            tails = np.where(older > 0, view.first + older, tails)
            if older[-1] < view.count:
                self._oldest = int(times[older[-1]])
                break
            if older[0] < view.count and view.first - self._tail > _AT_ONCE:
                break
        return np.minimum(tails, ends)

    def _start_times(self, tails: Int64s, ends: Int64s, otherwise: Int64s) -> Int64s:
        """The times of the oldest rows; `otherwise` where the window is empty."""
        there = np.flatnonzero(ends > tails)
        (times,) = self._store.gather(tails[there], [0])
        starts = otherwise.copy()
        starts[there] = times.values
        return starts

    def _compare(self, tails: Int64s, ends: Int64s, starts: Int64s, bounds: Int64s) -> None:
        """Evaluations that have the rows from `tails` up to `ends`, after that of the rows from `_tail` to `_head`."""
        all_tails, all_heads = np.append(self._tail, tails), np.append(self._head, ends)
        last_tail, last_head = int(tails[-1]), int(ends[-1])
        rows = last_tail - self._tail + last_head - self._head
        with self._account.borrowed(rows * self._row_bytes):
            leaving, entering = self._columns(self._tail, last_tail), self._columns(self._head, last_head)
            if self._inserts:
                chosen, evaluation = self._values.entered(all_tails, all_heads, _values(leaving), _values(entering))
                shown = _taken(entering, chosen)
            else:
                self._learn()
                positions, chosen, evaluation = self._values.left(
                    all_tails, all_heads, _values(leaving), _values(entering)
                )
                shown = self._as_they_were(_taken(leaving, chosen), positions)
                self._known_upto = last_head
            if len(chosen):
                batch = self._kept.batch(shown)
                self._outgoing.put(as_chunk(self._names, batch.columns, starts[evaluation], bounds[evaluation]))
            self._values.collect(rows)
            self._kept.leave(leaving)
        self._head, self._tail = last_head, last_tail
        self._store.release(last_tail)

    def _learn(self) -> None:
        """After a restart: the rows of the last evaluation become known."""
        while self._known_upto < self._head:
            begin = max(self._known_upto, self._tail)
            end = min(begin + _AT_ONCE, self._head)
            none, rows = self._columns(begin, begin), self._columns(begin, end)
            tails, heads = np.array([self._tail, self._tail]), np.array([begin, end])
            self._values.left(tails, heads, _values(none), _values(rows))
            self._known_upto = end

    def _columns(self, begin: int, end: int) -> tuple[Argument, ...]:
        return self._store.gather(np.arange(begin, end), range(len(self._kept.specs)))

    def _as_they_were(self, columns: list[Argument], positions: Int64s) -> list[Argument]:
        """Rows with the values of the rows at the positions given. These are equal; only zeros differ in sign."""
        for place in self._floats:
            zeros = np.flatnonzero(columns[place].values == 0)
            if len(zeros):
                (exact,) = self._store.gather(positions[zeros], [place])
                columns[place].values[zeros] = exact.values
        return columns

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"head": self._head}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        self._head = snapshot["head"]


def _values(columns: Sequence[Argument]) -> Values:
    return Values(columns[2:], columns[1])


def _taken(columns: Sequence[Argument], rows: Int64s) -> list[Argument]:
    return [column.at(rows) for column in columns]
