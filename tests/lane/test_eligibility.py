"""Which queries have a lane, and which of them take dicts in it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from penstock import App
from penstock.engine import push_lanes
from penstock.lane.eligibility import why_not
from penstock.lang import parse
from penstock.operators import row_lane
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, x DOUBLE, f FLOAT, n INT, EVENT TIME t);"


def reason(select: str) -> str | None:
    node = build(parse(STREAM + select + ";").queries[0].body)
    assert isinstance(node, AggregateNode)
    return why_not(node)


@pytest.mark.parametrize(
    "select",
    [
        "SELECT k, SUM(x), COUNT(*) FROM s [RANGE 1 HOUR] GROUP BY k",
        "SELECT MIN(n), MAX(t), AVG(x), COUNT(x) FROM s [ROWS 10]",
        "SELECT k, n, SUM(x * n) FROM s [RANGE 1 SECOND] WHERE x > 0 GROUP BY k, n HAVING SUM(x * n) > 1",
        "SELECT COUNT(*) FROM s [NOW]",
    ],
)
def test_in_the_lane(select: str) -> None:
    assert reason(select) is None


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("SELECT SUM(x) FROM s [RANGE 1 HOUR SLIDE 1 SECOND]", "with every event"),
        ("SELECT ISTREAM SUM(x) FROM s [RANGE 1 HOUR]", "with every event"),
        ("SELECT SUM(x) FROM s [ROWS 10 SLIDE 5]", "with every event"),
        ("SELECT SUM(x) FROM s [RANGE 1 HOUR WHEN FULL]", "until it is full"),
        ("SELECT MEDIAN(x) FROM s [RANGE 1 HOUR]", "MEDIAN has no operation"),
        ("SELECT SUM(f) FROM s [RANGE 1 HOUR]", "SUM of FLOAT"),
        ("SELECT MAX(k) FROM s [RANGE 1 HOUR]", "MAX of STRING"),
        ("SELECT SUM(x) FILTER (WHERE n > 1) FROM s [RANGE 1 HOUR]", "FILTER"),
    ],
)
def test_not_in_the_lane(select: str, why: str) -> None:
    assert why in (reason(select) or "")


DICTS = "CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"


def taken(program: str, events: list[Any], query: str | None = "q1") -> tuple[int, list[pa.RecordBatch]]:
    """How many events a push lane has taken, and what a subscriber got."""
    got: list[pa.RecordBatch] = []
    count, enter = 0, row_lane.RowLane.enter

    def counted(self: Any, rows: int) -> int:
        nonlocal count
        count += (found := enter(self, rows))
        return found

    with (
        patch.object(push_lanes, "LEAST_PUSHES", 0),
        patch.object(row_lane.RowLane, "enter", counted),
        App(program) as app,
    ):
        if query is not None:
            app.subscribe(query, got.append)
        for event in events:
            app.push("s", event)
    return count, got


def test_what_subscribers_get() -> None:
    """Batches of one row, numbered, as the ordinary path makes them."""
    program = DICTS + "SELECT k, SUM(x) AS a, COUNT(*) AS c FROM s [RANGE 1 SECOND] GROUP BY k;"
    events: list[Any] = [{"t": at, "k": "ab"[at % 2] * 20, "x": at / 2} for at in range(40)]
    count, got = taken(program, [*events[:30], events[30:]])
    assert count >= 36
    assert [batch.schema.metadata[b"penstock.sequence"] for batch in got[:30]] == [str(n).encode() for n in range(30)]
    assert {batch.schema.metadata[b"penstock.query"] for batch in got} == {b"q1"}
    assert len({batch.schema.remove_metadata() for batch in got}) == 1
    rows = [row for batch in got for row in batch.to_pylist()]
    assert [(row["k"], row["a"], row["c"]) for row in rows] == [
        (event["k"], sum(e["x"] for e in events[: at + 1] if e["k"] == event["k"]), at // 2 + 1)
        for at, event in enumerate(events)
    ]
    for batch in got:
        batch.validate(full=True)


@pytest.mark.parametrize(
    "program",
    [
        DICTS.replace("EVENT TIME t", "EVENT TIME t, LATENESS 1 SECOND") + "SELECT SUM(x) FROM s [RANGE 1 SECOND];",
        DICTS + "SELECT SUM(x) FROM s [RANGE 1 SECOND]; SELECT MAX(x) FROM s [RANGE 2 SECONDS];",
        DICTS + "SELECT UPPER(k), SUM(x) FROM s [RANGE 1 SECOND] GROUP BY k;",
        DICTS + "INSERT INTO d SELECT SUM(x) AS a FROM s [RANGE 1 SECOND]; SELECT MAX(a) FROM d [RANGE 1 SECOND];",
    ],
)
def test_dicts_on_the_ordinary_path(program: str) -> None:
    count = taken(program, [{"t": at, "k": "a", "x": 1.0} for at in range(20)], None)[0]
    assert count == 0


def test_a_refused_list_is_refused_as_a_whole() -> None:
    program = DICTS + "SELECT SUM(x) AS a FROM s [RANGE 1 SECOND];"
    events: list[Any] = [{"t": at, "k": "a", "x": 1.0} for at in range(10)]
    bad = [{"t": 20, "k": "a", "x": 1.0}, {"t": 21, "k": "a", "x": "no number"}]
    with patch.object(push_lanes, "LEAST_PUSHES", 0), App(program) as app:
        for event in events:
            app.push("s", event)
        with pytest.raises(Exception, match="must be DOUBLE"):
            app.push("s", bad)
        assert app.metrics.events == 10
