"""The judge is judged: the oracle against DuckDB on random streams, and its sums against math.fsum."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import pytest

from conformance.arithmetic import aggregate
from conformance.description import (
    Aggregate,
    CountSlide,
    Event,
    Query,
    Range,
    Rows,
    Session,
    Since,
    Stream,
    Term,
    TimeSlide,
    Window,
    column,
)
from conformance.oracle import Row, arrivals, expected

STREAM = Stream("s", (("t", "TIMESTAMP"), ("k", "STRING"), ("n", "BIGINT"), ("x", "DOUBLE"), ("y", "DOUBLE")))

# The same aggregates for the oracle and for DuckDB, in one order. Those over `x` are compared to 12 digits.
AGGREGATES = (
    (Aggregate("COUNT", (), "c"), "count(*)"),
    (Aggregate("COUNT", (column("n"),), "cn"), "count(n)"),
    (Aggregate("SUM", (column("n"),), "sn"), "sum(n)::BIGINT"),
    (Aggregate("SUM", (column("n"),), "sp", Term("n > 0", lambda e: None if e["n"] is None else e["n"] > 0)),
     "sum(n) FILTER (n > 0)::BIGINT"),
    (Aggregate("AVG", (column("n"),), "an"), "avg(n)"),
    (Aggregate("SUM", (column("x"),), "sx"), "fsum(x)"),
    (Aggregate("VAR_POP", (column("x"),), "vp"), "var_pop(x)"),
    (Aggregate("VAR_SAMP", (column("x"),), "vs"), "var_samp(x)"),
    (Aggregate("STDDEV_POP", (column("x"),), "dp"), "stddev_pop(x)"),
    (Aggregate("STDDEV_SAMP", (column("x"),), "ds"), "stddev_samp(x)"),
    (Aggregate("COVAR_POP", (column("x"), column("y")), "cp"), "covar_pop(x, y)"),
    (Aggregate("COVAR_SAMP", (column("x"), column("y")), "cs"), "covar_samp(x, y)"),
    (Aggregate("MIN", (column("n"),), "lo"), "min(n)"),
    (Aggregate("MAX", (column("x"),), "hi"), "max(x)"),
    (Aggregate("FIRST", (column("n"),), "f"), "first(n ORDER BY i)"),
    (Aggregate("LAST", (column("n"),), "l"), "last(n ORDER BY i)"),
    (Aggregate("ARG_MIN", (column("i"), column("n")), "am"), "first(i ORDER BY n, i) FILTER (n IS NOT NULL)"),
    (Aggregate("ARG_MAX", (column("i"), column("n")), "ax"), "first(i ORDER BY n DESC, i) FILTER (n IS NOT NULL)"),
    (Aggregate("MEDIAN", (column("n"),), "med"), "median(n)"),
    (Aggregate("PERCENTILE_CONT", (column("x"),), "pc", parameter=0.75), "quantile_cont(x, 0.75)"),
    (Aggregate("PERCENTILE_DISC", (column("n"),), "pd", parameter=0.25), "quantile_disc(n, 0.25)"),
    (Aggregate("COUNT_DISTINCT", (column("n"),), "cd"), "count(DISTINCT n)"),
)  # fmt: skip
CALLS = tuple(call for call, _ in AGGREGATES)
DUCKDB = ", ".join(sql for _, sql in AGGREGATES)


def random_events(seed: int, count: int = 60) -> list[Event]:
    """In order, with equal times, NULLs and a few groups; `i` is the position."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(0, 50) for _ in range(count))
    return [
        {
            "i": i,
            "t": time,
            "k": chance.choice(["a", "b", "c", None]),
            "n": chance.choice([None, chance.randrange(-5, 5)]),
            "x": chance.choice([None, chance.uniform(-10, 10)]),
            "y": chance.uniform(-10, 10),
        }
        for i, time in enumerate(times)
    ]


def in_duckdb(events: list[Event], sql: str) -> list[Row]:
    """Runs SQL over a table `s` of the events; DuckDB speaks first of NULLs here, as the oracle does."""
    with duckdb.connect() as connection:
        connection.execute("SET default_null_order = 'nulls_first'")
        connection.execute("CREATE TABLE s (i BIGINT, t BIGINT, k VARCHAR, n BIGINT, x DOUBLE, y DOUBLE)")
        connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", [list(event.values()) for event in events])
        return connection.execute(sql).fetchall()


def assert_close(left: list[Row], right: list[Row]) -> None:
    assert len(left) == len(right)
    for mine, theirs in zip(left, right, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            same = math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) if isinstance(a, float) and b is not None else a == b
            assert same, f"{a!r} != {b!r} in {mine} and {theirs}"


SEEDS = pytest.mark.parametrize("seed", range(8))


@SEEDS
@pytest.mark.parametrize(("extent", "slide", "offset"), [(10, 5, 0), (7, 3, 2), (4, 4, 0), (3, 10, 1)])
def test_range_with_time_slide(seed: int, extent: int, slide: int, offset: int) -> None:
    events = random_events(seed)
    query = Query("s", Window(Range(extent), TimeSlide(slide, offset)), (column("k"),), CALLS)
    theirs = in_duckdb(
        events,
        f"""WITH b AS (SELECT unnest(generate_series(-{10 * slide} + {offset}, 100, {slide})) AS b)
        SELECT b - {extent}, b, k, {DUCKDB} FROM b JOIN s ON t >= b - {extent} AND t < b
        WHERE b - {slide} <= (SELECT max(t) FROM s) GROUP BY b, k ORDER BY b, k""",
    )
    assert_close(expected(STREAM, query, events).rows, theirs)


