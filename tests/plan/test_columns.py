"""Which columns are read, and which expressions can be NULL."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.lang.query import Select
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.plan.nullability import can_be_null

STREAM = "CREATE STREAM s (a INT, b INT NOT NULL, t TIMESTAMP, c INT, d STRING, q INT, e DOUBLE, EVENT TIME t{}){};"


def read(query: str, properties: str = "", after: str = "") -> str:
    program = parse(STREAM.format(properties, after) + query)
    return " ".join(needed_columns(program.streams[0], [build(q.body) for q in program.queries]))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "t"),
        ("SELECT COUNT(*) AS n FROM s [ROWS 3]", "t"),
        ("SELECT SUM(c) AS n FROM s [ROWS 3]", "t c"),
        ("SELECT SUM(c) FILTER (WHERE a > 0) AS n FROM s [ROWS 3] WHERE b > 0 GROUP BY d", "a b t c d"),
        ("SELECT COUNT(*) AS n FROM s [PARTITION BY d ROWS 3] GROUP BY d", "t d"),
        ("SELECT a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] ORDER BY c", "a t c"),
        ("SELECT a + c AS n FROM s WHERE d = 'x'", "a t c d"),
        ("SELECT SUM(n) AS n FROM (SELECT a AS n, c FROM s WHERE e > 0) [ROWS 3]", "a t c e"),
        ("INSERT INTO r SELECT a FROM s; SELECT a FROM r", "a t"),
        ("SELECT SUM(a) AS n FROM (SELECT a FROM s UNION ALL SELECT c FROM s) [ROWS 3]", "a t c"),
        ("SELECT k FROM (SELECT a AS k, SUM(c) AS n FROM s [ROWS 3] GROUP BY a) [ROWS 3]", "a t c"),
        ("SELECT COUNT(*) AS n FROM (SELECT * FROM s UNION ALL SELECT * FROM s) [ROWS 3]", "a b t c d q e"),
    ],
)
def test_only_what_is_read(query: str, expected: str) -> None:
    assert read(query) == expected


def test_sequence_and_late_events_are_read_too() -> None:
    assert read("SELECT a FROM s", " SEQUENCE q") == "a t q"
    assert read("SELECT a FROM s", "", " LATE INTO aside") == "a b t c d q e"


@pytest.mark.parametrize(
    ("expression", "null"),
    [
        ("a", True),
        ("b", False),
        ("5", False),
        ("NULL", True),
        ("b + 1", False),
        ("a + b", True),
        ("b > 3 AND NOT b = 5", False),
        ("a IS NULL", False),
        ("a <=> b", False),
        ("CAST(b AS DOUBLE)", False),
        ("CAST(a AS DOUBLE)", True),
        ("b / 2", True),
        ("CASE WHEN b > 0 THEN 1 END", True),
        ("ABS(b)", False),
    ],
)
def test_what_can_be_null(expression: str, null: bool) -> None:
    program = parse(STREAM.format("", "") + f"SELECT CAST({expression} AS STRING) AS x FROM s")
    body = program.queries[0].body
    assert isinstance(body, Select)
    assert can_be_null(body.outputs[0].expression, program.streams[0].schema) is null
