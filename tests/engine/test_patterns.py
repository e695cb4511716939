"""Patterns at work: the outputs of the thesis, times of matches, rejects, memory, and where patterns may stand."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import App
from penstock.errors import BudgetError

SECOND = 1_000_000

AB = """
CREATE STREAM A (t TIMESTAMP, id INT, n STRING, x DOUBLE, EVENT TIME t);
CREATE STREAM B (t TIMESTAMP, id BIGINT, n STRING, x DOUBLE, EVENT TIME t);
"""


def rows(app: App, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in app.results(query).to_pylist()]


def push(app: App, events: str) -> None:
    """`A1@3` is the event A1 of stream A at second 3; without a time events are a second apart."""
    for second, written in enumerate(events.split(), 1):
        name, _, at = written.partition("@")
        app.push(name[0], {"t": int(at or second) * SECOND, "id": 1, "n": name, "x": float(name[1:])})


@pytest.mark.parametrize(
    ("policies", "outputs"),
    [
        (("ALL", "ALL"), "(A1,B1), (A2,B1), (A1,B2), (A2,B2), (A3,B2)"),
        (("ALL", "ONE"), "(A1,B1), (A1,B2)"),
        (("ONE", "ALL"), "(A1,B1), (A2,B1), (A3,B2)"),
        (("ONE", "ONE"), "(A1,B1), (A2,B2)"),
    ],
    ids=lambda value: " -> ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("key", ["", "WHERE a.id = b.id"])
def test_the_consumption_policies_of_the_thesis(policies: tuple[str, str], outputs: str, key: str) -> None:
    """Section 4.2.2: A1, A2, B1, A3, B2 and the pattern A -> B."""
    first, second = policies
    with App(f"{AB} SELECT a.n AS a, b.n AS b FROM PATTERN SEQ({first} A a, {second} B b) {key} WITHIN 1 HOUR") as app:
        push(app, "A1 A2 B1 A3 B2")
        app.finish()
        assert ", ".join(f"({a},{b})" for a, b in rows(app, "q1")) == outputs


def timed(pattern: str) -> str:
    return f"{AB} INSERT INTO m SELECT {pattern}; CREATE QUERY shown AS SELECT * FROM m [NOW]"


def ends(app: App) -> list[tuple[Any, ...]]:
    table = app.results("shown")
    times = table.column("window_end").cast("int64").to_pylist()
    found = table.drop_columns(["window_start", "window_end"]).to_pylist()
    return [(time, *row.values()) for time, row in zip(times, found, strict=True)]


def test_absence_at_the_end_is_known_when_its_time_is_over() -> None:
    with App(timed("a.n FROM PATTERN SEQ(A a, !B b) WHERE a.id = b.id WITHIN 10 SECONDS")) as app:
        push(app, "A1@1 A2@2 A3@30")
        assert ends(app) == []  # B has not come so far
        push(app, "B1@11")  # ten seconds after A1: too late for that, but not for A2
        assert ends(app) == [(11 * SECOND - 1, "A1")]
        push(app, "B2@29 B3@41")
        assert ends(app) == []  # A has not come so far
        push(app, "A4@41")
        assert ends(app) == [(40 * SECOND - 1, "A3")]


def test_the_end_of_a_bounded_run_decides_what_waits() -> None:
    with App(timed("a.n, COUNT(b.*) AS bs FROM PATTERN SEQ(A a, B+ b) WITHIN 10 SECONDS")) as app:
        push(app, "A1@1 B1@2 B2@3")
        app.finish()
        assert ends(app) == [(11 * SECOND - 1, "A1", 2)]


def test_the_time_of_a_match_is_that_of_its_last_event() -> None:
    with App(timed("a.n, b.n AS other FROM PATTERN AND(A a, B b) WITHIN 3 SECONDS")) as app:
        push(app, "A1@1 B1@3 B2@4 A2@6 A3@7")
        app.finish()
        assert ends(app) == [(3 * SECOND, "A1", "B1"), (6 * SECOND, "A2", "B2")]


def test_matches_are_events_for_other_queries() -> None:
    text = f"""{AB}
    CREATE QUERY q AS SELECT COUNT(*) AS n, MAX(gap) AS gap
    FROM (SELECT b.x - a.x AS gap FROM PATTERN SEQ(A a, B b) WITHIN 5 SECONDS) [RANGE 10 SECONDS SLIDE 10 SECONDS]"""
    with App(text) as app:
        push(app, "A1@1 A2@2 B5@3 B9@12")
        app.finish()
        assert [row[2:] for row in rows(app, "q")] == [(2, 4.0)]


def test_elements_may_be_subqueries() -> None:
    text = f"""{AB}
    SELECT a.n, b.twice FROM PATTERN SEQ(A a, (SELECT n, 2 * x AS twice FROM B WHERE x > 1) b) WITHIN 5 SECONDS"""
    with App(text) as app:
        push(app, "A1@1 B1@2 B2@3")
        app.finish()
        assert rows(app, "q1") == [("A1", 4.0)]


def test_keys_of_different_types_and_odd_values() -> None:
    """INT meets BIGINT; NaN equals NaN and 0.0 equals -0.0, as in Spark; NULL equals nothing."""
    nan = float("nan")
    text = f"{AB} SELECT a.n AS a, b.n AS b FROM PATTERN SEQ(A a, B b) WHERE a.id = b.id AND a.x = b.x WITHIN 1 MINUTE"
    with App(text) as app:
        for n, (i, x) in enumerate([(1, nan), (1, -0.0), (None, 1.0), (2, None)]):
            app.push("A", {"t": n * SECOND, "id": i, "n": f"A{n}", "x": x})
        for n, (i, x) in enumerate([(1, nan), (1, 0.0), (None, 1.0), (2, None)]):
            app.push("B", {"t": (10 + n) * SECOND, "id": i, "n": f"B{n}", "x": x})
        app.finish()
        assert rows(app, "q1") == [("A0", "B0"), ("A1", "B1")]


def test_what_fails_is_rejected() -> None:
    text = f"""{AB}
    SELECT a.n, CAST(a.x AS INT) % CAST(b.x - 5 AS INT) AS r FROM PATTERN SEQ(A a, B b)
    WHERE 1 / (a.x - 1) > 0 AND 10 / (b.x - a.x) > 0 WITHIN 1 MINUTE"""
    with App(text) as app:
        push(app, "A1 A2 A3 B2 B5")
        app.finish()
        assert rows(app, "q1") == []
        reasons = [reject["reason"].split(":")[0] for reject in app.rejects]
        # A1 in its own condition, (A2, B2) in the one of both, and what is shown of (A2, B5) and (A3, B5)
        assert reasons == ["DIVIDE_BY_ZERO", "DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO", "REMAINDER_BY_ZERO"]


LONG = """
CREATE STREAM s (t TIMESTAMP, k INT, v BIGINT, p BIGINT, q BIGINT, r BIGINT, u BIGINT, note STRING, EVENT TIME t);
CREATE QUERY q AS SELECT a.v AS first, a.note, a.p + a.q + a.r + a.u AS paid, b.v AS last,
  COUNT(c.*) AS n, SUM(c.v) AS total
