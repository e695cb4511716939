"""When the windows of a family are looked at: the boundaries of all of them, as arrays.

Each window follows the rules of `windows.steps`: an evaluation at every boundary that the watermark has reached, and
boundaries of empty windows are passed over but for the first. Rows arrive pane by pane: those of a pane after all
boundaries up to the pane's start.

Invariants:
1. `closed[w]` is the last boundary of window w that was closed. A window is *asleep* when it was empty there already;
   it wakes with the next row, at the last boundary before it.
2. No boundary is due before `_next`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.plan.panes import PanedWindow
from penstock.windows.spec import TimeSlide, first_boundary_after
from penstock.windows.steps import FOREVER


class Due(NamedTuple):
    """Windows that reach a boundary together, and those of them that are evaluated there (WHEN FULL may wait)."""

    boundary: int
    windows: Int64s
    evaluated: Int64s


@component("PaneClock")
class PaneClock:
    def __init__(self, windows: Sequence[PanedWindow]) -> None:
        self.extents = np.array([window.extent for window in windows], np.int64)
        self._slides = np.array([window.slide for window in windows], np.int64)
        self._offsets = np.array([window.offset for window in windows], np.int64)
        self._when_full = np.array([window.when_full for window in windows], np.bool_)
        self._drain = np.array([window.drain for window in windows], np.bool_)
        self._closed = np.full(len(windows), -FOREVER, np.int64)
        self._first_time: int | None = None
        self._stream_last = 0
        self._last: int | None = None
        self._next = FOREVER

    def observe(self, times: Int64s) -> None:
        """Takes note of all rows of the stream, also of those that WHERE keeps out of the windows."""
        if len(times):
            if self._first_time is None:
                self._first_time = int(times[0])
            self._stream_last = int(times[-1])

    def arrive(self, first: int, last: int) -> None:
        """Rows of one pane enter, from this time to that one."""
        asleep = self._asleep()
        if asleep.any():
            reached = (first - self._offsets) // self._slides * self._slides + self._offsets
            self._closed = np.where(asleep, np.maximum(self._closed, reached), self._closed)
        self._last = last
        self._next = int((self._closed + self._slides).min())

    def _asleep(self) -> Any:
        if self._last is None:
            return np.ones(len(self._closed), np.bool_)
        return self._closed - self.extents > self._last

    def due(self, watermark: int, only: int | None = None) -> Due | None:
        """The windows, or the one window, at the next boundary up to the watermark, which is closed with this."""
        if watermark < self._next:
            return None
        following = np.where(self._asleep(), FOREVER, self._closed + self._slides)
        if only is None:
            boundary = int(following.min())
            self._next = boundary
            windows = np.flatnonzero(following == boundary)
        else:
            boundary = int(following[only])
            windows = np.array([only])
        if boundary > watermark or boundary == FOREVER:
            return None
        self._closed[windows] = boundary
        assert self._first_time is not None
        speaks = ~self._when_full[windows] | (boundary - self.extents[windows] >= self._first_time)
        return Due(boundary, windows, windows[speaks])

    def last_boundary(self, window: int, last_time: int | None) -> int | None:
        """The watermark at which a bounded run ends for a window (as in `windows.steps`)."""
        if self._first_time is None:
            return None
        slide = TimeSlide(int(self._slides[window]), int(self._offsets[window]))
        end = first_boundary_after(self._stream_last if last_time is None else last_time, slide)
        if self._drain[window] and self._last is not None:
            end = max(end, first_boundary_after(self._last + int(self.extents[window]), slide))
        return end

    def keep(self, windows: Int64s) -> None:
        """Only these windows are left."""
        self.extents, self._slides, self._offsets = self.extents[windows], self._slides[windows], self._offsets[windows]
        self._when_full, self._drain = self._when_full[windows], self._drain[windows]
        self._closed = self._closed[windows]

    def snapshot(self) -> dict[str, Any]:
        return {
            "closed": self._closed,
            "first_time": self._first_time,
            "stream_last": self._stream_last,
            "last": self._last,
            "next": self._next,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._closed, self._next = snapshot["closed"], snapshot["next"]
        self._first_time, self._stream_last = snapshot["first_time"], snapshot["stream_last"]
        self._last = snapshot["last"]
