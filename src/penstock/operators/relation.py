"""Windows without aggregation: the relation is the rows of the window themselves.

An evaluation reads the window from its oldest row on; the default of per-event windows, the arriving row, needs no
reading. For ISTREAM and DSTREAM `relation_changes` reads the rows that enter and leave alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.components import component
from penstock.lang.query import Emit
from penstock.operators.chunk import NO_EVENTS, Chunk, joined
from penstock.operators.cutting import cuts_of
from penstock.operators.emitter import Evaluations
from penstock.operators.kept_rows import KeptRows
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.selection import Selection
from penstock.plan.nodes import RelationNode
from penstock.windows.steps import Steps, policy_for


@component("WindowRelation")
class WindowRelation(Operator):
    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        self._selection = Selection(name, node, resources)
        self._emitter = self._selection.emitter
        self._kept = KeptRows(name, node, self._selection, resources)
        self._event_row = node.emission.emit is Emit.EVENT_GROUP
        self._drain = node.emission.drain
        self._since = node.window.extent.since
        self._policy = policy_for(node.window, resources.rows_before(node.input))
        self._by_position = node.window.extent.limit is not None
        self._lag = node.window.lag
        self._by_range = node.window.extent.length is not None and node.window.time_slide is not None
        self._store = resources.fifo(name, self._kept.specs, [node])
        self._tail = 0
        cuts = cuts_of(node, self._kept.account)
        self._count = None if cuts is None else cuts.count
        self._outgoing = Outgoing()

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        for part, reached in chunk.parts(watermark, self._count):
            self._process(part, reached)
        return Progress(self._outgoing.take(), watermark - self._lag)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def _process(self, chunk: Chunk, watermark: int) -> None:
        self._policy.observe(chunk.times)
        if self._since is not None and chunk.rows:
            chunk = chunk.slice(int(np.searchsorted(chunk.times, self._since)), chunk.rows)
        selected = self._selection.select(chunk)
        chunk = selected.chunk
        first = self._store.head
        if chunk.rows:
            self._store.append(self._kept.take(selected))
        done, silent = 0, False
        while True:
            made = self._outgoing.made
            oldest = self._time_at(self._tail) if self._by_range and self._tail < self._store.head else START
            steps = self._policy.steps(chunk.times[done:], first + done, watermark, silent, oldest)
            self._play(steps, first + done)
            done += int(steps.add_upto[-1]) if len(steps) else 0
            if steps.complete:
                break
            silent = self._outgoing.made == made

    def _play(self, steps: Steps, first: int) -> None:
        """Plays steps; the first row that enters by them is at position `first`."""
        if self._event_row:
            self._show_events(steps, first)
            return
        for k in range(len(steps)):
            self._step(steps, k, first)

    def _show_events(self, steps: Steps, first: int) -> None:
        """The default of windows at every event: the arriving rows, without those that fail WHERE."""
        looks = np.flatnonzero(steps.evaluates)
        ends, starts = first + steps.add_upto[looks], steps.window_start[looks]
        if len(looks):
            if self._by_position:
                (times,) = self._store.gather(np.clip(steps.leave_before[looks], self._tail, ends - 1), [0])
                starts = times.values
            columns = self._store.gather(ends - 1, range(len(self._kept.specs)))
            shown = columns[1].values != 0
            bounds = steps.window_end[looks]
            evaluations = Evaluations(self._kept.batch(columns), None, starts[shown], bounds[shown])
            self._outgoing.put(self._emitter.emit(evaluations))
        if len(steps):
            self._leave(int(steps.leave_before[-1]), first + int(steps.add_upto[-1]))

    def _step(self, steps: Steps, k: int, first: int) -> None:
        end = first + int(steps.add_upto[k])
        self._leave(int(steps.leave_before[k]), end)
        if not steps.evaluates[k]:
            return
        batch = self._read(self._tail, end)
        start = int(steps.window_start[k])
        if self._by_position and end > self._tail:
            start = self._time_at(self._tail)
        one = np.ones(1, np.int64)
        evaluation = Evaluations(batch, one * batch.num_rows, one * start, steps.window_end[k : k + 1])
        self._outgoing.put(self._emitter.emit(evaluation))

    def _time_at(self, position: int) -> int:
        return int(next(iter(self._store.scan(position, position + 1))).columns[0].values[0])

    def _leave(self, before: int, end: int) -> None:
        """Lets rows go up to a position, or up to a time."""
        tail = self._tail
        for view in self._store.scan(tail, end):
            if self._by_position:
                count = min(max(before - view.first, 0), view.count)
            else:
                count = int(np.searchsorted(view.columns[0].values, before))
            self._kept.leave(view.head(count).columns)
            tail += count
            if count < view.count:
                break
        if tail > self._tail:
            self._tail = tail
            self._store.release(tail)

    def _read(self, begin: int, end: int) -> pa.RecordBatch:
        parts = [self._kept.batch(view.columns) for view in self._store.scan(begin, end)]
        return joined(parts) if parts else self._kept.no_rows()

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._policy.last_boundary(self._drain, last_time)
        return [] if end is None else self.process(NO_EVENTS, end).chunks

    def snapshot(self) -> dict[str, Any]:
        return {
            "policy": self._policy.snapshot(),
            "emitter": self._emitter.snapshot(),
            "kept": self._kept.snapshot(),
            "tail": self._tail,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._policy.restore(snapshot["policy"])
        self._emitter.restore(snapshot["emitter"])
        self._kept.restore(snapshot["kept"])
        self._tail = snapshot["tail"]
