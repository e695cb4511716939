"""Events that come one by one give what the same events give in lists and in batches: rows, tables and rejects.

A single dict goes through projections, tables and windows as Python values (`expressions.scalar`,
`operators.tables.single`); a batch goes by columns.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import App

Event = dict[str, Any]

PROGRAM = """
CREATE STREAM s (t BIGINT, k INT, x INT, y DOUBLE, f BOOLEAN, w STRING, EVENT TIME t UNIT SECONDS);
CREATE STREAM z (t BIGINT, k INT, v BIGINT, EVENT TIME t UNIT SECONDS);

INSERT INTO d
SELECT t AS at, k, x, y, f, w, NULLIF(x, 3) AS n, CAST(x AS TINYINT) AS small, 100 DIV x AS q, x % 4 AS k2
FROM s WHERE k <> 9 AND x + 2147483600 > 0;

CREATE TABLE last (k INT PRIMARY KEY, x INT, n INT, y DOUBLE, f BOOLEAN, times SMALLINT NOT NULL);
ON d AS e UPSERT INTO last VALUES (
    e.k, e.x, e.n, COALESCE(last.y, 0) + e.y, IF(e.k = 2, last.f, e.f),
    COALESCE(last.times, 0) + NULLIF(e.x, 7) - e.x + 1);

CREATE TABLE pairs (k INT, k2 INT, x BIGINT, PRIMARY KEY (k, k2));
ON d AS e UPSERT INTO pairs VALUES (e.k, e.k2, COALESCE(pairs.x, 0) + e.x);
ON d AS e DELETE FROM pairs WHERE pairs.k = e.k AND pairs.k2 = e.k2 AND pairs.x > 300;

CREATE TABLE slow (k INT PRIMARY KEY, v BIGINT);
ON z UPSERT INTO slow VALUES (z.k, z.v);

INSERT INTO r
SELECT e.k, e.k2, e.x, l.times, PREV(l.x) AS before, PREV(l.f) AS was, l.n, e.w, PREV(l.k) AS had
FROM d AS e JOIN last AS l ON l.k = e.k
WHERE COALESCE(PREV(l.x) <> e.x, TRUE);

CREATE QUERY waited AS
SELECT r.k, r.before, r.w, b.v, 1000 DIV (b.v - 5) AS q
FROM r LEFT JOIN slow AS b ON b.k = r.k AND b.v > r.x WHERE r.times < 5;

CREATE QUERY paired AS
SELECT r.k, r.was, p.x, PREV(p.x) AS x_before FROM r LEFT JOIN pairs AS p ON p.k = r.k AND p.k2 = r.k2 AND p.x <> 5
WHERE r.x > 0;

CREATE QUERY sums AS
SELECT k, SUM(x) AS total, COUNT(*) FILTER (WHERE was) AS c, MAX(n) AS m, COUNT(before) AS b
FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k;

CREATE QUERY texts AS SELECT w, MIN(x) AS m FROM d [RANGE 3 SECONDS SLIDE 3 SECONDS] WHERE f GROUP BY w;

CREATE QUERY running AS SELECT k, AVG(y) AS a FROM d [RANGE 5 SECONDS] GROUP BY k;
"""

WITH_A_LATE_READER = (
    PROGRAM
    + """
