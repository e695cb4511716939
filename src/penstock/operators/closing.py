"""Aggregation over windows that close as a whole: tumbling windows and sessions.

Each row belongs to exactly one window, so nothing needs to be stored and nothing leaves: a group is (window, key),
and when its window closes it is shown once and forgotten. What tells the two apart is only who names the windows.

Invariants:
1. A window has an instance number; the instance is the first word of its groups' keys.
2. Windows close in the order of (window_end, partition key, group key).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.jit import kernel
from penstock.operators.aggregation import Aggregation, Run
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.intake import Intake
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.operators.shown import Shown
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import Range, Session, TimeSlide, first_boundary_after
from penstock.windows.steps import FOREVER


class Closed(NamedTuple):
    """Windows that close, in order: their instances and extents, and the partition of each."""

    instances: Int64s
    starts: Int64s
    ends: Int64s
    partitions: Int64s


class Windows(Protocol):
    def assign(self, chunk: Chunk) -> Int64s:
        """The instance of each row's window."""

    def close(self, watermark: int) -> Closed: ...

    def end(self, last_time: int | None) -> int | None:
        """The watermark that ends a bounded run."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


class TumblingWindows:
    """The instance of a tumbling window is its boundary."""

    def __init__(self, slide: TimeSlide, when_full: bool) -> None:
        self._slide = slide
        self._when_full = when_full
        self._first: int | None = None
        self._last = 0
        self._open = np.empty(0, np.int64)

    def assign(self, chunk: Chunk) -> Int64s:
        if self._first is None:
            self._first = int(chunk.times[0])
        self._last = int(chunk.times[-1])
        slide = self._slide
        bounds = (chunk.times - slide.offset) // slide.micros * slide.micros + (slide.micros + slide.offset)
        fresh = bounds[np.flatnonzero(np.diff(bounds, prepend=bounds[0] - 1))]
        self._open = np.concatenate(
            [self._open, fresh[1:] if len(self._open) and self._open[-1] == fresh[0] else fresh]
        )
        return bounds

    def close(self, watermark: int) -> Closed:
        count = int(np.searchsorted(self._open, watermark, "right"))
        bounds, self._open = self._open[:count], self._open[count:]
        starts = bounds - self._slide.micros
        if self._when_full and self._first is not None:
            bounds, starts = bounds[starts >= self._first], starts[starts >= self._first]
        return Closed(bounds, starts, bounds, np.zeros(len(bounds), np.int64))

    def end(self, last_time: int | None) -> int | None:
        if self._first is None:
            return None
        return first_boundary_after(self._last if last_time is None else last_time, self._slide)

    def snapshot(self) -> dict[str, Any]:
        return {"first": self._first, "last": self._last, "open": self._open}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._first, self._last, self._open = snapshot["first"], snapshot["last"], snapshot["open"]


@kernel
def _assign_sessions(
    times: Int64s, partitions: Slots, gap: int, current: Int64s, starts: Int64s, lasts: Int64s, made: int, owners: Slots
) -> tuple[Int64s, int]:
    """`current` is the open session of each partition; sessions made here get the numbers from `made` on."""
    instances = np.empty(len(times), np.int64)
    for row in range(len(times)):
        partition = partitions[row]
        session = current[partition]
        if session < 0 or times[row] >= lasts[session] + gap:
            session = made
            made += 1
            current[partition] = session
            starts[session] = times[row]
            owners[session] = partition
        lasts[session] = times[row]
        instances[row] = session
    return instances, made


class SessionWindows:
    """Sessions of the whole stream, or of each partition. `_numbers` are those of the sessions that are open, in the
    order in which they began; `_partitions.counts` is how many each partition has open.

    A partition without an open session gives its slot back when the next rows come, not when the session closes: what
    the session shows is then still to be compared with what the partition showed before."""

    def __init__(self, gap: int, partition_by: tuple[Expression, ...]) -> None:
        self._gap = gap
        self._keys = [compile_expression(key) for key in partition_by]
        self._partitions = GroupTable(tuple(key.type for key in partition_by))
        self._current = np.full(16, -1, np.int64)
        self._numbers = np.empty(0, np.int64)
        self._starts = np.empty(0, np.int64)
        self._lasts = np.empty(0, np.int64)
        self._owners = np.empty(0, np.int32)
        self._made = 0
        self._closed = 0
        self._next_close = FOREVER

    def hold(self, holds: Callable[[int], Bools]) -> None:
        """Partitions that are held keep their slot, also without an open session."""
        self._partitions.hold(holds)

    def assign(self, chunk: Chunk) -> Int64s:
        self._partitions.collect(self._closed)
        self._closed = 0
        keys = [key(chunk.columns) for key in self._keys]
        partitions = self._partitions.assign(keys, chunk.rows, None)
        if self._partitions.capacity > len(self._current):
            more = self._partitions.capacity - len(self._current)
            self._current = np.concatenate([self._current, np.full(more, -1, np.int64)])
        open_count = len(self._numbers)
        room = open_count + chunk.rows
        starts, lasts, owners = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
        starts[:open_count], lasts[:open_count], owners[:open_count] = self._starts, self._lasts, self._owners
        places, count = _assign_sessions(
            chunk.times, partitions, self._gap, self._current, starts, lasts, open_count, owners
        )
        fresh = np.arange(self._made, self._made + count - open_count)
        self._made += count - open_count
        self._numbers = np.concatenate([self._numbers, fresh])
        self._starts, self._lasts, self._owners = starts[:count], lasts[:count], owners[:count]
        np.add.at(self._partitions.counts, owners[open_count:count], 1)
        self._next_close = min(self._next_close, int(chunk.times[0]) + self._gap)
        return self._numbers[places]

    def close(self, watermark: int) -> Closed:
        if watermark < self._next_close:
            return Closed(*(np.empty(0, np.int64),) * 4)
        ends = self._lasts + self._gap
        closes = ends <= watermark
        rank = np.zeros(self._partitions.capacity, np.int64)
        order = self._partitions.order()
        rank[order] = np.arange(len(order))
        chosen = np.flatnonzero(closes)
        chosen = chosen[np.lexsort([rank[self._owners[chosen]], ends[chosen]])]
        closed = Closed(
            self._numbers[chosen], self._starts[chosen], ends[chosen], self._owners[chosen].astype(np.int64)
        )
        self._forget(~closes)
        return closed

    def _forget(self, stays: Any) -> None:
        place = np.cumsum(stays) - 1
        gone = self._owners[~stays]
        np.subtract.at(self._partitions.counts, gone, 1)
        current = self._current
        open_now = current >= 0
        moved = np.where(open_now, current, 0)
        self._current = np.where(open_now & stays[moved], place[moved], -1) if len(stays) else current
        self._numbers, self._starts = self._numbers[stays], self._starts[stays]
        self._lasts, self._owners = self._lasts[stays], self._owners[stays]
        self._next_close = int(self._lasts.min()) + self._gap if len(self._lasts) else FOREVER
        self._closed += len(gone)

    def end(self, last_time: int | None) -> int | None:
        return int(self._lasts.max()) + self._gap if len(self._lasts) else None

    def snapshot(self) -> dict[str, Any]:
        return {
            "partitions": self._partitions.snapshot(),
            "current": self._current,
            "numbers": self._numbers,
            "starts": self._starts,
            "lasts": self._lasts,
            "owners": self._owners,
            "made": self._made,
            "next_close": self._next_close,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._partitions.restore(snapshot["partitions"])
        self._current, self._numbers = snapshot["current"], snapshot["numbers"]
        self._starts, self._lasts = snapshot["starts"], snapshot["lasts"]
        self._owners, self._made = snapshot["owners"], snapshot["made"]
        self._next_close = snapshot["next_close"]


class ClosingAggregate(Operator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._filter_first = node.filter_first
        self._intake = Intake(
            node.where, node.group_by, node.states, node.input.schema, resources.reject, with_instances=True
        )
        self._aggregation = Aggregation(name, self._intake, node.states, resources)
        self._emitter = Emitter(node.emission, node.schema, resources.reject)
        self._shown = Shown(node)
        self._windows: Windows
        if isinstance(node.window.extent, Session):
            self._windows = SessionWindows(node.window.extent.gap, node.partition_by)
            self._windows.hold(self._emitter.remembers)
        else:
            assert isinstance(node.window.extent, Range)
            assert isinstance(node.window.slide, TimeSlide)
            self._windows = TumblingWindows(node.window.slide, node.window.when_full)
        self._rows = 0

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        for part, _ in chunk.parts(watermark):
            if part.rows:
                self._add(part)
        return Progress(self._close(watermark), watermark)

    def _add(self, chunk: Chunk) -> None:
        instances = self._windows.assign(chunk)
        keep = self._intake.passes(chunk)
        if keep is not None and self._filter_first:
            chunk, instances, keep = chunk.filter(keep), instances[keep], None
        if chunk.rows:
            taken = self._intake.take(chunk, keep, pa.array(instances))
            self._aggregation.add(Run(self._rows, taken.slots, taken.columns))
            self._rows += chunk.rows

    def _close(self, watermark: int) -> list[Chunk]:
        closed = self._windows.close(watermark)
        if len(closed.instances) == 0:
            return []
        groups = self._intake.groups
        order = groups.order()
        order = order[groups.counts[order] > 0]
        instance = groups.words(order)
        by_number = np.argsort(closed.instances)
        found = np.searchsorted(closed.instances[by_number], instance)
        found = np.minimum(found, len(by_number) - 1)
        closes = closed.instances[by_number][found] == instance
        rank = by_number[found[closes]]
        sort = np.argsort(rank, kind="stable")
        slots = order[closes][sort]
        upto = np.searchsorted(rank[sort], np.arange(len(closed.instances)), "right")
        chunks = self._show(slots, upto, closed)
        # A tumbling window that WHEN FULL keeps silent is forgotten with those before the watermark.
        done = order[instance <= closed.instances[-1]] if isinstance(self._windows, TumblingWindows) else slots
        self._aggregation.reset(done)
        groups.collect(len(done))
        return chunks

    def _show(self, slots: Slots, upto: Int64s, closed: Closed) -> list[Chunk]:
        """What comes out of windows that close: window k has the groups slots[upto[k-1]:upto[k]]."""
        played = self._aggregation.evaluate(slots, upto)
        batch = self._shown.rows(self._intake.groups.keys(slots)[1:], played)
        failed = played.failed(self._shown.answers)
        chunk = self._emitter.emit(Evaluations(batch, upto, closed.starts, closed.ends, closed.partitions, failed))
        return [chunk] if chunk.rows else []

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._windows.end(last_time)
        return [] if end is None else self._close(end)

    def snapshot(self) -> dict[str, Any]:
        self._aggregation.account()
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
