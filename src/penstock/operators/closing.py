"""Aggregation over windows that close as a whole: tumbling windows and sessions.

Each row belongs to exactly one window, so nothing needs to be stored and nothing leaves: a group is (window, key),
and when its window closes it is shown once and forgotten. What tells the two apart is only how windows are named
(`closing_windows`).

Invariants:
1. A window has an instance number; the instance is the first word of its groups' keys.
2. Windows close in the order of (window_end, partition key, group key).
3. Windows close after each part of a chunk, and the parts are cut so (`cutting`) that it is a matter of the stream
   alone how many windows are open.

Why: docs/decisions/closing-windows.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots
from penstock.operators.aggregation import Aggregation, RowRun
from penstock.operators.chunk import Chunk
from penstock.operators.closing_windows import Closed, SessionWindows, TumblingWindows, Windows
from penstock.operators.cutting import Cuts
from penstock.operators.emitted_rows import EmittedRows
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.intake import Intake
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import Session


class ClosingAggregate(Operator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._filter_first = node.filter_first
        account = resources.account(f"{name}: groups and strings")
        self._intake = Intake(
            node.where, node.group_by, node.states, node.input.schema, resources.reject, account, with_instances=True
        )
        self._aggregation = Aggregation(name, self._intake, node.states, resources)
        compared = resources.account(f"{name}: rows that the next are compared with")
        self._emitter = Emitter(node.emission, node.schema, resources.reject, compared=compared)
        self._shown = EmittedRows(node)
        self._windows: Windows
        if isinstance(node.window.extent, Session):
            sessions = resources.account(f"{name}: sessions")
            self._windows = SessionWindows(node.window.extent.gap, node.partition_by, sessions)
            self._windows.hold(self._emitter.remembers)
        else:
            assert node.window.time_slide is not None, "tumbling windows have a slide of time"
            self._windows = TumblingWindows(node.window.time_slide, node.window.when_full)
        self._cuts = Cuts(account, self._windows.next_close)
        self._outgoing = Outgoing()
        self._rows = 0

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if not chunk.rows and not self._windows.is_due(watermark):
            return Progress([], watermark)
        for part, reached in chunk.parts(watermark, self._cuts.count):
            if part.rows:
                self._add(part)
            self._close(reached)
        return Progress(self._take(), watermark)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def waits_for(self, port: int, watermark: int) -> bool:
        return self._windows.is_due(watermark)

    def _take(self) -> list[Chunk]:
        """The results of a call."""
        return self._outgoing.take()

    def _add(self, chunk: Chunk) -> None:
        instances = self._windows.assign(chunk)
        keep = self._intake.passes(chunk)
        if keep is not None and self._filter_first:
            chunk, instances, keep = chunk.filter(keep), instances[keep], None
        if chunk.rows:
            taken = self._intake.take(chunk, keep, pa.array(instances))
            self._aggregation.add(RowRun(self._rows, taken.slots, taken.columns))
            self._rows += chunk.rows

    def _close(self, watermark: int) -> None:
        closed = self._windows.close(watermark)
        if len(closed.instances) == 0:
            return
        groups = self._intake.groups
        alive = np.flatnonzero(groups.counts).astype(np.int32)
        instance = groups.words(alive)
        by_number = np.argsort(closed.instances)
        found = np.searchsorted(closed.instances[by_number], instance)
        found = np.minimum(found, len(by_number) - 1)
        closes = closed.instances[by_number][found] == instance
        slots = groups.sorted(alive[closes])
        rank = by_number[np.searchsorted(closed.instances[by_number], groups.words(slots))]
        sort = np.argsort(rank, kind="stable")
        slots = slots[sort]
        upto = np.searchsorted(rank[sort], np.arange(len(closed.instances)), "right")
        self._show(slots, upto, closed)
        # A tumbling window that WHEN FULL keeps silent is forgotten with those before the watermark.
        done = alive[instance <= closed.instances[-1]] if isinstance(self._windows, TumblingWindows) else slots
        self._aggregation.reset(done)
        self._intake.close_windows(closed.instances)
        groups.collect(len(done))

    def _show(self, slots: Slots, upto: Int64s, closed: Closed) -> None:
        """What comes out of windows that close: window k has the groups slots[upto[k-1]:upto[k]]."""
        played = self._aggregation.evaluate(slots, upto)
        batch = self._shown.rows(self._intake.groups.keys(slots)[1:], played)
        failed = played.failed(self._shown.answers)
        shown = Evaluations(batch, upto, closed.starts, closed.ends, closed.partitions, failed)
        self._outgoing.put(self._emitter.emit(shown))

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._windows.end(last_time)
        if end is not None:
            self._close(end)
        return self._take()

    def snapshot(self) -> dict[str, Any]:
        return {
            "windows": self._windows.snapshot(),
            "aggregation": self._aggregation.snapshot(),
            "emitter": self._emitter.snapshot(),
            "rows": self._rows,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._windows.restore(snapshot["windows"])
        self._aggregation.restore(snapshot["aggregation"])
        self._emitter.restore(snapshot["emitter"])
        self._rows = snapshot["rows"]
