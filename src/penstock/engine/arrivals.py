"""The times of events that are not put in order: each has the instant at which it is taken.

Invariant: times grow strictly over all streams of an app, through restarts and whatever the local clock does. So the
order of taking is the total order, and no two events of different streams ever tie.

Why: docs/decisions/taking-order-is-a-time.md
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Int64s
from penstock.engine.clock import Clock
from penstock.operators.reorder import START


class ArrivalClock:
    """All later events have a time of at least `reached`.

    >>> from penstock.testing import TestClock
    >>> arrivals = ArrivalClock(TestClock(100))
    >>> arrivals.take(3), arrivals.take(1), arrivals.reached
    (array([100, 101, 102]), array([103]), 104)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reached = START

    def take(self, events: int) -> Int64s:
        """The times of so many events that are taken now."""
        first = max(self.reached, self._clock.now())
        self.reached = first + events
        return np.arange(first, first + events, dtype=np.int64)

    def advance(self) -> int:
        """Time passes without events; returns how far it has come."""
        self.reached = max(self.reached, self._clock.now())
        return self.reached