CREATE QUERY now_and_then AS
SELECT q.k, l.y, l.f, l.times FROM s AS q JOIN last AS l ON l.k = q.k WHERE 10 DIV q.x = 10;
"""
)
WITH_TIMES_TO_LIVE = WITH_A_LATE_READER.replace(
    "times SMALLINT NOT NULL);", "times SMALLINT NOT NULL) WITH ('ttl' = '4 SECONDS');"
)
for _key in ("PRIMARY KEY (k, k2)", "k INT PRIMARY KEY, v BIGINT"):
    WITH_TIMES_TO_LIVE = WITH_TIMES_TO_LIVE.replace(f"{_key});", f"{_key}) WITH ('ttl' = '2 SECONDS');")
QUERIES = ("d", "r", "waited", "paired", "sums", "texts", "running")
PROGRAMS = st.sampled_from([PROGRAM, WITH_A_LATE_READER, WITH_TIMES_TO_LIVE])
TABLES = ("last", "pairs", "slow")

NUMBERS = st.sampled_from([0, 1, 1, 2, 3, 5, 7, 100, 127, 128, -4, -2147483640])
S = st.fixed_dictionaries(
    {
        "k": st.sampled_from([1, 2, 3, 9]),
        "x": NUMBERS,
        "y": st.sampled_from([0.5, -0.0, 1e308, float("inf"), float("nan")]),
        "f": st.booleans(),
        "w": st.sampled_from(["a", "é", ""]),
    }
)
S_WITH_NULLS = st.fixed_dictionaries(
    {}, optional={"k": st.sampled_from([1, 2]), "x": NUMBERS, "y": st.none(), "f": st.booleans(), "w": st.just("b")}
)
Z = st.fixed_dictionaries({"k": st.sampled_from([1, 2, 3]), "v": st.sampled_from([1, 4, 5, 6, 200])})
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 3]), st.one_of(S, S, S, S_WITH_NULLS, Z), st.booleans()),
    min_size=1,
    max_size=30,
)


KNOWN_CAR = [
    (step, {"k": 1, "x": x, "y": 0.5, "f": x != 5, "w": "a"}, x == 6)
    for step, x in ((1, 5), (1, 6), (0, 6), (0, 1), (1, 7), (0, 3), (2, 2), (0, 100), (3, 127), (0, 5))
]
"""Changes of one row, several at a time, among them one that fails."""


def events_of(steps: list[tuple[int, Event, bool]]) -> list[tuple[str, Event]]:
    events, time = [], 1
    for step, event, _ in steps:
        time += step
        events.append(("z" if "v" in event else "s", {"t": time, **event}))
    return events


def singly(app: App, events: list[tuple[str, Event]]) -> None:
    for stream, event in events:
        app.push(stream, event)


def in_lists(app: App, events: list[tuple[str, Event]]) -> None:
    for stream in ("s", "z"):
        own = [event for name, event in events if name == stream]
        if own:
            app.push(stream, own)


def in_batches(app: App, events: list[tuple[str, Event]]) -> None:
    types = {"t": pa.int64(), "k": pa.int32(), "x": pa.int32(), "y": pa.float64(), "f": pa.bool_(), "w": pa.string()}
    for stream, kinds in (("z", {"t": pa.int64(), "k": pa.int32(), "v": pa.int64()}), ("s", types)):
        own = [event for name, event in events if name == stream]
        if own:
            app.push(stream, pa.Table.from_pylist(own, pa.schema(kinds.items())))


def told(app: App) -> dict[str, Any]:
    """All that can be seen, NaN as a text."""
    results = {name: repr(app.results(name).to_pylist()) for name in app.queries}
    tables = {name: repr(app.table(name).to_pylist()) for name in TABLES}
    rejects = Counter(repr(sorted(reject.items(), key=repr)) for reject in app.rejects)
    return results | tables | {"rejects": rejects, "passed": app.table("last").num_rows}


def run(
    program: str, events: list[tuple[str, Event]], push: Callable[[App, list[tuple[str, Event]]], None]
) -> dict[str, Any]:
    with App(program) as app:
        push(app, events)
        app.finish()
        return told(app)


@settings(max_examples=60, deadline=None)
@given(PROGRAMS, STEPS)
@example(PROGRAM, KNOWN_CAR)
@example(WITH_A_LATE_READER, KNOWN_CAR)
def test_one_by_one_or_together(program: str, steps: list[tuple[int, Event, bool]]) -> None:
    events = events_of(steps)
    expected = run(program, events, in_batches)
    assert run(program, events, singly) == expected
    assert run(program, events, in_lists) == expected


@settings(max_examples=25, deadline=None)
@given(PROGRAMS, STEPS)
@example(PROGRAM, KNOWN_CAR)
def test_after_each_event_as_much_has_come_out(program: str, steps: list[tuple[int, Event, bool]]) -> None:
    """What comes out of an event comes out with it."""
    events = events_of(steps)
    with App(program) as one, App(program) as other:
        for stream, event in events:
            one.push(stream, event)
            in_batches(other, [(stream, event)])
            assert told(one) == told(other)


@settings(max_examples=15, deadline=None)
@given(PROGRAMS, STEPS)
@example(PROGRAM, KNOWN_CAR)
@example(WITH_A_LATE_READER, KNOWN_CAR)
def test_with_restarts_in_between(program: str, steps: list[tuple[int, Event, bool]]) -> None:
    events = events_of(steps)
    with tempfile.TemporaryDirectory() as directory:
        app = App(program, checkpoint=directory)
        for (stream, event), (_, _, restarts) in zip(events, steps, strict=True):
            app.push(stream, event)
            if restarts:
                app.checkpoint()
                app.close()
                app = App(program, checkpoint=directory)
        app.finish()
        found = told(app)
        app.close()
    expected = run(program, events, in_batches)
    for name in (*QUERIES, *TABLES):
        assert found[name] == expected[name]
