"""Results of dicts that go through the push lane: subscribers get what they get without it, and it does not change."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from penstock import App
from penstock.engine import push_lane, push_lanes
from penstock.errors import InputError
from penstock.lane import sheet_program
from penstock.operators import row_lane

STREAM = """
    CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING NOT NULL, g TINYINT NOT NULL, x DOUBLE NOT NULL, n INT NOT NULL,
                     EVENT TIME t);
"""

KEYS = ("a", "", "ß", "€uro", "ab" * 150, "key of some bytes")


def event(at: int) -> dict[str, Any]:
    return {"t": 1000 + at, "k": KEYS[at % len(KEYS)], "g": at % 3 - 1, "x": at / 8, "n": at % 5}


def pushed(select: str, pushes: list[Any], *, lane: bool, is_heard: bool = True) -> tuple[int, list[pa.RecordBatch]]:
    """How many events the lane has taken, and the results, which are kept until the end."""
    taken, got, enter = 0, list[pa.RecordBatch](), row_lane.RowLane.enter

    def counted(self: Any, rows: int) -> int:
        nonlocal taken
        taken += (found := enter(self, rows))
        return found

    with (
        patch.object(push_lanes, "LEAST_PUSHES", 0 if lane else 1 << 30),
        patch.object(push_lane, "MOST_ROWS", 8),
        patch.object(sheet_program, "SHEET_ROWS", 8),
        patch.object(row_lane.RowLane, "enter", counted),
        App(STREAM + select + ";") as app,
    ):
        if is_heard:
            app.subscribe("q1", got.append)
        for one in pushes:
            app.push("s", one)
        return taken, got if is_heard else app.results("q1").to_batches()


SELECTS = (
    "SELECT k, SUM(x * n) AS a, COUNT(*) AS c FROM s [RANGE 40 MICROSECONDS] GROUP BY k",
    "SELECT SUM(x) AS a FROM s [RANGE 40 MICROSECONDS] GROUP BY k",
    "SELECT k, k AS again, SUM(x) AS a, SUM(x) AS b FROM s [ROWS 30] GROUP BY k",
    "SELECT g, AVG(x) AS a, 2.5 AS two FROM s [RANGE 40 MICROSECONDS] GROUP BY g",
    "SELECT COUNT(*) AS c FROM s [RANGE 40 MICROSECONDS]",
    "SELECT SUM(x) / SUM(n) AS a FROM s [ROWS 2]",
)


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize("is_heard", [True, False])
def test_the_same_as_without_the_lane(select: str, is_heard: bool) -> None:
    """Over several sheets: texts are of any length, and the last query has results that are rejected."""
    events = [event(at) for at in range(120)]
    pushes: list[Any] = [*events[:60], events[60:67], *events[67:70], events[70:78], events[78:90], *events[90:]]
    taken, found = pushed(select, pushes, lane=True, is_heard=is_heard)
    _, expected = pushed(select, pushes, lane=False, is_heard=is_heard)
    assert taken >= 80
    for batch in found:
        batch.validate(full=True)
    if is_heard:
        assert [batch.schema.metadata for batch in found] == [batch.schema.metadata for batch in expected]
    assert [row for batch in found for row in batch.to_pylist()] == [
        row for batch in expected for row in batch.to_pylist()
    ]
    assert {batch.schema.remove_metadata() for batch in found} == {batch.schema.remove_metadata() for batch in expected}


def test_unusual_events_leave_no_trace() -> None:
    """Events that the lane does not take, between events that it takes."""
    usual, odd = [event(at) for at in range(60)], list[dict[str, Any]]()
    for at, change in enumerate(({"n": 1 << 40}, {"k": "\ud800"}, {"x": 1}, {"k": None}, {"t": 5}, {"k": "new"})):
        odd.append(event(20 + at) | change)
    found = []
    for lane in (True, False):
        with patch.object(push_lanes, "LEAST_PUSHES", 0 if lane else 1 << 30), App(STREAM + SELECTS[0] + ";") as app:
            refused = 0
            got: list[pa.RecordBatch] = []
            app.subscribe("q1", got.append)
            for at, one in enumerate(usual):
                app.push("s", one)
                if 20 <= at < 20 + len(odd):
                    for pushing in (odd[at - 20], [odd[at - 20], one]):
                        try:
                            app.push("s", pushing)
                        except InputError:
                            refused += 1
            found.append((refused, [batch.to_pylist() for batch in got], app.metrics.events, app.metrics.late))
    assert found[0] == found[1]
