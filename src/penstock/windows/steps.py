"""The steps of a sliding window: which rows have entered, which have left and where an evaluation takes place.

A policy is fed the ordered times of the rows that enter and the watermark. It answers with steps; step k says that
the rows up to `add_upto[k]` of the run are in, that older rows leave up to `leave_before[k]` (a time for RANGE, a
position for ROWS), and that, if `evaluates[k]`, the window `[window_start[k], window_end[k])` is evaluated.

Invariants:
1. `add_upto`, `leave_before` and `window_end` never fall from step to step, nor from run to run.
2. A boundary is closed once, when the watermark has reached it (contract, rule 2). For ON WALL CLOCK the watermark
   that the policy is given is the local clock; boundaries then begin where the clock stands when the first row comes.
3. Boundaries whose window is empty are passed over, so that a long silence costs nothing; the first empty one after
   a window with rows is kept, for the rows that vanish there are DSTREAM's.
4. A window whose rows do not change gives the same result at each boundary from the second on. If it does not change
   for `LONG` boundaries, one boundary is tried: if it gives no result, the others are skipped.

Why: docs/decisions/empty-boundaries.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.jit import kernel
from penstock.windows.spec import (
    Extent,
    Range,
    RateSized,
    Rows,
    RowsOf,
    Session,
    Since,
    WindowSpec,
    first_boundary_after,
    last_boundary_upto,
)

FOREVER = 1 << 62
"""Longer than any window: the extent of windows that rows never leave by time."""

_ONE = np.ones(1, np.int64)
_TRUE = np.ones(1, np.bool_)

STEPS_AT_ONCE = 8192
"""How many boundaries one answer may hold; the rest comes with the next call."""

LONG = 1024
"""So many boundaries at which a window stays as it is are worth a question."""


@dataclass(slots=True)
class Steps:
    """One entry per step; when not `complete`, the policy wants to be asked again with the rows that are left."""

    add_upto: Int64s
    leave_before: Int64s
    evaluates: Bools
    window_start: Int64s
    window_end: Int64s
    complete: bool = True

    def __len__(self) -> int:
        return len(self.add_upto)


@kernel
def _close_boundaries(
    times: Int64s, previous: int, closed: int, watermark: int, slide: int, extent: int, steady: int, limit: int
) -> tuple[Int64s, Int64s, int, int, bool]:
    """The boundaries after `closed` and up to the watermark: (boundary, rows before it), where to go on, and whether
    these are all. Stops before a long stretch of boundaries up to `steady`, until when no row leaves, and the next
    row."""
    bounds = np.empty(limit, np.int64)
    upto = np.empty(limit, np.int64)
    count = i = 0
    n = len(times)
    complete = False
    while count < limit:
        boundary = closed + slide
        while i < n and times[i] < boundary:
            previous = times[i]
            i += 1
        if boundary > watermark:
            complete = True
            break
        if boundary - extent > previous + slide:
            # The window is empty here and was at the boundary before: go to the one before the next row's.
            target = watermark if i >= n else min(times[i], watermark)
            closed += (target - closed) // slide * slide
            continue
        bounds[count] = boundary
        upto[count] = i
        count += 1
        closed = boundary
        next_change = watermark if i >= n else min(times[i], watermark)
        if (min(next_change, steady) - closed) // slide >= LONG:
            break
    return bounds[:count], upto[:count], previous, closed, complete


@component("BoundaryPolicy")
class BoundaryPolicy:
    """Time slides: an evaluation at each boundary, over RANGE, ROWS or SINCE."""

    def __init__(self, spec: WindowSpec) -> None:
        assert spec.time_slide is not None
        self.slide = spec.time_slide
        self.extent = spec.extent
        self.when_full = spec.when_full
        self.first_time: int | None = None
        self.stream_last = 0
        self.last_time = 0
        self.closed: int | None = None
        self._tried_after: int | None = None

    def observe(self, times: Int64s) -> None:
        """Takes note of all rows of the stream, also of those that WHERE keeps out of the window."""
        if len(times) == 0:
            return
        if self.first_time is None:
            self.first_time = int(times[0])
            self.last_time = -FOREVER
        self.stream_last = int(times[-1])

    def steps(
        self, times: Int64s, first_position: int, watermark: int, silent: bool = False, oldest: int = -FOREVER
    ) -> Steps:
        """The steps of a run whose first row has the given position in the store. `silent` says that nothing came of
        the last steps of this call, not even rejects; no row in a RANGE window is older than `oldest`."""
        if self.first_time is None:
            return _no_steps()
        if self.closed is None:
            self.closed = last_boundary_upto(watermark if self.slide.wall_clock else self.first_time, self.slide)
        length = self.extent.length
        extent = FOREVER if length is None else length
        steady = FOREVER if length is None else oldest + length
        if self.when_full and length is not None:
            full_at = self.first_time + length
            steady = steady if self.closed >= full_at else min(steady, full_at - 1)
        limit = STEPS_AT_ONCE
        unchanged = self._unchanged(times, watermark, steady)
        if unchanged >= LONG:
            if self._tried_after != self.closed:
                self._tried_after = self.closed + self.slide.micros
                limit = 1
            elif silent:
                self.closed += unchanged * self.slide.micros
            else:
                steady = -FOREVER  # something comes of every boundary
        bounds, upto, last, closed, complete = _close_boundaries(
            times, self.last_time, self.closed, watermark, self.slide.micros, extent, steady, limit
        )
        self.closed = int(closed)
        evaluates = np.ones(len(bounds) + complete, np.bool_)
        if complete:  # the rows after the last boundary enter without an evaluation
            self.last_time = int(times[-1]) if len(times) else self.last_time
            bounds = np.append(bounds, bounds[-1] if len(bounds) else 0)
            upto = np.append(upto, len(times))
            evaluates[-1] = False
        else:
            self.last_time = int(last)
        return self._steps(bounds, upto, evaluates, first_position, complete)

    def _unchanged(self, times: Int64s, watermark: int, steady: int) -> int:
        """At how many boundaries from here on the window is what it was at the last one."""
        assert self.closed is not None
        if self.last_time >= self.closed:
            return 0
        next_change = min(watermark, int(times[0])) if len(times) else watermark
        return (min(next_change, steady) - self.closed) // self.slide.micros

    def _steps(self, bounds: Int64s, upto: Int64s, evaluates: Bools, first_position: int, complete: bool) -> Steps:
        leave, start = _tails(self.extent, bounds, first_position + upto, at_events=False)
        if self.when_full:
            evaluates &= _is_full(self.extent, leave, start, self.first_time)
        if complete:  # nothing leaves at the last step, for no boundary was reached
            leave[-1] = leave[-2] if len(leave) > 1 else -FOREVER
        return Steps(upto, leave, evaluates, start, bounds, complete)

    def waits_for(self, watermark: int) -> bool:
        """Whether time alone reaches a boundary when it has come so far."""
        if self.first_time is None:
            return False
        return self.closed is None or watermark >= self.closed + self.slide.micros

    def last_boundary(self, drain: bool, last_time: int | None = None) -> int | None:
        """The watermark at which a bounded run ends: the first boundary after the stream's last row, or, with DRAIN,
        the first whose window is empty. `last_time` is that row's time where others have seen it."""
        if self.first_time is None:
            return None
        end = first_boundary_after(self.stream_last if last_time is None else last_time, self.slide)
        if drain and self.extent.length is not None:
            end = max(end, first_boundary_after(self.last_time + self.extent.length, self.slide))
        return end

    def snapshot(self) -> dict[str, Any]:
        return {
            "first_time": self.first_time,
            "stream_last": self.stream_last,
            "last_time": self.last_time,
            "closed": self.closed,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.first_time, self.stream_last = snapshot["first_time"], snapshot["stream_last"]
        self.last_time, self.closed = snapshot["last_time"], snapshot["closed"]


@component("EventPolicy")
class EventPolicy:
    """Count slides and per-event windows: an evaluation at every m-th row."""

    def __init__(self, spec: WindowSpec, rows_before: int = 0) -> None:
        assert spec.slide.events is not None
        self.every = spec.slide.events
        self.extent = spec.extent
        self._length = spec.extent.length
        self.when_full = spec.when_full
        self.first_time: int | None = None
        self.rows = rows_before

    def observe(self, times: Int64s) -> None:
        """Takes note of all rows of the stream, also of those that WHERE keeps out of the window."""
        if self.first_time is None and len(times):
            self.first_time = int(times[0])

    def steps(
        self, times: Int64s, first_position: int, watermark: int, silent: bool = False, oldest: int = -FOREVER
    ) -> Steps:
        n = len(times)
        if n == 0:
            return _no_steps()
        if n == 1 and self.every == 1 and self._length is not None and not self.when_full:
            self.rows += 1
            return self._one_step(times, self._length)
        if self.every == 1:
            upto = np.arange(1, n + 1)
            evaluates = np.ones(n, np.bool_)
            end = times
        else:
            last = np.arange((-self.rows - 1) % self.every, n, self.every)
            evaluates = np.ones(len(last), np.bool_)
            upto = last + 1
            if len(last) == 0 or upto[-1] < n:
                last = np.append(last, n - 1)
                upto = np.append(upto, n)
                evaluates = np.append(evaluates, False)
            end = times[last]
        self.rows += n
        leave, start = _tails(self.extent, end, first_position + upto, at_events=True)
        if self.when_full:
            evaluates &= _is_full(self.extent, leave, start, self.first_time)
        return Steps(upto, leave, evaluates, start, end)

    def pass_rows(self, count: int) -> None:
        """So many rows have been evaluated without being asked for here: each is a step of its own."""
        self.rows += count

    def _one_step(self, times: Int64s, extent: int) -> Steps:
        """The step of a single event, as above without the machinery for many."""
        return Steps(_ONE, times - (extent - 1), _TRUE, times - extent if extent > 1 else times, times)

    def waits_for(self, watermark: int) -> bool:
        """Whether time alone can make an evaluation: only rows do."""
        return False

    def last_boundary(self, drain: bool, last_time: int | None = None) -> int | None:
        return None

    def snapshot(self) -> dict[str, Any]:
        return {"first_time": self.first_time, "rows": self.rows}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.first_time, self.rows = snapshot["first_time"], snapshot["rows"]


Policy = BoundaryPolicy | EventPolicy


def policy_for(spec: WindowSpec, rows_before: int = 0) -> Policy:
    """`rows_before`: rows of the stream that came before this policy's first; every m-th counts them too."""
    return EventPolicy(spec, rows_before) if spec.time_slide is None else BoundaryPolicy(spec)


def _tails(extent: Extent, ends: Int64s, heads: Int64s, *, at_events: bool) -> tuple[Int64s, Int64s]:
    """Before what rows have left and where windows begin, at evaluations of windows with these ends. `heads` are the
    positions after the last rows that are in."""
    match extent:
        case Range(micros):
            if not at_events:
                leave = ends - micros
                return leave, leave
            # (e.t - r, e.t] in whole microseconds; [NOW] is the range of one microsecond.
            return ends - (micros - 1), ends - micros if micros > 1 else ends
        case Rows(count):
            return heads - count, np.zeros(len(ends), np.int64)
        case RowsOf():  # each partition knows its own number, and which rows leave
            return np.full(len(ends), -FOREVER, np.int64), np.zeros(len(ends), np.int64)
        case Since(time):
            return np.full(len(ends), -FOREVER, np.int64), np.full(len(ends), time, np.int64)
        case Session() | RateSized():
            raise AssertionError("sessions and windows of joins know their own tails")
        case other:
            assert_never(other)


def tails_at_events(extent: Range, times: Int64s) -> tuple[Int64s, Int64s]:
    """The times before which rows have left, and where windows begin, at events of these times."""
    return _tails(extent, times, times, at_events=True)


def _is_full(extent: Extent, leave: Int64s, start: Int64s, first_time: int | None) -> Bools:
    """At which evaluations a window of time or rows is full: it reaches back to the first row of the stream."""
    if extent.length is None:
        return leave >= 0
    assert first_time is not None
    return start >= first_time


def _no_steps() -> Steps:
    none = np.empty(0, np.int64)
    return Steps(none, none, np.empty(0, np.bool_), none, none)
