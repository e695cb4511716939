"""Aggregation over windows that close as a whole: tumbling windows and sessions.

Each row belongs to exactly one window, so nothing needs to be stored and nothing leaves: a group is (window, key),
and when its window closes it is shown once and forgotten. What tells the two apart is only how windows are named
(`closing_windows`).

Invariants:
1. A window has an instance number; the instance is the first word of its groups' keys.
2. Windows close in the order of (window_end, partition key, group key).
3. Windows close after each part of a chunk, and the parts are cut so (`cutting`) that it is a matter of the stream
   alone how many windows are open.
4. Rows that come one by one, and on which nothing can fail, may wait for each other (`_waiting`): they all lie in one
   tumbling window, and are added together before anything looks at the groups.

Why: docs/decisions/closing-windows.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Row, columns_of_tuples, row_getter
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Column, Expression, walk
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
from penstock.plan.reads import reads_of
from penstock.types import SqlType
from penstock.windows.spec import Session
from penstock.windows.steps import FOREVER

_WAITING, _LEAST_WAITING = 256, 8
"""So many single rows are added together at most; fewer are not worth it."""

_WAITING_SHARE = 1024
"""Rows that wait take no more than this part of the memory."""

_ROW_BYTES, _VALUE_BYTES = 192, 40
"""What a row that waits takes, and each of its values besides."""


@component("ClosingAggregate")
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
        self._nothing = Progress([], -FOREVER)
        self._reads = _safe_reads(node)
        """The columns that are read, if rows may wait: none is a text and nothing can fail."""
        self._get = row_getter(self._reads or {"": SqlType.NULL})
        self._waiting: list[tuple[int, tuple[Any, ...]]] = []
        self._waiting_account = resources.account(f"{name}: rows that are added together")
        self._row_bytes = _ROW_BYTES + _VALUE_BYTES * len(self._reads or ())
        self._most_waiting = min(_WAITING, self._waiting_account.total // _WAITING_SHARE // self._row_bytes)
        if self._most_waiting < _LEAST_WAITING:
            self._reads = None
        self._waiting_until = -FOREVER
        """The end of the window in which the rows that wait lie."""

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if isinstance(chunk.columns, Row) and self._reads is not None:
            time = chunk.times.item(0)
            if self._may_wait(time, watermark):
                self._waiting.append((time, self._get(chunk.columns.values)))
                if self._nothing.watermark != watermark:
                    self._nothing = Progress([], watermark)
                return self._nothing
        elif not chunk.rows and not self.waits_for(port, watermark):
            return Progress([], watermark)
        self._add_waiting()
        for part, reached in chunk.parts(watermark, self._cuts.count):
            if part.rows:
                self._add(part)
            self._close(reached)
        return Progress(self._take(), watermark)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def waits_for(self, port: int, watermark: int) -> bool:
        return self._windows.is_due(watermark)

    def _may_wait(self, time: int, watermark: int) -> bool:
        """Whether a row of this time may wait for more of them. The first row of a window does not, so that the window
        is open."""
        if not self._waiting:
            assert isinstance(self._windows, TumblingWindows), "rows of sessions do not wait"
            self._waiting_until = self._windows.next_close(time)
            return (
                self._windows.is_open(self._waiting_until)
                and watermark < self._waiting_until
                and self._waiting_account.try_resize(self._most_waiting * self._row_bytes)
            )
        return time < self._waiting_until > watermark and len(self._waiting) < self._most_waiting

    def _add_waiting(self) -> None:
        if not self._waiting:
            return
        assert self._reads is not None
        waiting, self._waiting = self._waiting, []
        times = np.array([time for time, _ in waiting], np.int64)
        self._add(Chunk(times, columns_of_tuples([values for _, values in waiting], self._reads)))
        self._waiting_account.resize(0)

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
        self._add_waiting()
        end = self._windows.end(last_time)
        if end is not None:
            self._close(end)
        return self._take()

    def snapshot(self) -> dict[str, Any]:
        self._add_waiting()
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


def _safe_reads(node: AggregateNode) -> dict[str, SqlType] | None:
    """The columns that an aggregation over tumbling windows reads, if it can fail on no row and keeps no texts."""
    if node.window.extent.closes or any(state.user is not None for state in node.states):
        return None
    read: list[Expression] = [*node.group_by, *(read.expression for read in reads_of(node.states))]
    if node.where is not None:
        read.append(node.where)
    columns = {c.name: c.type for expression in read for c in walk(expression) if isinstance(c, Column)}
    is_safe = all(map(is_total, read)) and SqlType.STRING not in columns.values()
    return columns if is_safe and columns else None
