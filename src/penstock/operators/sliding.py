"""Aggregation over sliding windows: each row is stored once, read once more when it leaves, and never copied.

The window's policy says where evaluations take place and what has left by then; the store gives the rows that leave,
block by block; the aggregation plays both. A step that uses up a block is played in two parts: the rest of the block
without the evaluation, then the next block with it.

Invariants:
1. The cursor stands at the oldest row of the window; everything before it has left every state.
2. Row positions count the rows that entered the store; for windows that count rows before WHERE, that is every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Int64s
from penstock.expressions import tree
from penstock.jit import kernel
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, Played, Run
from penstock.operators.chunk import CHUNK_ROWS, Chunk, concat
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.intake import Intake, Taken
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode, Emission
from penstock.store.fifo import ColumnSpec
from penstock.windows.spec import EveryEvent, Rows, Since
from penstock.windows.steps import Steps, policy_for

_TIME, _SLOT = ColumnSpec("time", np.dtype(np.int64), False), ColumnSpec("slot", np.dtype(np.int32), False)


@kernel
def _leave_by_time(times: Int64s, before: Int64s) -> Int64s:
    """How many of the rows have left by each step, up to the first step by which all have; both run upwards."""
    left = np.empty(len(before), np.int64)
    at = 0
    for k in range(len(before)):
        while at < len(times) and times[at] < before[k]:
            at += 1
        left[k] = at
        if at == len(times):
            return left[: k + 1]
    return left


@kernel
def _leave_by_position(first: int, count: int, before: Int64s) -> Int64s:
    """The same for windows of so many rows."""
    left = np.empty(len(before), np.int64)
    for k in range(len(before)):
        left[k] = min(max(before[k] - first, 0), count)
        if left[k] == count:
            return left[: k + 1]
    return left


class SlidingAggregate(Operator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._window = node.window
        self._filter_first = node.filter_first
        self._intake = Intake(node.where, node.group_by, node.states, node.input.schema, resources.reject)
        self._aggregation = Aggregation(name, self._intake, node.states, node.answers, resources)
        self._emitter = Emitter(node.emission, node.schema, resources.reject)
        self._drain = node.emission.drain
        self._event_group = node.emission.emit is Emit.EVENT_GROUP
        self._shown = shown_columns(node.emission)
        self._schema = node.schema.arrow
        self._policy = policy_for(node.window)
        self._by_position = isinstance(node.window.extent, Rows)
        self._lag = 1 if isinstance(node.window.slide, EveryEvent) else 0
        self._rows = 0
        self._store = None
        if not isinstance(node.window.extent, Since):
            self._store = resources.fifo(name, [_TIME, _SLOT, *self._intake.column_specs])
            self._cursor = self._store.cursor()

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        results = []
        for start in range(0, max(1, chunk.rows), CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, chunk.rows)
            part = chunk if stop - start == chunk.rows else chunk.slice(start, stop)
            # Rows later in the chunk may still enter windows that the final watermark closes.
            reached = watermark if stop == chunk.rows else min(watermark, int(part.times[-1]))
            results += self._process(part, reached)
        return Progress(concat(results, self._schema), watermark - self._lag)

    def _process(self, chunk: Chunk, watermark: int) -> list[Chunk]:
        self._policy.observe(chunk.times)
        if isinstance(self._window.extent, Since) and chunk.rows:
            chunk = chunk.slice(int(np.searchsorted(chunk.times, self._window.extent.time)), chunk.rows)
        keep = self._intake.passes(chunk)
        if keep is not None and self._filter_first:
            if not keep.all():
                chunk = chunk.filter(keep)
            keep = None
        taken = self._intake.take(chunk, keep)
        first = self._rows
        self._rows += chunk.rows
        if self._store is not None and chunk.rows:
            self._store.append([Argument(chunk.times, None), Argument(taken.slots, None), *taken.columns])
        added = Run(first, taken.slots, taken.columns)
        results: list[Chunk] = []
        done = 0
        while True:
            steps = self._policy.steps(chunk.times[done:], first + done, watermark)
            self._play(added.part(done, chunk.rows) if done else added, steps, taken, done, results)
            done += int(steps.add_upto[-1]) if len(steps) else 0
            if steps.complete:
                break
        if self._store is not None:
            self._store.release(self._cursor.position)
        self._intake.groups.collect()
        return results

    def _play(self, added: Run, steps: Steps, taken: Taken, offset: int, results: list[Chunk]) -> None:
        """Plays the steps, cut where the rows that leave run out of their block."""
        at = entered = 0
        while at < len(steps):
            removed, left, used_up = self._leaving(steps.leave_before[at:])
            part = slice(at, at + len(left))
            evaluates = steps.evaluates[part]
            if used_up:  # the last of these steps goes on with the next block; its evaluation waits for that
                evaluates = evaluates.copy()
                evaluates[-1] = False
            add_upto = steps.add_upto[part] - entered
            events = None
            if self._event_group:
                events = np.where(evaluates, taken.slots[offset - 1 + steps.add_upto[part]], np.int32(-1))
            starts = self._window_starts(steps.window_start[part], left)
            done, played = self._aggregation.play(added, removed, add_upto, left, evaluates, events)
            shown = np.flatnonzero(evaluates[:done])
            if len(shown):
                own = None if events is None else offset - 1 + steps.add_upto[part][events >= 0]
                self._emit(played, shown, starts[shown], steps.window_end[part][shown], taken, own, results)
            if done:
                entered += int(add_upto[done - 1])
                added = added.part(int(add_upto[done - 1]), len(added.slots))
                self._leave(removed, int(left[done - 1]))
            at += done - 1 if used_up and done == len(left) else done

    def _leave(self, removed: Run, count: int) -> None:
        if count:
            if any(self._intake.interners):
                leaving = removed.part(0, count)
                self._intake.leave(leaving.slots, leaving.columns)
            self._cursor.advance(count)

    def _leaving(self, before: Int64s) -> tuple[Run, Int64s, bool]:
        """The rows of the oldest block, how many have left by each step, and whether the last step uses them up
        while others follow; steps after that one are left out."""
        if self._store is None or self._cursor.position == self._store.head:
            return Run(0, np.empty(0, np.int32), self._intake.no_columns()), np.zeros(len(before), np.int64), False
        view = self._cursor.view(self._store.head)
        self._view_times = view.columns[0].values
        if self._by_position:
            left = _leave_by_position(view.first, view.count, before)
        else:
            left = _leave_by_time(self._view_times, before)
        if view.first + view.count == self._store.head and len(left) < len(before):
            left = np.concatenate([left, np.full(len(before) - len(left), view.count)])
        used_up = view.first + view.count < self._store.head and int(left[-1]) == view.count
        return Run(view.first, view.columns[1].values, tuple(view.columns[2:])), left, used_up

    def _window_starts(self, starts: Int64s, left: Int64s) -> Int64s:
        if not self._by_position:
            return starts
        # The oldest row that is still in; where the block is used up, the step comes again with the next one.
        return self._view_times[np.minimum(left, len(self._view_times) - 1)]

    def _emit(
        self,
        played: Played,
        shown: Int64s,
        starts: Int64s,
        ends: Int64s,
        taken: Taken,
        own: Int64s | None,
        results: list[Chunk],
    ) -> None:
        """Turns the evaluations among the played steps into results; `own` are the rows of the events themselves."""
        if own is not None:
            keys = [_taken_rows(key, own) for key in taken.keys]
        else:
            keys = self._intake.groups.keys(played.slots)
        columns = {f"#{i}": column for i, column in enumerate(keys)}
        columns |= {f"${i}": column for i, column in played.columns.items()}
        batch = evaluation_rows(columns, self._shown, len(played.slots))
        chunk = self._emitter.emit(Evaluations(batch, played.upto[shown], starts, ends, failed=played.failed))
        if chunk.rows:
            results.append(chunk)

    def finish(self, last_time: int | None = None) -> Chunk:
        end = self._policy.last_boundary(self._drain, last_time)
        if end is None:
            return concat([], self._schema)
        none = Chunk(np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=pa.schema([])))
        return self.process(none, end).chunk

    def snapshot(self) -> dict[str, Any]:
        self._aggregation.account()
        saved = {
            "policy": self._policy.snapshot(),
            "aggregation": self._aggregation.snapshot(),
            "emitter": self._emitter.snapshot(),
            "rows": self._rows,
        }
        if self._store is not None:
            saved["cursor"] = self._cursor.position
        return saved

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._policy.restore(snapshot["policy"])
        self._aggregation.restore(snapshot["aggregation"])
        self._emitter.restore(snapshot["emitter"])
        self._rows = snapshot["rows"]
        if self._store is not None:
            self._cursor = self._store.cursor(snapshot["cursor"])


def shown_columns(emission: Emission) -> list[str]:
    """The columns of an evaluation that the select list, HAVING or ORDER BY reads."""
    expressions = [o.expression for o in emission.outputs] + [o.expression for o in emission.order_by]
    if emission.having is not None:
        expressions.append(emission.having)
    return sorted(set().union(*(tree.columns(e) for e in expressions)))


def evaluation_rows(columns: dict[str, pa.Array], shown: list[str], rows: int) -> pa.RecordBatch:
    """The shown columns as a batch; a batch of literals alone still needs its number of rows."""
    if not shown:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
    return pa.RecordBatch.from_arrays([columns[name] for name in shown], names=shown)


def _taken_rows(column: pa.Array, rows: Int64s) -> pa.Array:
    """The given rows, without a copy where they are consecutive."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return column.slice(int(rows[0]), len(rows))
    return column.take(pa.array(rows))
