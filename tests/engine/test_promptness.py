"""Rows come out as soon as no event can come that belongs before them, not when their own stream moves on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

SECOND = 1_000_000
A_AND_B = """
    CREATE STREAM a (t BIGINT, k BIGINT, EVENT TIME t UNIT SECONDS);
    CREATE STREAM b (t BIGINT, k BIGINT, EVENT TIME t UNIT SECONDS);
"""


def new(app: ps.App, query: str, column: str = "k") -> list[Any]:
    return app.results(query).column(column).to_pylist()


def test_a_join_answers_at_once() -> None:
    """
    a        1     4        7
    b           2     4  5     8          each is out when both have come as far; a stands before b
    """
    with ps.App(f"""{A_AND_B} CREATE QUERY q AS SELECT x.k, x.t AS first, y.t AS second
        FROM a [RANGE 1 HOUR] AS x LEFT JOIN b [RANGE 1 HOUR] AS y ON x.k = y.k""") as app:
        app.push("a", {"t": 1, "k": 7})
        assert new(app, "q") == []  # b may still come with 0
        app.push("b", {"t": 2, "k": 7})
        assert app.results("q").select(["first", "second"]).to_pylist() == [{"first": 1, "second": None}]
        app.push("a", {"t": 4, "k": 7})
        assert app.results("q").select(["first", "second"]).to_pylist() == [{"first": 1, "second": 2}]
        app.push("b", {"t": 4, "k": 7})
        # a at 4 goes before all of b at 4; b at 4 goes behind what a may still bring at 4
        assert app.results("q").select(["first", "second"]).to_pylist() == [{"first": 4, "second": 2}]
        app.push("b", {"t": 5, "k": 7})
        assert new(app, "q") == []
        app.push("a", {"t": 7, "k": 8})
        assert new(app, "q", "second") == [4, 4, 5, 5]
        app.push("b", {"t": 8, "k": 8})
        assert app.results("q").select(["first", "second"]).to_pylist() == [{"first": 7, "second": None}]


def test_interleaved_events_are_never_a_stream_behind() -> None:
    """Two streams that take turns: with every event all is out but what came with it."""
    with ps.App(f"{A_AND_B} CREATE QUERY q AS SELECT * FROM a UNION ALL SELECT * FROM b") as app:
        found = []
        for t in range(1, 20):
            app.push("ba"[t % 2], {"t": t, "k": t})
            found += new(app, "q")
            assert found == list(range(1, t))


def test_a_pattern_over_streams_is_recognised_at_once() -> None:
    with ps.App(f"""{A_AND_B} CREATE QUERY q AS SELECT x.k FROM PATTERN SEQ(a x, b y)
        WHERE x.k = y.k WITHIN 1 MINUTE""") as app:
        app.push("a", {"t": 1, "k": 7})
        app.push("b", {"t": 3, "k": 7})
        assert new(app, "q") == []  # a may still come with 2
        app.push("a", {"t": 4, "k": 9})
        assert new(app, "q") == [7]
        app.push("b", {"t": 4, "k": 9})
        assert new(app, "q") == []  # a may still come with 4
        app.push("a", {"t": 6, "k": 1})
        assert new(app, "q") == [9]


TOLL = """
    CREATE STREAM reports (t BIGINT, car INT, segment INT, speed DOUBLE, EVENT TIME t UNIT SECONDS {idle});
    CREATE TABLE tolls (segment INT PRIMARY KEY, toll BIGINT NOT NULL);
    CREATE TABLE cars AS LAST BY car FROM reports;
    INSERT INTO entries SELECT r.t, r.car, r.segment FROM reports AS r LEFT JOIN cars ON r.car = cars.car
        WHERE PREV(cars.segment) IS NULL OR PREV(cars.segment) <> r.segment;
    INSERT INTO congestion SELECT segment, COUNT(*) AS n FROM reports [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY segment;
    ON congestion UPSERT INTO tolls (segment, toll) VALUES (congestion.segment, congestion.n * 2);
    CREATE QUERY notified AS SELECT e.car, e.segment, COALESCE(toll, 0) AS toll
        FROM entries AS e LEFT JOIN tolls ON e.segment = tolls.segment;
"""


def report(t: int, car: int, segment: int) -> dict[str, Any]:
    return {"t": t, "car": car, "segment": segment, "speed": 50.0}


def test_a_car_is_notified_of_its_toll_when_it_reports() -> None:
    """`congestion` writes the table and stands behind `entries`, so an entry does not wait for it to pass the time."""
    with ps.App(TOLL.format(idle="")) as app:
        for t, car, segment, toll in [(3, 1, 10, 0), (8, 2, 10, 0), (61, 3, 10, 4), (62, 1, 11, 0), (125, 2, 11, 2)]:
            app.push("reports", report(t, car, segment))
            assert app.results("notified").select(["car", "segment", "toll"]).to_pylist() == [
                {"car": car, "segment": segment, "toll": toll}
            ]


def test_a_reader_before_the_writer_waits_for_nothing_of_its_own_time() -> None:
    with ps.App(f"""{A_AND_B} CREATE TABLE last AS LAST BY k FROM b;
        CREATE QUERY q AS SELECT a.k, last.t AS seen FROM a LEFT JOIN last ON a.k = last.k""") as app:
        app.push("b", {"t": 2, "k": 7})
        app.push("a", {"t": 2, "k": 7})
        assert new(app, "q", "seen") == [None]  # b's change at 2 belongs behind it
        app.push("a", {"t": 3, "k": 7})
        assert new(app, "q", "seen") == []
        app.push("b", {"t": 3, "k": 7})
        assert new(app, "q", "seen") == [2]


def test_a_reader_behind_the_writer_waits_until_its_time_is_over() -> None:
    with ps.App(f"""{A_AND_B} CREATE TABLE last AS LAST BY k FROM a;
        CREATE QUERY q AS SELECT b.k, last.t AS seen FROM b LEFT JOIN last ON b.k = last.k""") as app:
        app.push("a", {"t": 2, "k": 7})
        app.push("b", {"t": 2, "k": 7})
        assert new(app, "q", "seen") == []
        app.push("a", {"t": 2, "k": 7})
        app.push("a", {"t": 3, "k": 7})
        assert new(app, "q", "seen") == [2]


def test_a_table_of_two_streams_is_changed_at_once() -> None:
    with ps.App(f"""{A_AND_B} CREATE TABLE t (k BIGINT PRIMARY KEY, x BIGINT);
        ON a UPSERT INTO t (k, x) VALUES (a.k, a.t); ON b UPSERT INTO t (k, x) VALUES (b.k, b.t);
        CREATE QUERY q AS SELECT a.k, x FROM a, t WHERE a.k = t.k""") as app:
        app.push("a", {"t": 1, "k": 7})
        app.push("b", {"t": 2, "k": 8})
        assert app.table("t").to_pylist() == [{"k": 7, "x": 1}]
        assert new(app, "q", "x") == [1]
        app.push("a", {"t": 2, "k": 9})
        assert app.table("t").to_pylist() == [{"k": 7, "x": 1}, {"k": 9, "x": 2}]
        assert new(app, "q", "x") == [2]
        app.push("a", {"t": 3, "k": 9})
        assert app.table("t").to_pylist() == [{"k": 7, "x": 1}, {"k": 8, "x": 2}, {"k": 9, "x": 2}]


@pytest.mark.parametrize("restart", [False, True])
def test_what_a_table_has_heard_is_part_of_a_checkpoint(tmp_path: Path, restart: bool) -> None:
    text = f"""{A_AND_B} CREATE TABLE last AS LAST BY k FROM b;
        CREATE QUERY q AS SELECT a.k, last.t AS seen FROM a LEFT JOIN last ON a.k = last.k"""
    app = ps.App(text, checkpoint=tmp_path)
    app.push("b", {"t": 5, "k": 7})
    if restart:
        app.checkpoint()
        app.close()
        app = ps.App(text, checkpoint=tmp_path)
    app.push("a", [{"t": 5, "k": 7}, {"t": 6, "k": 7}])
    assert new(app, "q", "seen") == [None]
    app.close()
