"""When the events of a phase are due: scheduled times, made a stretch at a time.

A phase's rate r(t) goes evenly from `rate` to `end_rate`; by the time t, R(t) = ∫r events have been due. Event i of a
deterministic phase is due when R(t) = i; its copies take every copies-th event, so together they send exactly what one
would. A Poisson phase has as R(t) the sums of exponential gaps of mean 1 (`copies` for a copy's own, independent
process): this gives the right process for any r.

Invariants:
1. Times are whole microseconds since the phase began, never go back, and are `number` modulo `total` (see `Share`).
2. The times depend on the phase and the share alone, not on how many are asked for at once.

Why: docs/decisions/copies-by-time.md
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Arrivals, Phase

Times = NDArray[np.int64]

_SECOND = 1_000_000


class Ramp:
    """A rate that changes evenly over a duration, and stays as it is then: how many events are due by when."""

    def __init__(self, rate: float, end_rate: float, duration_us: int | None) -> None:
        self._rate = rate
        self._end = end_rate
        self._seconds = math.inf if duration_us is None else duration_us / _SECOND
        self._bend = 0.0 if rate == end_rate or not self._seconds else (end_rate - rate) / self._seconds
        self.total = math.inf if duration_us is None else (rate + end_rate) / 2 * self._seconds

    def due(self, us: float) -> float:
        """How many events are due by a time since the start."""
        seconds = min(us / _SECOND, self._seconds)
        return self._rate * seconds + self._bend * seconds * seconds / 2 if seconds > 0 else 0.0

    def when(self, events: NDArray[np.float64]) -> NDArray[np.float64]:
        """The microseconds by which so many events are due; not beyond the duration."""
        if not self._bend:
            return events * _SECOND / self._rate
        root = np.sqrt(np.maximum(self._rate**2 + 2 * self._bend * events, 0.0))
        # This form of the solution has no difference of two large numbers.
        divisor = self._rate + root
        return np.divide(2 * _SECOND * events, divisor, out=np.zeros_like(events), where=divisor > 0)


class Schedule:
    """The times at which one copy of a driver has to send the events of a phase."""

    def __init__(self, phase: Phase, place: int, share: Share) -> None:
        rate = phase.event_rate if phase.rate == "max" else phase.rate
        assert rate is not None
        self.paced = phase.rate != "max"
        self.length_us = phase.duration
        if phase.events is not None and self.paced:
            self.length_us = round(phase.events * _SECOND / rate) if rate else 0
        # A closed loop ends by the clock, whatever the times of its events are.
        self._ramp = Ramp(
            rate, rate if phase.end_rate is None else phase.end_rate, phase.duration if self.paced else None
        )
        self._share = share
        self._given = 0
        self._gaps = share.random(phase.seed, place) if phase.arrivals is Arrivals.POISSON else None
        self._reached = 0.0
        self._events = self._count(phase.events)

    @property
    def events(self) -> int | None:
        """How many events this copy has, where that is known."""
        return None if math.isinf(self._events) else int(self._events)

    def _count(self, events: int | None) -> float:
        """How many events this copy has at most."""
        if events is None and not math.isinf(self._ramp.total):
            if self._gaps is not None:
                return math.inf
            # An event that is due at the very end belongs to the next phase.
            events = math.ceil(self._ramp.total * (1 - 1e-12))
        return math.inf if events is None else max(0, -(-(events - self._share.copy) // self._share.copies))

    def take(self, count: int) -> Times:
        """The next `count` times; fewer when the phase ends, none after that."""
        count = int(min(count, self._events - self._given))
        if count <= 0:
            return np.empty(0, np.int64)
        due = self._poisson(count) if self._gaps is not None else self._even(count)
        self._given += len(due)
        whole = np.floor(self._ramp.when(due)).astype(np.int64)
        return whole // self._share.total * self._share.total + self._share.number

    def due(self, us: float) -> float:
        """How many events of this copy are due by a time since the phase began; of a Poisson process on average."""
        return min(self._ramp.due(us) / self._share.copies, self._events)

    def _even(self, count: int) -> NDArray[np.float64]:
        return (self._share.copy + self._share.copies * np.arange(self._given, self._given + count)).astype(np.float64)

    def _poisson(self, count: int) -> NDArray[np.float64]:
        assert self._gaps is not None
        sums = self._gaps.standard_exponential(count)
        sums[0] += self._reached
        np.cumsum(sums, out=sums)
        self._reached = float(sums[-1])
        sums *= self._share.copies
        within = int(np.searchsorted(sums, self._ramp.total))
        if within < count:
            self._events = self._given + within
        return sums[:within]
