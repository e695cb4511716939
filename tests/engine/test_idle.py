"""IDLE AFTER: a silent stream no longer holds back the others; what it brings later from before is late."""

from __future__ import annotations

from typing import Any

import penstock as ps

SECOND = 1_000_000
PROGRAM = """
    CREATE STREAM a (t TIMESTAMP, v BIGINT, EVENT TIME t);
    CREATE STREAM b (t TIMESTAMP, v BIGINT, EVENT TIME t LATENESS 2 SECONDS IDLE AFTER 10 SECONDS) LATE INTO aside;
    CREATE QUERY q AS SELECT SUM(v) AS n
        FROM (SELECT * FROM a UNION ALL SELECT * FROM b) [RANGE 5 SECONDS SLIDE 5 SECONDS]
"""


def started() -> tuple[ps.App, ps.testing.TestClock]:
    clock = ps.testing.TestClock()
    return ps.App(PROGRAM, clock=clock), clock


def event(t: int, v: int) -> dict[str, Any]:
    return {"t": t * SECOND, "v": v}


def sums(app: ps.App) -> list[int]:
    return app.results("q").column("n").to_pylist()


def test_a_silent_stream_holds_the_others_back_until_it_is_idle() -> None:
    app, clock = started()
    app.push("b", event(1, 1))
    app.push("a", [event(2, 10), event(12, 20)])
    clock.advance(seconds=9)
    app.push("a", event(13, 1))
    assert sums(app) == []
    clock.advance(seconds=1)
    app.push("a", event(14, 1))  # b has been silent for 10 seconds: the time is a's
    assert sums(app) == [11]
    assert app.metrics.late == 0
    app.close()


def test_a_tick_notices_it_too() -> None:
    app, clock = started()
    app.push("a", [event(2, 10), event(12, 20)])
    clock.advance(seconds=10)
    app.tick()
    assert sums(app) == [10]
    app.close()


def test_an_idle_stream_that_comes_back() -> None:
    """Its events from before are late, the others count; then it holds the time back again."""
    app, clock = started()
    app.push("a", event(12, 1))
    clock.advance(seconds=10)
    app.tick()
    app.push("b", [event(11, 100), event(16, 2)])
    assert app.late("b").column("v").to_pylist() == [100]
    assert app.metrics.late == 1
    app.push("a", event(30, 4))
    assert sums(app) == []  # b stands at 16 - 2
    app.push("b", event(23, 8))
    assert sums(app) == [1, 2]  # [10, 15) and [15, 20)
    app.close()


def test_rows_that_an_idle_stream_holds_are_released_in_order() -> None:
    app, clock = started()
    app.push("b", [event(4, 1), event(3, 1), event(5, 1)])  # 4 and 5 wait for b's own LATENESS
    app.push("a", event(4, 10))
    clock.advance(seconds=10)
    app.push("a", event(20, 1))
    assert sums(app) == [12, 1]
    app.close()


def test_a_stream_without_idle_after_always_counts() -> None:
    app, clock = started()
    app.push("b", [event(1, 1), event(30, 1)])
    clock.advance(seconds=100)
    app.tick()
    assert sums(app) == []
    app.close()
