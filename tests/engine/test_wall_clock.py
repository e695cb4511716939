"""ON WALL CLOCK: evaluations follow the local clock, each tick once, over what was released by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.runner import run

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, EVENT TIME t);"


def app_at(now: int, query: str, **options: Any) -> tuple[ps.App, ps.testing.TestClock]:
    clock = ps.testing.TestClock(now)
    return ps.App(STREAM + query, clock=clock, **options), clock


def event(t: float, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"t": round(t * SECOND), "k": k, "v": v}


def rows(app: ps.App, query: str = "q1") -> list[tuple[Any, ...]]:
    """(start, end, values...) with times in seconds."""
    table = app.results(query)
    times = [table.column(i).cast("timestamp[us]").cast("int64").to_pylist() for i in (0, 1)]
    values = [c.to_pylist() for c in table.columns[2:]]
    return [(start / SECOND, end / SECOND, *rest) for start, end, *rest in zip(*times, *values, strict=True)]


def test_ticks_follow_the_clock_and_not_the_watermark() -> None:
    """
    event times   96  98   99                 released as they are pushed; the watermark never gets to 100
    clock         97-----|100-----|105---|110
    windows             [90  100)[95  105)[100 110)
    """
    app, clock = app_at(97 * SECOND, "SELECT SUM(v) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS ON WALL CLOCK]")
    app.push("s", [event(96), event(98)])
    app.tick()
    assert rows(app) == []
    clock.set(100 * SECOND)
    app.tick()
    assert rows(app) == [(90, 100, 2)]
    app.push("s", event(99, v=10))  # late for the tick at 100, in time for the one at 105
    clock.set(107 * SECOND)
    app.tick()
    app.tick()  # the same tick is not repeated
    assert rows(app) == [(95, 105, 12)]
    clock.set(111 * SECOND)
    app.tick()
    assert rows(app) == []  # empty window, no row
    app.close()


def test_history_is_not_evaluated_tick_by_tick() -> None:
    """Events from long before the clock: only ticks from the app's start on take place."""
    app, clock = app_at(1_000_000 * SECOND, "SELECT COUNT(*) AS n FROM s [ROWS 2 SLIDE 10 SECONDS ON WALL CLOCK]")
    app.push("s", [event(1), event(2), event(3)])
    clock.advance(seconds=10)
    app.push("s", event(4))  # a push runs the ticks that are due before it takes the event
    assert rows(app) == [(2, 1_000_010, 2)]
    clock.advance(seconds=10)
    app.tick()
    assert rows(app) == [(3, 1_000_020, 2)]
    app.close()


def test_events_ahead_of_the_clock_wait_for_it() -> None:
    app, clock = app_at(0, "SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 SECOND ON WALL CLOCK]")
    app.push("s", [event(0.5), event(1.5), event(2.5)])
    clock.set(3 * SECOND)
    app.tick()
    assert [(end, n) for _, end, n in rows(app)] == [(1, 1), (2, 2), (3, 3)]
    app.close()


def test_offset_and_tumbling() -> None:
    query = "SELECT k, SUM(v) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS OFFSET 3 SECONDS ON WALL CLOCK] GROUP BY k"
    app, clock = app_at(0, query)
    app.push("s", [event(1), event(2, "b"), event(4)])
    clock.set(3 * SECOND)
    app.tick()
    assert rows(app) == [(-7, 3, "a", 1), (-7, 3, "b", 1)]
    clock.set(13 * SECOND)
    app.tick()
    assert rows(app) == [(3, 13, "a", 1)]
    app.close()


def test_now_may_be_given() -> None:
    app, _ = app_at(0, "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 SECOND ON WALL CLOCK]")
    app.push("s", event(0.1))
    app.tick(now=1 * SECOND)
    assert rows(app) == [(-9, 1, 1)]
    app.close()


def test_a_clock_that_is_set_back_repeats_nothing() -> None:
    app, clock = app_at(0, "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 SECOND ON WALL CLOCK]")
    app.push("s", event(0.1))
    clock.set(2 * SECOND)
    app.tick()
    assert len(rows(app)) == 2
    clock.set(0)
    app.tick()
    clock.set(2 * SECOND)
    app.tick()
    assert rows(app) == []
    app.close()


