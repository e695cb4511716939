"""Event time moves on without an event: by `advance`, by a heartbeat, and past the last events of idle streams."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InputError, PenstockError, QueryError

SECOND = 1_000_000
COUNTS = """
    CREATE STREAM s (t BIGINT, x BIGINT, EVENT TIME t UNIT SECONDS {more}) LATE INTO late_s;
    CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(x) AS x FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]
"""
CARS = """
    CREATE STREAM reports (t BIGINT, car INT, segment INT, EVENT TIME t UNIT SECONDS {more}) {options} LATE INTO missed;
    CREATE TABLE visits (segment INT PRIMARY KEY, cars BIGINT);
    ON reports UPSERT INTO visits (segment, cars) VALUES (reports.segment, COALESCE(cars, 0) + 1);
    INSERT INTO entries SELECT car, segment FROM reports WHERE car > 0;
    CREATE QUERY tolls AS SELECT e.car, cars FROM entries AS e, visits WHERE e.segment = visits.segment;
"""
"""A row of `entries` sees all reports of its time, so the last instant waits for the next one."""


def counts(app: ps.App) -> list[int]:
    return app.results("q").column("n").to_pylist()


def tolls(app: ps.App) -> list[tuple[int, int]]:
    return [(row["car"], row["cars"]) for row in app.results("tolls").to_pylist()]


def report(t: int, car: int) -> dict[str, int]:
    return {"t": t, "car": car, "segment": 1}


# app.advance


@pytest.mark.parametrize("lateness", ["", "LATENESS 4 SECONDS"])
def test_windows_close_as_if_an_event_had_come(lateness: str) -> None:
    with ps.App(COUNTS.format(more=lateness)) as app:
        app.push("s", [{"t": 3, "x": 1}, {"t": 5, "x": 1}])
        app.advance("s", 10 * SECOND - 1)
        assert counts(app) == []
        app.advance("s", 10 * SECOND)
        assert counts(app) == [2]
        app.advance("s", 10 * SECOND)
        app.advance("s", 2 * SECOND)  # it does not go back
        app.push("s", [{"t": 9, "x": 1}, {"t": 10, "x": 1}])
        assert app.late("s").column("t").to_pylist() == [9]  # below what was said; 10 is in time
        app.finish()
        assert counts(app) == [1]


def test_a_bounded_run_ends_after_its_last_event() -> None:
    """Nothing is emitted for the LATENESS that an advance leaves room for."""
    with ps.App("""CREATE STREAM s (t BIGINT, EVENT TIME t UNIT SECONDS LATENESS 1 HOUR);
        CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 10 SECONDS]""") as app:
        app.push("s", {"t": 3})
        app.advance("s", 25 * SECOND)
        assert counts(app) == [1, 1]
        app.finish()
        assert counts(app) == []


@pytest.mark.parametrize(
    "time",
    [
        10 * SECOND,
        np.int64(10 * SECOND),
        datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 10),
        pd.Timestamp("1970-01-01 01:00:10+01:00"),
        np.datetime64(10, "s"),
        pa.scalar(10 * SECOND * 1000, pa.timestamp("ns")),
    ],
)
def test_times_in_any_form(time: Any) -> None:
    with ps.App(COUNTS.format(more="")) as app:
        app.push("s", {"t": 9, "x": 1})
        app.advance("S", time)
        assert counts(app) == [1]


@pytest.mark.parametrize("time", ["10:00", None, 1.5, True, float("nan"), pd.NaT, 10**18])
def test_what_is_no_time_is_refused_and_the_app_goes_on(time: Any) -> None:
    with ps.App(COUNTS.format(more="")) as app:
        with pytest.raises(InputError, match="microseconds since 1970 UTC"):
            app.advance("s", time)
        app.push("s", [{"t": 9, "x": 1}, {"t": 10, "x": 1}])
        assert counts(app) == [1]


def test_where_it_cannot_be() -> None:
    clock = ps.testing.TestClock(0)
    with ps.App(COUNTS.format(more=""), clock=clock, max_ahead=60) as app:
        with pytest.raises(InputError, match="further ahead of the clock than max_ahead"):
            app.advance("s", 61 * SECOND)
        app.advance("s", 60 * SECOND)
        with pytest.raises(PenstockError, match="no stream"):
            app.advance("q", 0)
        app.finish()
        with pytest.raises(InputError, match="finished"):
            app.advance("s", 70 * SECOND)
    text = "CREATE STREAM s (t TIMESTAMP, ARRIVAL ORDER t); SELECT COUNT(*) AS n FROM s [ROWS 1]"
    with ps.App(text) as app, pytest.raises(InputError, match=r"ARRIVAL ORDER.*tick"):
        app.advance("s", 0)


def test_it_comes_after_events_that_linger_or_are_buffered() -> None:
    with ps.App(COUNTS.format(more=""), linger=100.0) as app:
        app.push("s", {"t": 9, "x": 1})
        app.advance("s", 20 * SECOND)
        assert counts(app) == [1]
        assert app.metrics.late == 0
    with ps.App(COUNTS.format(more=""), dispatch="fcfs") as app:
        app.offer("s", {"t": 9, "x": 1})
        app.advance("s", 20 * SECOND)
        assert counts(app) == [1]
        assert app.metrics.late == 0


def test_a_silent_side_of_a_join_is_advanced() -> None:
    with ps.App("""
        CREATE STREAM a (t BIGINT, k BIGINT, EVENT TIME t UNIT SECONDS);
        CREATE STREAM b (t BIGINT, k BIGINT, EVENT TIME t UNIT SECONDS);
        CREATE QUERY q AS SELECT x.k FROM a [RANGE 1 MINUTE] AS x LEFT JOIN b [RANGE 1 MINUTE] AS y ON x.k = y.k
    """) as app:
        app.push("a", [{"t": 1, "k": 1}, {"t": 2, "k": 2}])
        app.advance("b", 1 * SECOND)
        assert app.results("q").column("k").to_pylist() == [1]
        app.advance("b", 2 * SECOND)
        assert app.results("q").column("k").to_pylist() == [2]


def test_it_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    text = COUNTS.format(more="LATENESS 4 SECONDS")
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", {"t": 7, "x": 1})
        app.advance("s", 9 * SECOND)
        app.checkpoint()
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", [{"t": 8, "x": 10}, {"t": 9, "x": 100}])
        assert app.late("s").column("x").to_pylist() == [10]
        app.finish()
        assert app.results("q").column("x").to_pylist() == [101]


def test_a_window_that_changes_its_form_meanwhile() -> None:
    for strategy in ("window", "panes"):
        with ps.App(COUNTS.format(more="").replace("SLIDE 10", "SLIDE 5"), strategy=strategy) as app:
            app.push("s", {"t": 3, "x": 1})
            app.advance("s", 12 * SECOND)
            assert counts(app) == [1, 1]
            app.advance("s", 100 * SECOND)
            assert counts(app) == []


# IDLE AFTER


def test_the_last_instant_of_an_idle_stream_is_over() -> None:
    clock = ps.testing.TestClock()
    with ps.App(CARS.format(more="IDLE AFTER 5 SECONDS", options=""), clock=clock) as app:
        app.push("reports", [report(1, 1), report(1, 2)])
        assert tolls(app) == []  # another report at 1 would count for both
        clock.advance(seconds=4)
        app.tick()
        assert tolls(app) == []
        clock.advance(seconds=1)
        app.tick()
        assert tolls(app) == [(1, 2), (2, 2)]
        for _ in range(3):
            clock.advance(seconds=10)
            app.tick()
        app.push("reports", [report(1, 3), report(2, 4)])
        assert app.late("reports").column("t").to_pylist() == [1]
        app.tick()
        assert tolls(app) == []
        clock.advance(seconds=5)
        app.tick()
        assert tolls(app) == [(4, 3)]


def test_an_idle_stream_no_longer_waits_for_its_lateness() -> None:
    clock = ps.testing.TestClock()
    with ps.App(CARS.format(more="LATENESS 1 HOUR IDLE AFTER 5 SECONDS", options=""), clock=clock) as app:
        app.push("reports", [report(7, 1), report(3, 2)])
        clock.advance(seconds=5)
        app.tick()
        assert tolls(app) == [(2, 1), (1, 2)]
        app.push("reports", [report(7, 3), report(8, 4)])
        assert app.late("reports").column("car").to_pylist() == [3]


@pytest.mark.parametrize("order", ["a, b", "b, a"])
def test_where_all_streams_are_idle_nothing_waits(order: str) -> None:
    clock = ps.testing.TestClock()
    first, second = order.split(", ")
    with ps.App(
        f"""
        CREATE STREAM a (t BIGINT, EVENT TIME t UNIT SECONDS IDLE AFTER 5 SECONDS);
        CREATE STREAM b (t BIGINT, EVENT TIME t UNIT SECONDS IDLE AFTER 9 SECONDS) LATE INTO late_b;
        CREATE QUERY q AS SELECT t FROM {first} UNION ALL SELECT t FROM {second}
        """,
        clock=clock,
    ) as app:
        app.push("a", [{"t": 3}, {"t": 8}])
        app.push("b", {"t": 5})
        app.results("q")
        clock.advance(seconds=5)
        app.tick()
        assert app.results("q").column("t").to_pylist() == []
        clock.advance(seconds=4)
        app.tick()
        assert app.results("q").column("t").to_pylist() == [8]
        app.push("b", [{"t": 8}, {"t": 9}])
        assert app.late("b").column("t").to_pylist() == [8]
        assert app.results("q").column("t").to_pylist() == [9]


def test_an_idle_stream_before_another_holds_nothing_of_its_time() -> None:
    clock = ps.testing.TestClock()
    with ps.App(
        """
        CREATE STREAM a (t BIGINT, EVENT TIME t UNIT SECONDS IDLE AFTER 5 SECONDS);
        CREATE STREAM b (t BIGINT, EVENT TIME t UNIT SECONDS);
        CREATE QUERY q AS SELECT t FROM a UNION ALL SELECT t FROM b
        """,
        clock=clock,
    ) as app:
        clock.advance(seconds=5)
        for t in (3, 4):
            app.push("b", {"t": t})
            assert app.results("q").column("t").to_pylist() == [t]


# A heartbeat


BEATING = "WITH ('heartbeat' = '2 seconds')"


def test_time_goes_on_with_the_clock_after_a_heartbeat_of_silence() -> None:
    clock = ps.testing.TestClock(1_000 * SECOND)  # what the clock shows does not matter, only how it moves on
    with ps.App(COUNTS.format(more="LATENESS 1 SECOND").replace(";", f" {BEATING};", 1), clock=clock) as app:
        app.tick()
        app.push("s", {"t": 8, "x": 1})  # the watermark is 7
        clock.advance(seconds=2)
        app.tick()
        clock.advance(seconds=3, micros=-1)
        app.tick()
        assert counts(app) == []
        clock.advance(micros=1)
        app.tick()  # 7 + (5 - 2)
        assert counts(app) == [1]
        app.push("s", [{"t": 9, "x": 1}, {"t": 12, "x": 1}])
        assert app.late("s").column("t").to_pylist() == [9]
        clock.advance(seconds=10)
        app.tick()
        assert counts(app) == []  # 11 + (10 - 2)
        clock.advance(seconds=1)
        app.tick()
        assert counts(app) == [1]


def test_a_heartbeat_frees_the_last_instant() -> None:
    clock = ps.testing.TestClock()
    with ps.App(CARS.format(more="", options=BEATING), clock=clock) as app:
        app.push("reports", report(1, 1))
        clock.advance(seconds=2, micros=1)
        assert tolls(app) == []
        app.tick()
        assert tolls(app) == [(1, 1)]


def test_a_stream_that_has_said_nothing_has_no_heartbeat() -> None:
    clock = ps.testing.TestClock()
    with ps.App(CARS.format(more="", options=BEATING), clock=clock) as app:
        clock.advance(seconds=100)
        app.tick()
        app.push("reports", report(1, 1))
        assert app.metrics.late == 0


def test_a_heartbeat_goes_on_after_a_restart(tmp_path: Path) -> None:
    clock = ps.testing.TestClock()
    text = CARS.format(more="", options=BEATING)
    with ps.App(text, clock=clock, checkpoint=tmp_path) as app:
        app.push("reports", report(1, 1))
        app.checkpoint()
    with ps.App(text, clock=clock, checkpoint=tmp_path) as app:
        clock.advance(seconds=3)
        app.tick()
        assert tolls(app) == [(1, 1)]


def test_a_heartbeat_that_is_none_is_refused() -> None:
    with pytest.raises(QueryError, match=r"the heartbeat 'soon' is no length of time[\s\S]*'1 SECOND'"):
        ps.App("CREATE STREAM s (t TIMESTAMP, EVENT TIME t) WITH ('heartbeat' = 'soon'); SELECT t FROM s")
    with pytest.raises(QueryError, match="a heartbeat is for streams with EVENT TIME"):
        ps.App(f"CREATE STREAM s (t TIMESTAMP, ARRIVAL ORDER t) {BEATING}; SELECT t FROM s")