FROM PATTERN SEQ(s a, s+ c, s b) WHERE a.k = b.k AND a.k = c.k AND a.v % 97 = 0 AND b.v % 89 = 0
WITHIN 2000 SECONDS;
"""


def long_run(memory: str, batch: int) -> list[tuple[Any, ...]]:
    with App(LONG, memory=memory, block_size=4096) as app:
        for start in range(0, 12_000, batch):
            some = range(start, min(start + batch, 12_000))
            columns = {"t": [i * SECOND for i in some], "k": [i % 7 for i in some], "v": list(some)}
            columns |= {name: [i * i for i in some] for name in "pqru"}
            app.push("s", {**columns, "note": [f"note {i % 100}" for i in some]})
        app.finish()
        assert memory == "64MB" or app.metrics.blocks_written > 0
        return rows(app, "q")


def test_events_go_to_disk() -> None:
    small, large = long_run("700KB", 3_000), long_run("64MB", 12_000)
    assert small == large
    assert len(small) > 50


def test_too_little_memory_is_refused_with_what_it_takes() -> None:
    with pytest.raises(BudgetError, match="events that may match"):
        long_run("100KB", 3_000)


def test_keys_leave_with_their_events() -> None:
    """Every event has a key of its own; the state stays as large as the window."""
    text = "CREATE STREAM s (t TIMESTAMP, k BIGINT, EVENT TIME t); " + (
        "CREATE QUERY q AS SELECT a.k FROM PATTERN SEQ(s a, s b) WHERE a.k = b.k WITHIN 100 SECONDS"
    )
    with App(text) as app:
        held = []
        for start in range(0, 40_000, 1_000):
            some = range(start, start + 1_000)
            app.push("s", {"t": [i * SECOND // 10 for i in some], "k": list(some)})
            held.append(app.metrics.memory_bytes)
        assert max(held[20:]) <= max(held[:20])
        assert rows(app, "q") == []


def test_a_restart_in_the_middle_of_matches(tmp_path: Path) -> None:
    text = timed("a.n, b.n AS b FROM PATTERN SEQ(ONE A a, ONE B b) WHERE a.id = b.id WITHIN 1 MINUTE")
    with App(text, checkpoint=tmp_path) as app:
        push(app, "A1 A2 B1 A3")
        found = ends(app)
        app.checkpoint()
    with App(text, checkpoint=tmp_path) as app:
        push(app, "A9@6 B2@7 B3@8 A8@9")
        app.finish()
        found += ends(app)
    assert [row[1:] for row in found] == [("A1", "B1"), ("A2", "B2"), ("A3", "B3")]


def test_patterns_come_and_go() -> None:
    with App(AB) as app:
        query = app.add_query("SELECT a.n FROM PATTERN SEQ(A a, A b) WITHIN 1 MINUTE")
        push(app, "A1 A2")
        assert rows(app, query) == [("A1",)]
        app.drop_query(query)
        assert app.metrics.memory_bytes == 0


def test_a_partition_is_the_same_in_whatever_order_its_equalities_are_written() -> None:
    equalities = ("b.x = a.x", "a.x = n.x", "n.x = b.y")
    found = []
    for first in range(3):
        where = " AND ".join(equalities[first:] + equalities[:first])
        with App(f"""
            CREATE STREAM s (t BIGINT, x INT, y INT, EVENT TIME t UNIT SECONDS);
            CREATE QUERY q AS SELECT a.t AS a, b.t AS b FROM PATTERN SEQ(s a, !s n, s b) WHERE {where} WITHIN 9 SECONDS;
        """) as app:
            app.push("s", [{"t": 0, "x": 1, "y": 5}, {"t": 1, "x": 1, "y": 1}, {"t": 2, "x": 1, "y": 2}])
            app.finish()
            found.append(rows(app, "q"))
    assert found == [[(0, 1)]] * 3


def test_an_element_has_the_key_of_the_order_it_is_in() -> None:
    with App("""
        CREATE STREAM s (t BIGINT, id INT, kind STRING, EVENT TIME t UNIT SECONDS);
        CREATE QUERY q AS SELECT a.t AS a, COUNT(m.*) AS n, b.t AS b, c.t AS c
        FROM PATTERN SEQ(s a, s+ m, OR(s b, s c))
        WHERE a.id = b.id AND a.id = c.id AND m.id = c.id
        AND a.kind = 'a' AND m.kind = 'm' AND b.kind = 'b' AND c.kind = 'c' WITHIN 1 MINUTE;
    """) as app:
        for second, (kind, id) in enumerate(["a1", "m2", "m1", "m2", "b1", "c1"]):
            app.push("s", {"t": second, "id": int(id), "kind": kind})
        app.finish()
        assert rows(app, "q") == [(0, 3, 4, None), (0, 1, None, 5)]


MANY = """
    CREATE STREAM a (t BIGINT, x INT, EVENT TIME t UNIT MILLISECONDS);
    CREATE STREAM b (t BIGINT, x INT, EVENT TIME t UNIT MILLISECONDS);
