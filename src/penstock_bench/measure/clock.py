"""The run's clock: nanoseconds since the epoch that never go back, the same in all processes of a run.

It is the machine's monotonic clock plus an offset that the controller takes once, so that a step of the wall clock in
the middle of a run does not change a latency. Processes on other machines take their own wall clock (milliseconds).
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    offset_ns: int

    @classmethod
    def now_set(cls) -> Clock:
        """A clock that agrees with the wall clock now."""
        return cls(time.time_ns() - time.monotonic_ns())

    def ns(self) -> int:
        return time.monotonic_ns() + self.offset_ns
