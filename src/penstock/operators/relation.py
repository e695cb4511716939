"""Windows without aggregation: the relation is the rows of the window themselves.

An evaluation reads the window from its oldest row on; the default of per-event windows, the arriving row, needs no
reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Slots
from penstock.expressions.batch import Batch
from penstock.lang.query import Emit
from penstock.operators.chunk import NO_ROWS, Chunk, joined
from penstock.operators.columns import to_argument, to_data
from penstock.operators.emitter import Evaluations
from penstock.operators.interner import Interner
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.operators.selection import Selection
from penstock.plan.nodes import RelationNode
from penstock.plan.nullability import can_be_null
from penstock.store.fifo import ColumnSpec
from penstock.types import SqlType
from penstock.windows.spec import Rows, Since, TimeSlide
from penstock.windows.steps import Steps, policy_for

_TIME, _KEPT = ColumnSpec("time", np.dtype(np.int64), False), ColumnSpec("kept", np.dtype(np.int8), False)


class WindowRelation(Operator):
    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        self._selection = Selection(node, resources)
        self._emitter = self._selection.emitter
        self._names, self._types = self._selection.names, self._selection.types
        self._kinds = dict(zip(self._names, self._types, strict=True))
        self._interners = [Interner() if kind is SqlType.STRING else None for kind in self._types]
        self._event_row = node.emission.emit is Emit.EVENT_GROUP
        self._drain = node.emission.drain
        self._window = node.window
        self._policy = policy_for(node.window, resources.rows_before(node.input))
        self._by_position = isinstance(node.window.extent, Rows)
        self._lag = 0 if isinstance(node.window.slide, TimeSlide) else 1
        columns = [
            ColumnSpec(n, e.type.storage, can_be_null(e, node.input.schema))
            for n, e in zip(self._names, self._selection.expressions, strict=True)
        ]
        self._store = resources.fifo(name, [_TIME, _KEPT, *columns])
        self._tail = 0

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        results: list[Chunk] = []
        for part, reached in chunk.parts(watermark):
            self._process(part, reached, results)
        return Progress(results, watermark - self._lag)

    def _process(self, chunk: Chunk, watermark: int, results: list[Chunk]) -> None:
        self._policy.observe(chunk.times)
        if isinstance(self._window.extent, Since) and chunk.rows:
            chunk = chunk.slice(int(np.searchsorted(chunk.times, self._window.extent.time)), chunk.rows)
        chunk, values, keep = self._selection.select(chunk)
        first = self._store.head
        if chunk.rows:
            kept = np.ones(chunk.rows, np.int8) if keep is None else keep.astype(np.int8)
            columns = [to_argument(v, t, i) for v, t, i in zip(values, self._types, self._interners, strict=True)]
            for column, interner in zip(columns, self._interners, strict=True):
                if interner is not None:
                    interner.use(_codes(column))
                    interner.sweep()
            self._store.append([Argument(chunk.times, None), Argument(kept, None), *columns])
        done = 0
        while True:
            steps = self._policy.steps(chunk.times[done:], first + done, watermark)
            for k in range(len(steps)):
                self._step(steps, k, first + done, results)
            done += int(steps.add_upto[-1]) if len(steps) else 0
            if steps.complete:
                break

    def _step(self, steps: Steps, k: int, first: int, results: list[Chunk]) -> None:
        end = first + int(steps.add_upto[k])
        self._leave(int(steps.leave_before[k]), end)
        if not steps.evaluates[k]:
            return
        begin = end - 1 if self._event_row else self._tail
        batch = self._read(begin, end)
        start = int(steps.window_start[k])
        if self._by_position and end > self._tail:
            start = int(next(iter(self._store.scan(self._tail, self._tail + 1))).columns[0].values[0])
        one = np.ones(1, np.int64)
        chunk = self._emitter.emit(Evaluations(batch, one * batch.num_rows, one * start, steps.window_end[k : k + 1]))
        if chunk.rows:
            results.append(chunk)

    def _leave(self, before: int, end: int) -> None:
        """Lets rows go up to a position, or up to a time."""
        tail = self._tail
        for view in self._store.scan(tail, end):
            if self._by_position:
                count = min(max(before - view.first, 0), view.count)
            else:
                count = int(np.searchsorted(view.columns[0].values, before))
            for column, interner in zip(view.columns[2:], self._interners, strict=True):
                if interner is not None:
                    interner.release(_codes(column, count))
            tail += count
            if count < view.count:
                break
        if tail > self._tail:
            self._tail = tail
            self._store.release(tail)

    def _read(self, begin: int, end: int) -> pa.RecordBatch:
        parts = []
        for view in self._store.scan(begin, end):
            kept = view.columns[1].values != 0
            data = {
                n: to_data(c.values[kept], None if c.valid is None else c.valid[kept], t, i)
                for n, c, t, i in zip(self._names, view.columns[2:], self._types, self._interners, strict=True)
            }
            parts.append(Batch(self._kinds, data, int(kept.sum())).to_arrow())
        if not parts:
            return pa.RecordBatch.from_arrays([pa.nulls(0, t.arrow) for t in self._types], names=self._names)
        return joined(parts)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._policy.last_boundary(self._drain, last_time)
        return [] if end is None else self.process(Chunk(np.empty(0, np.int64), NO_ROWS), end).chunks

    def snapshot(self) -> dict[str, Any]:
        return {
            "policy": self._policy.snapshot(),
            "emitter": self._emitter.snapshot(),
            "interners": [None if i is None else i.snapshot() for i in self._interners],
            "tail": self._tail,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._policy.restore(snapshot["policy"])
        self._emitter.restore(snapshot["emitter"])
        for interner, saved in zip(self._interners, snapshot["interners"], strict=True):
            if interner is not None:
                interner.restore(saved)
        self._tail = snapshot["tail"]


def _codes(column: Argument, count: int | None = None) -> Slots:
    """The codes of those of the first rows that have a value."""
    values: Slots = column.values[:count]
    return values if column.valid is None else values[column.valid[:count]]