@SEEDS
def test_landmark(seed: int) -> None:
    events = random_events(seed)
    query = Query("s", Window(Since(11), TimeSlide(5)), (column("k"),), CALLS)
    theirs = in_duckdb(
        events,
        f"""WITH b AS (SELECT unnest(generate_series(0, 100, 5)) AS b)
        SELECT 11, b, k, {DUCKDB} FROM b JOIN s ON t >= 11 AND t < b
        WHERE b - 5 <= (SELECT max(t) FROM s) GROUP BY b, k ORDER BY b, k""",
    )
    assert_close(expected(STREAM, query, events).rows, theirs)


@SEEDS
@pytest.mark.parametrize(("extent", "slide"), [(5, 1), (3, 4), (8, 8)])
def test_rows_with_count_slide(seed: int, extent: int, slide: int) -> None:
    events = random_events(seed)
    query = Query("s", Window(Rows(extent), CountSlide(slide)), (column("k"),), CALLS)
    theirs = in_duckdb(
        events,
        f"""WITH e AS (SELECT i AS pos, t AS now, min(t) OVER (ORDER BY i ROWS {extent - 1} PRECEDING) AS oldest FROM s)
        SELECT oldest, now, k, {DUCKDB} FROM e JOIN s ON i > pos - {extent} AND i <= pos
        WHERE (pos + 1) % {slide} = 0 GROUP BY pos, oldest, now, k ORDER BY pos, k""",
    )
    assert_close(expected(STREAM, query, events).rows, theirs)


@SEEDS
def test_rows_as_a_sql_window_function(seed: int) -> None:
    events = random_events(seed)
    calls = (Aggregate("COUNT", (), "c"), Aggregate("SUM", (column("n"),), "s"), Aggregate("MAX", (column("n"),), "m"))
    query = Query("s", Window(Rows(6)), aggregates=calls)
    theirs = in_duckdb(
        events,
        """SELECT min(t) OVER w, t, count(*) OVER w, (sum(n) OVER w)::BIGINT, max(n) OVER w FROM s
        WINDOW w AS (ORDER BY i ROWS 5 PRECEDING) ORDER BY i""",
    )
    assert_close(expected(STREAM, query, events).rows, theirs)


@SEEDS
def test_range_at_every_event(seed: int) -> None:
    events = random_events(seed)
    query = Query(
        "s", Window(Range(6)), (column("k"),), (Aggregate("COUNT", (), "c"), Aggregate("SUM", (column("n"),), "s"))
    )
    theirs = in_duckdb(
        events,
        """SELECT e.t - 6, e.t, e.k, count(*), sum(s.n)::BIGINT FROM s e
        JOIN s ON s.t > e.t - 6 AND s.i <= e.i AND s.k IS NOT DISTINCT FROM e.k
        GROUP BY e.i, e.t, e.k ORDER BY e.i""",
    )
    assert_close(expected(STREAM, query, events).rows, theirs)


@SEEDS
def test_sessions(seed: int) -> None:
    events = random_events(seed, 25)
    query = Query("s", Window(Session(3)), (column("k"),), CALLS)
    theirs = in_duckdb(
        events,
        f"""WITH cut AS (SELECT *, coalesce(t >= lag(t) OVER (ORDER BY i) + 3, true)::INT AS new FROM s),
        numbered AS (SELECT *, sum(new) OVER (ORDER BY i) AS session FROM cut),
        bounds AS (SELECT session, min(t) AS low, max(t) + 3 AS high FROM numbered GROUP BY session)
        SELECT low, high, k, {DUCKDB} FROM numbered JOIN bounds USING (session) GROUP BY session, low, high, k
        ORDER BY high, k""",
    )
    assert_close(expected(STREAM, query, events).rows, theirs)


def test_float_sums_are_fsum() -> None:
    chance = random.Random(7)
    call = Aggregate("SUM", (column("x"),), "s")
    for _ in range(2000):
        values = [chance.choice([-1, 1]) * chance.random() * 10.0 ** chance.randrange(-320, 300) for _ in range(9)]
        assert aggregate(call, [{"x": value} for value in values]) == math.fsum(values)


def test_the_sum_that_a_compensated_pair_gets_wrong() -> None:
    events = [{"x": value} for value in (1e16, 1.0, 1e-16, -1e16, -1.0)]
    assert aggregate(Aggregate("SUM", (column("x"),), "s"), events) == 1e-16


def test_mode_and_correlation() -> None:
    events = [{"x": float(x), "y": 3.0 - 2.0 * x} for x in (2, 1, 1, 2, 5)]
    assert aggregate(Aggregate("MODE", (column("x"),), "m"), events) == 2.0
    correlation: Any = aggregate(Aggregate("CORR", (column("x"), column("y")), "c"), events)
    assert math.isclose(correlation, -1.0)
    assert aggregate(Aggregate("CORR", (column("x"), column("x")), "c"), events[1:3]) is None


@pytest.mark.parametrize(
    ("lateness", "sequence", "times", "late"),
    [
        (0, False, [5, 5, 4, 6], [2]),
        (2, False, [5, 3, 2, 6, 3, 4], [2, 4]),
        (0, True, [(5, 1), (5, 0), (5, 1), (6, 9)], [1]),
        (1, True, [(5, 7), (6, 2), (5, 6), (5, 7), (5, 8)], [2]),
    ],
)
def test_late_events(lateness: int, sequence: bool, times: list[Any], late: list[int]) -> None:
    stream = Stream("s", (), lateness=lateness, sequence="q" if sequence else None)
    events = [{"i": i, "t": time[0], "q": time[1]} if sequence else {"i": i, "t": time} for i, time in enumerate(times)]
    accepted, dropped = arrivals(stream, events)
    assert [event["i"] for event in dropped] == late
    assert len(accepted) + len(dropped) == len(events)
    assert accepted == sorted(accepted, key=lambda event: (event["t"], event.get("q", event["i"])))
