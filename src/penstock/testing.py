"""For tests of applications: a clock that moves only when it is told to.

>>> import penstock as ps
>>> clock = ps.testing.TestClock(0)
>>> app = ps.App('''
...     CREATE STREAM calls (t TIMESTAMP, EVENT TIME t);
...     SELECT COUNT(*) AS calls FROM calls [RANGE 1 MINUTE SLIDE 10 SECONDS ON WALL CLOCK];
... ''', clock=clock)
>>> app.push("calls", {"t": 3_000_000})
>>> clock.advance(seconds=10)
>>> app.tick()
>>> app.results("q1").column("calls").to_pylist()
[1]
>>> app.close()
"""

from __future__ import annotations


class TestClock:
    """Stands at `now`, in microseconds since 1970 UTC, until `advance` or `set`. Pass it to an app as `clock=`."""

    __test__ = False  # not a test case, whatever its name

    def __init__(self, now: int = 0) -> None:
        self._now = now
        self._elapsed = 0

    def now(self) -> int:
        return self._now

    def elapsed(self) -> int:
        return self._elapsed

    def advance(self, seconds: float = 0, *, micros: int = 0) -> None:
        """Time passes."""
        passed = round(seconds * 1_000_000) + micros
        assert passed >= 0, "time does not go back; `set` sets the clock"
        self._now += passed
        self._elapsed += passed

    def set(self, now: int) -> None:
        """Sets the clock, forwards or back; no time passes."""
        self._now = now