def test_finish_is_the_next_tick() -> None:
    app, clock = app_at(0, "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 SECOND ON WALL CLOCK]")
    app.push("s", event(0.1))
    clock.advance(seconds=0.5)
    app.finish()
    assert rows(app) == [(-9, 1, 1)]
    app.close()


@pytest.mark.parametrize("down", [0.2, 5.0])
def test_a_restart_repeats_no_tick(tmp_path: Path, down: float) -> None:
    """Ticks missed while the app was down take place when it is back, in order."""
    query = "SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 SECOND ON WALL CLOCK]"
    app, clock = app_at(0, query, checkpoint=tmp_path)
    app.push("s", [event(0.1), event(1.9), event(7)])  # the last is ahead of the clock
    clock.set(2 * SECOND)
    app.tick()
    assert [end for _, end, _ in rows(app)] == [1, 2]
    app.checkpoint()
    app.close()
    clock.advance(seconds=down)
    again = ps.App(STREAM + query, clock=clock, checkpoint=tmp_path)
    again.tick()
    assert [end for _, end, _ in rows(again)] == list(range(3, 2 + int(down) + 1))
    clock.set(8 * SECOND)
    again.tick()
    assert rows(again)[-1][1:] == (8, 3)
    again.close()


def test_a_chain_of_wall_clock_queries() -> None:
    query = """
        INSERT INTO seconds SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND ON WALL CLOCK];
        CREATE QUERY total AS SELECT SUM(n) AS n FROM seconds [RANGE 1 MINUTE SLIDE 2 SECONDS ON WALL CLOCK];
        CREATE QUERY steady AS SELECT MAX(n) AS n FROM seconds [RANGE 2 SECONDS SLIDE 2 SECONDS]
    """
    app, clock = app_at(0, query)
    app.push("s", [event(0.1), event(0.2), event(1.5), event(2.5)])
    clock.set(4 * SECOND)
    app.tick()
    assert [(end, n) for _, end, n in rows(app, "seconds")] == [(1, 2), (2, 1), (3, 1)]
    assert [(end, n) for _, end, n in rows(app, "total")] == [(2, 3), (4, 4)]
    assert [(end, n) for _, end, n in rows(app, "steady")] == [(2, 2), (4, 1)]
    app.close()


def test_plain_select_and_partitions() -> None:
    query = """
        CREATE QUERY plain AS SELECT v FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS ON WALL CLOCK];
        CREATE QUERY parts AS SELECT k, SUM(v) AS n
            FROM s [PARTITION BY k ROWS 1 SLIDE 5 SECONDS ON WALL CLOCK] GROUP BY k
    """
    app, clock = app_at(0, query)
    app.push("s", [event(1, v=1), event(2, "b", 2), event(3, v=3)])
    clock.set(5 * SECOND)
    app.tick()
    assert rows(app, "plain") == [(-5, 5, 1), (-5, 5, 2), (-5, 5, 3)]
    assert rows(app, "parts") == [(3, 5, "a", 3), (2, 5, "b", 2)]
    app.close()


def test_a_runner_ticks_while_its_source_is_quiet(tmp_path: Path) -> None:
    """The file ends, the source waits for more, and windows go on sliding."""
    (tmp_path / "in.csv").write_text("t,k,v\n2024-01-01 00:00:00,a,1\n")
    stream = STREAM.replace("EVENT TIME t)", f"EVENT TIME t) FROM '{tmp_path}/in.csv'")
    sink = f"CREATE SINK out TO '{tmp_path}/out.jsonl';"
    clock = ps.testing.TestClock(2_000_000_000 * SECOND)  # the event is from before the clock
    query = "INSERT INTO out SELECT COUNT(*) AS n FROM s [ROWS 5 SLIDE 1 SECOND ON WALL CLOCK]"

    def stop_after_ten() -> bool:
        clock.advance(seconds=1)
        return clock.elapsed() > 10 * SECOND

    with ps.App(stream + sink + query, clock=clock) as app:
        run(app, follow=True, stop=stop_after_ten)
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) >= 8
