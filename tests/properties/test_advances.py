"""Advances that only say what is so change no answer: event by event with `advance` in between, or all in one push.

Streams have many equal times, of each other too, so that rows wait at the edge of what has been reached.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App

DECLARED = """
CREATE STREAM a (t TIMESTAMP, k INT, x INT, EVENT TIME t LATENESS {late} MICROSECONDS);
CREATE STREAM b (t TIMESTAMP, k INT, x INT, EVENT TIME t);
CREATE STREAM c (t TIMESTAMP, k INT, x INT, EVENT TIME t);
"""
PROGRAMS = {
    "union": "CREATE QUERY q AS SELECT * FROM b UNION ALL SELECT * FROM a UNION ALL SELECT * FROM c",
    "same stream twice": "CREATE QUERY q AS SELECT k FROM a UNION ALL SELECT x FROM a UNION ALL SELECT k FROM b",
    "windows over a union": """CREATE QUERY q AS SELECT k, SUM(x) AS s, COUNT(*) AS n
        FROM (SELECT * FROM a UNION ALL SELECT * FROM b) [RANGE 7 MICROSECONDS SLIDE 3 MICROSECONDS] GROUP BY k""",
    "join": """CREATE QUERY q AS SELECT l.x AS lx, m.x AS mx, r.x AS rx FROM a [RANGE 5 MICROSECONDS] AS l
        LEFT JOIN b [ROWS 3] AS m ON l.k = m.k LEFT JOIN c [RANGE 4 MICROSECONDS] AS r ON m.k = r.k""",
    "join at slides": """CREATE QUERY q AS SELECT l.k, COUNT(*) AS n
        FROM b [RANGE 6 MICROSECONDS SLIDE 2 MICROSECONDS] AS l
        JOIN a [RANGE 4 MICROSECONDS SLIDE 2 MICROSECONDS] AS r ON l.k = r.k GROUP BY l.k""",
    "join with what derives": """INSERT INTO d SELECT k, SUM(x) AS s FROM a [RANGE 3 MICROSECONDS] GROUP BY k;
        CREATE QUERY q AS SELECT l.x, d.s
        FROM b [RANGE 5 MICROSECONDS] AS l JOIN d [RANGE 5 MICROSECONDS] ON l.k = d.k""",
    "pattern": """CREATE QUERY q AS SELECT l.x AS lx, r.x AS rx FROM PATTERN SEQ(a l, !c m, b r)
        WHERE l.k = m.k AND m.k = r.k AND l.k = r.k WITHIN 6 MICROSECONDS""",
    "tables": """CREATE TABLE T (k INT PRIMARY KEY, n BIGINT);
        ON b UPSERT INTO T (k, n) VALUES (b.k, COALESCE(n, 0) + b.x); ON c UPSERT INTO T (k, n) VALUES (c.k, c.x);
        CREATE QUERY q AS SELECT a.x, n FROM a LEFT JOIN T ON a.k = T.k;
        CREATE QUERY q2 AS SELECT b.x, n, PREV(T.n) AS p FROM b LEFT JOIN T ON b.k = T.k;
        CREATE QUERY q3 AS SELECT c.x, n FROM c LEFT JOIN T ON c.k = T.k;
        CREATE QUERY q4 AS SELECT k, SUM(n) AS n FROM T [SLIDE 3 MICROSECONDS] GROUP BY k""",
    "tables and what derives": """CREATE TABLE T (k INT PRIMARY KEY, n BIGINT);
        INSERT INTO d SELECT k, COUNT(*) AS n FROM a [RANGE 4 MICROSECONDS] GROUP BY k;
        INSERT INTO e SELECT k, x FROM b WHERE x > 1;
        ON d UPSERT INTO T (k, n) VALUES (d.k, d.n); ON b UPSERT INTO T (k, n) VALUES (b.k, 100 + b.x);
        CREATE QUERY q AS SELECT e.x, n FROM e LEFT JOIN T ON e.k = T.k;
        CREATE QUERY q2 AS SELECT a.x, n FROM a LEFT JOIN T ON a.k = T.k;
        CREATE QUERY q3 AS SELECT s.k, n FROM (SELECT k, COUNT(*) AS m FROM b [RANGE 3 MICROSECONDS] GROUP BY k) AS s
            LEFT JOIN T ON s.k = T.k""",
}
Events = dict[str, list[dict[str, int]]]
rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.integers(0, 3)), max_size=12)


def events_of(drawn: tuple[list[tuple[int, int, int]], ...]) -> Events:
    return {
        name: [{"t": t, "k": k, "x": x} for t, k, x in sorted(own, key=lambda row: row[0])]
        for name, own in zip("abc", drawn, strict=True)
    }


def results(app: App, found: dict[str, list[Any]]) -> None:
    for name, own in found.items():
        own += app.results(name).to_pylist()


def at_once(text: str, events: Events, queries: list[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in queries}
    with App(text) as app:
        for stream, own in events.items():
            app.push(stream, own)
        app.finish()
        results(app, found)
    return found


def event_by_event(
    text: str, events: Events, queries: list[str], chance: random.Random, directory: Path | None
) -> dict[str, list[Any]]:
    """A stream is advanced up to the time of its next event at most, which is in time then."""
    found: dict[str, list[Any]] = {name: [] for name in queries}
    app = App(text, checkpoint=directory)
    at = dict.fromkeys(events, 0)
    while left := [stream for stream in events if at[stream] < len(events[stream])]:
        stream = chance.choice(left)
        if chance.random() < 0.4:
            app.advance(stream, chance.randint(0, events[stream][at[stream]]["t"]))
        else:
            count = chance.choice([1, 1, 1, 4])
            app.push(stream, events[stream][at[stream] : at[stream] + count])
            at[stream] += count
        results(app, found)
        if directory is not None and chance.random() < 0.15:
            app.checkpoint()
            app.close()
            app = App(text, checkpoint=directory)
    app.finish()
    results(app, found)
    assert app.metrics.late == 0
    app.close()
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_advances_change_no_answer(program: str, tmp_path: Path) -> None:
    runs = iter(range(1 << 30))

    @settings(max_examples=25, deadline=None)
    @given(st.tuples(rows, rows, rows), st.sampled_from([0, 2]), st.integers(0, 1 << 30))
    def run(drawn: tuple[list[tuple[int, int, int]], ...], late: int, seed: int) -> None:
        chance = random.Random(seed)
        text = DECLARED.format(late=late) + PROGRAMS[program]
        events = events_of(drawn)
        with App(text) as app:
            queries = [name for name in app.queries if name.startswith("q")]
        directory = tmp_path / str(next(runs)) if chance.random() < 0.2 else None
        expected = at_once(text, events, queries)
        assert event_by_event(text, events, queries, chance, directory) == expected

    run()
