"""Windows that close as a whole, and which row belongs to which window: what they have in common, and tumbling windows.

Each row belongs to exactly one window. A window has an instance number. Windows close in the order of (window_end,
partition key). Sessions are in `session_windows`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.operators.chunk import Chunk
from penstock.windows.spec import TimeSlide, first_boundary_after


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

    @property
    def nbytes(self) -> int:
        """What is on an account for them."""

    def bytes_for_group(self, groups: int) -> int:
        """What they take, about, for each of so many groups."""

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

    @property
    def nbytes(self) -> int:
        return 0

    def bytes_for_group(self, groups: int) -> int:
        return 0

    def snapshot(self) -> dict[str, Any]:
        return {"first": self._first, "last": self._last, "open": self._open}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._first, self._last, self._open = snapshot["first"], snapshot["last"], snapshot["open"]