"""


def many(query: str, memory: str, first: int, then: int) -> tuple[list[tuple[Any, ...]], list[str]]:
    """What comes of so many events of a, and of so many of b after them in one batch."""
    with App(f"{MANY} CREATE QUERY q AS {query} WITHIN 1 HOUR;", memory=memory) as app:
        app.push("a", pa.table({"t": np.arange(first), "x": np.arange(first, dtype=np.int32) % 100}))
        app.push("b", pa.table({"t": first + np.arange(then), "x": np.arange(then, dtype=np.int32) % 100}))
        app.finish()
        return rows(app, "q"), [reject["reason"] for reject in app.rejects]


@pytest.mark.parametrize(
    "pattern",
    [
        "SELECT b.t AS t, COUNT(c.*) AS n, SUM(c.x) AS s FROM PATTERN SEQ(a+ c, b b) WHERE c.x / b.x < 50",
        "SELECT c.t AS c, b.t AS t FROM PATTERN SEQ(ONE a c, b b) WHERE c.x / b.x < 50",
        "SELECT c.t AS t, COUNT(b.*) AS n FROM PATTERN SEQ(a c, b+ b) WHERE c.x / b.x < 50",
    ],
)
def test_matches_that_do_not_fit_into_memory_together_are_found_in_parts(pattern: str) -> None:
    found, rejects = many(pattern, "64MB", 1000, 400)
    assert found
    assert many(pattern, "1200KB", 1000, 400) == (found, rejects)


def test_what_fails_a_condition_is_not_in_memory_together() -> None:
    unlikely = "SELECT c.t AS c, b.t AS t FROM PATTERN SEQ(a c, b b) WHERE c.x + b.x = -1"
    many(unlikely, "64MB", 10, 10)
    tracemalloc.start()
    try:
        assert many(unlikely, "64MB", 10_000, 300) == ([], [])
        assert tracemalloc.get_traced_memory()[1] < 16_000_000  # of three million pairs
    finally:
        tracemalloc.stop()
