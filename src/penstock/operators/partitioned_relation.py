"""Windows per partition, and sessions, without aggregation: the relation is the partition's or the session's rows.

Rows leave in the order of their partition, not of the stream, so they are kept in memory, counted against the budget:
batches of evaluated select lists, and for each partition (or session) which rows of which batch it has.

Invariant: `_held` is the number of bytes of the batches that some row of some window still needs.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Int64s
from penstock.expressions.evaluate import compile_expression
from penstock.lang.query import Emit
from penstock.operators.chunk import NO_ROWS, Chunk, from_bytes, joined, to_bytes
from penstock.operators.closing import SessionWindows
from penstock.operators.emitter import Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.operators.selection import Selection
from penstock.plan.nodes import RelationNode
from penstock.windows.spec import CountSlide, Rows, Session, TimeSlide
from penstock.windows.steps import BoundaryPolicy


class _Batch:
    """Rows that came together; `left` counts those that some window still has."""

    __slots__ = ("left", "rows")

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self.left = rows.num_rows


class _Row(NamedTuple):
    time: int
    batch: _Batch
    place: int
    shown: bool


class RowPool:
    """The rows of each window, oldest first; windows are numbered by who names them."""

    def __init__(self, name: str, selection: Selection, resources: Resources) -> None:
        self._account = resources.account(f"{name}: rows of partitions")
        self._schema = pa.schema([pa.field(n, t.arrow) for n, t in zip(selection.names, selection.types, strict=True)])
        self._selection = selection
        self._held = 0
        self.windows: dict[int, deque[_Row]] = {}

    def add(self, chunk: Chunk) -> list[_Row]:
        """Takes rows in, without giving them to a window yet."""
        selected = self._selection.select(chunk)
        assert selected.chunk.rows == chunk.rows, "these windows count rows before WHERE"
        columns = [v.values.cast(f.type) for v, f in zip(selected.values, self._schema, strict=True)]
        batch = _Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._held += batch.rows.nbytes
        self._account.resize(self._held)
        shown = [True] * chunk.rows if selected.keep is None else selected.keep.tolist()
        return [_Row(time, batch, i, shown[i]) for i, time in enumerate(chunk.times.tolist())]

    def leave(self, row: _Row) -> None:
        row.batch.left -= 1
        if row.batch.left == 0:
            self._held -= row.batch.rows.nbytes
            self._account.resize(self._held)

    def read(self, rows: list[_Row]) -> pa.RecordBatch:
        """The values of rows, in their order."""
        pieces = []
        at = 0
        while at < len(rows):
            batch = rows[at].batch
            upto = at
            while upto < len(rows) and rows[upto].batch is batch:
                upto += 1
            pieces.append(batch.rows.take(pa.array([row.place for row in rows[at:upto]], pa.int64())))
            at = upto
        return joined(pieces) if pieces else pa.RecordBatch.from_pylist([], schema=self._schema)

    def snapshot(self) -> dict[str, Any]:
        rows = [row for window in self.windows.values() for row in window]
        return {
            "windows": np.array([number for number, window in self.windows.items() for _ in window], np.int64),
            "times": np.array([row.time for row in rows], np.int64),
            "shown": np.array([row.shown for row in rows], np.bool_),
            "rows": to_bytes(self.read(rows)),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        batch = _Batch(from_bytes(snapshot["rows"]))
        self._held = batch.rows.nbytes if batch.left else 0
        self._account.resize(self._held)
        self.windows = {}
        columns = (snapshot[name].tolist() for name in ("windows", "times", "shown"))
        for index, (number, time, shown) in enumerate(zip(*columns, strict=True)):
            self.windows.setdefault(number, deque()).append(_Row(time, batch, index, shown))


class PartitionedRelation(Operator):
    """[PARTITION BY k ROWS n ...]: the last n rows of each partition."""

    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        assert isinstance(node.window.extent, Rows)
        self._limit = node.window.extent.count
        self._when_full = node.window.when_full
        slide = node.window.slide
        self._every = slide.count if isinstance(slide, CountSlide) else 1
        self._policy = BoundaryPolicy(node.window) if isinstance(slide, TimeSlide) else None
        self._event_row = node.emission.emit is Emit.EVENT_GROUP
        self._drain = node.emission.drain
        selection = Selection(node, resources)
        self._emitter = selection.emitter
        self._pool = RowPool(name, selection, resources)
        self._keys = [compile_expression(key) for key in node.partition_by]
        self._partitions = GroupTable(tuple(key.type for key in node.partition_by))
        self._seen: dict[int, int] = {}

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        results: list[Chunk] = []
        if self._policy is None:
            for part, _ in chunk.parts(watermark):
                if part.rows:
                    self._enter(part, results)
            return Progress(results, watermark - 1)
        self._policy.observe(chunk.times)
        done = 0
        while True:
            steps = self._policy.steps(chunk.times[done:], 0, watermark)
            begin = 0
            for k in range(len(steps)):
                end = int(steps.add_upto[k])
                if begin < end:
                    self._enter(chunk.slice(done + begin, done + end), None)
                begin = end
                if len(self._pool.windows) and k < len(steps) - steps.complete:
                    self._evaluate(self._partitions.order(), int(steps.window_end[k]), results)
            done += begin
            if steps.complete:
                return Progress(results, watermark)

    def _enter(self, chunk: Chunk, results: list[Chunk] | None) -> None:
        """Rows enter one by one; each may be an evaluation of its partition, if results are asked for."""
        partitions = self._partitions.assign([key(chunk.columns) for key in self._keys], chunk.rows, None)
        for row, partition in zip(self._pool.add(chunk), partitions.tolist(), strict=True):
            window = self._pool.windows.setdefault(partition, deque())
            window.append(row)
            seen = self._seen[partition] = self._seen.get(partition, 0) + 1
            if len(window) > self._limit:
                self._pool.leave(window.popleft())
            if results is not None and seen % self._every == 0:
                self._evaluate(np.array([partition]), row.time, results)

    def _evaluate(self, partitions: Any, end: int, results: list[Chunk]) -> None:
        """One evaluation per partition, in the order given."""
        rows: list[_Row] = []
        upto, starts, owners = [], [], []
        for partition in partitions.tolist():
            window = self._pool.windows[partition]
            if self._when_full and self._seen[partition] < self._limit:
                continue
            rows += [row for row in ([window[-1]] if self._event_row else window) if row.shown]
            upto.append(len(rows))
            starts.append(window[0].time)
            owners.append(partition)
        ends = np.full(len(owners), end, np.int64)
        evaluations = Evaluations(self._pool.read(rows), _ints(upto), _ints(starts), ends, _ints(owners))
        chunk = self._emitter.emit(evaluations)
        if chunk.rows:
            results.append(chunk)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = None if self._policy is None else self._policy.last_boundary(self._drain, last_time)
        return [] if end is None else self.process(Chunk(np.empty(0, np.int64), NO_ROWS), end).chunks

    def snapshot(self) -> dict[str, Any]:
        return {
            "pool": self._pool.snapshot(),
            "emitter": self._emitter.snapshot(),
            "partitions": self._partitions.snapshot(),
            "policy": None if self._policy is None else self._policy.snapshot(),
            "seen": {"partitions": _ints(self._seen), "rows": _ints(self._seen.values())},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._pool.restore(snapshot["pool"])
        self._emitter.restore(snapshot["emitter"])
        self._partitions.restore(snapshot["partitions"])
        if self._policy is not None:
            self._policy.restore(snapshot["policy"])
        seen = snapshot["seen"]
        self._seen = dict(zip(seen["partitions"].tolist(), seen["rows"].tolist(), strict=True))


class SessionRelation(Operator):
    """[SESSION gap]: the rows of each session, when it closes."""

    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        assert isinstance(node.window.extent, Session)
        selection = Selection(node, resources)
        self._emitter = selection.emitter
        self._pool = RowPool(name, selection, resources)
        self._sessions = SessionWindows(node.window.extent.gap, node.partition_by)

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        for part, _ in chunk.parts(watermark):
            if part.rows:
                instances = self._sessions.assign(part).tolist()
                for row, instance in zip(self._pool.add(part), instances, strict=True):
                    self._pool.windows.setdefault(instance, deque()).append(row)
        return Progress(self._close(watermark), watermark)

    def _close(self, watermark: int) -> list[Chunk]:
        closed = self._sessions.close(watermark)
        if len(closed.instances) == 0:
            return []
        windows = [self._pool.windows.pop(instance) for instance in closed.instances.tolist()]
        shown = [[row for row in window if row.shown] for window in windows]
        upto = np.cumsum([len(rows) for rows in shown], dtype=np.int64)
        batch = self._pool.read([row for rows in shown for row in rows])
        for window in windows:
            for row in window:
                self._pool.leave(row)
        chunk = self._emitter.emit(Evaluations(batch, upto, closed.starts, closed.ends, closed.partitions))
        return [chunk] if chunk.rows else []

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._sessions.end(last_time)
        return [] if end is None else self._close(end)

    def snapshot(self) -> dict[str, Any]:
        return {
            "pool": self._pool.snapshot(),
            "emitter": self._emitter.snapshot(),
            "sessions": self._sessions.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._pool.restore(snapshot["pool"])
        self._emitter.restore(snapshot["emitter"])
        self._sessions.restore(snapshot["sessions"])


def _ints(values: Any) -> Int64s:
    return np.array(list(values), np.int64)
