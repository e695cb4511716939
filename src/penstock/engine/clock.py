"""The local clock of an app: what ON WALL CLOCK slides, IDLE AFTER and the check for events of the future go by."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """All times are microseconds. `penstock.testing.TestClock` stands still until it is told to move."""

    def now(self) -> int:
        """The time of day, since 1970 UTC; it may be set back."""

    def elapsed(self) -> int:
        """Time passed since some moment; it never goes back."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def elapsed(self) -> int:
        return time.monotonic_ns() // 1000
