"""Windows that close as a whole, and which row belongs to which window: tumbling windows and sessions.

Each row belongs to exactly one window. A window has an instance number. Windows close in the order of (window_end,
partition key).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.jit import kernel
from penstock.operators.chunk import Chunk
from penstock.operators.groups import GroupTable
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray, power_of_two
from penstock.windows.spec import TimeSlide, first_boundary_after
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

    def next_close(self, time: int) -> int:
        """The time up to which a window stays open that has a row of the time given."""

    def is_due(self, watermark: int) -> bool:
        """Whether a window closes at this watermark."""

    def end(self, last_time: int | None) -> int | None:
        """The watermark that ends a bounded run."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


@component("TumblingWindows")
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
        if self.is_open(first_boundary_after(self._last, slide)):
            # A row of this window has come before, and times do not fall: all rows are of this window.
            return np.full(chunk.rows, self._open[-1])
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

    def next_close(self, time: int) -> int:
        return first_boundary_after(time, self._slide)

    def is_due(self, watermark: int) -> bool:
        return len(self._open) > 0 and bool(self._open[0] <= watermark)

    def is_open(self, end: int) -> bool:
        """Whether the last window that is open ends then."""
        return len(self._open) > 0 and bool(self._open[-1] == end)

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
    times: Int64s,
    partitions: Slots,
    gap: int,
    current: Int64s,
    starts: Int64s,
    lasts: Int64s,
    owners: Slots,
    counts: Int64s,
    opened: int,
    places: Int64s,
    row: int,
) -> tuple[int, int]:
    """From `row` on: `current` is the place of each partition's open session and `counts` how many it has, those that
    are over included. Stops when there is no place left. Returns the rows done and how many sessions there are."""
    while row < len(times):
        partition = partitions[row]
        session = current[partition]
        if session < 0 or times[row] >= lasts[session] + gap:
            if opened == len(starts):
                break
            session = opened
            opened += 1
            current[partition] = session
            counts[partition] += 1
            starts[session] = times[row]
            owners[session] = partition
        lasts[session] = times[row]
        places[row] = session
        row += 1
    return row, opened


@component("SessionWindows")
class SessionWindows:
    """Sessions of the whole stream, or of each partition. Those that have not closed have places 0, 1, ... in arrays
    that are on the `account`, in the order in which they began; `_partitions.counts` is how many each partition has.

    A partition without an open session gives its slot back when the next rows come, not when the session closes: what
    the session shows is then still to be compared with what the partition showed before."""

    def __init__(self, gap: int, partition_by: tuple[Expression, ...], account: Account) -> None:
        self._gap = gap
        self._keys = [compile_expression(key) for key in partition_by]
        self._partitions = GroupTable(tuple(key.type for key in partition_by), account)
        self._current = ChargedArray(account, np.int64, fill=-1)
        self._numbers = ChargedArray(account, np.int64)
        self._starts = ChargedArray(account, np.int64)
        self._lasts = ChargedArray(account, np.int64)
        self._owners = ChargedArray(account, np.int32)
        self._open = 0
        self._made = 0
        self._closed = 0
        self._least_end = FOREVER

    def hold(self, holds: Callable[[int], Bools]) -> None:
        """Partitions that are held keep their slot, also without an open session."""
        self._partitions.hold(holds)

    def assign(self, chunk: Chunk) -> Int64s:
        self._partitions.collect(self._closed)
        self._closed = 0
        keys = [key(chunk.columns) for key in self._keys]
        partitions = self._partitions.assign(keys, chunk.rows, None)
        if self._partitions.capacity > len(self._current):
            self._current.resize(self._partitions.capacity)
        before, row = self._open, 0
        places = np.empty(chunk.rows, np.int64)
        arrays = (self._numbers, self._lasts, self._owners, self._starts)
        while True:
            room = min(map(len, arrays))  # where memory is short, their lengths differ
            row, self._open = _assign_sessions(
                chunk.times,
                partitions,
                self._gap,
                self._current.array,
                self._starts.array[:room],
                self._lasts.array,
                self._owners.array,
                self._partitions.counts,
                self._open,
                places,
                row,
            )
            if row == chunk.rows:
                break
            for array in arrays:
                array.fit(self._open + 1)
        fresh = self._open - before
        self._numbers.array[before : self._open] = np.arange(self._made, self._made + fresh)
        self._made += fresh
        self._least_end = min(self._least_end, int(chunk.times[0]) + self._gap)
        instances: Int64s = self._numbers.array[places]
        return instances

    def close(self, watermark: int) -> Closed:
        if watermark < self._least_end:
            return Closed(*(np.empty(0, np.int64),) * 4)
        ends = self._lasts.array[: self._open] + self._gap
        closes = ends <= watermark
        chosen = np.flatnonzero(closes)
        owners = self._owners.array[chosen]
        chosen = chosen[np.lexsort([self._ranks(owners), ends[chosen]])]
        closed = Closed(
            self._numbers.array[chosen],
            self._starts.array[chosen],
            ends[chosen],
            self._owners.array[chosen].astype(np.int64),
        )
        self._forget(~closes)
        return closed

    def _ranks(self, owners: Slots) -> Int64s:
        """The place of each of these partitions in the order of their keys."""
        distinct, which = np.unique(owners, return_inverse=True)
        rank = np.empty(len(distinct), np.int64)
        rank[np.searchsorted(distinct, self._partitions.sorted(distinct))] = np.arange(len(distinct))
        return rank[which]

    def _forget(self, stays: Bools) -> None:
        """Only these sessions are left; they move up."""
        place = np.cumsum(stays) - 1
        gone = self._owners.array[: self._open][~stays]
        np.subtract.at(self._partitions.counts, gone, 1)
        if len(stays):
            current = self._current.array
            open_now = current >= 0
            moved = np.where(open_now, current, 0)
            current[:] = np.where(open_now & stays[moved], place[moved], -1)
        left = int(stays.sum())
        for array in (self._numbers, self._starts, self._lasts, self._owners):
            array.array[:left] = array.array[: self._open][stays]
            if 4 * left < len(array):
                array.resize(power_of_two(2 * left))
        self._open = left
        self._least_end = int(self._lasts.array[:left].min()) + self._gap if left else FOREVER
        self._closed += len(gone)

    def next_close(self, time: int) -> int:
        return time + max(1, self._gap // 8)

    def is_due(self, watermark: int) -> bool:
        return self._least_end <= watermark

    def end(self, last_time: int | None) -> int | None:
        return int(self._lasts.array[: self._open].max()) + self._gap if self._open else None

    def snapshot(self) -> dict[str, Any]:
        return {
            "partitions": self._partitions.snapshot(),
            "current": self._current.array,
            "numbers": self._numbers.array[: self._open],
            "starts": self._starts.array[: self._open],
            "lasts": self._lasts.array[: self._open],
            "owners": self._owners.array[: self._open],
            "made": self._made,
            "next_close": self._least_end,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._partitions.restore(snapshot["partitions"])
        self._current.set(snapshot["current"])
        self._numbers.set(snapshot["numbers"])
        self._starts.set(snapshot["starts"])
        self._lasts.set(snapshot["lasts"])
        self._owners.set(snapshot["owners"])
        self._open, self._made = len(snapshot["numbers"]), snapshot["made"]
        self._least_end = snapshot["next_close"]
