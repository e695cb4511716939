"""Which queries are split by key and by what key."""

from __future__ import annotations

import pytest

from penstock.expressions.tree import Call, Column
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import Node
from penstock.spark.placement import place
from penstock.types import SqlType

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, n INT, v DOUBLE, w DOUBLE, x INT, EVENT TIME t SEQUENCE x);"


def plan(select: str) -> Node:
    return build(parse(f"{STREAM} {select}").queries[0].body)


def test_by_the_group_keys() -> None:
    placed = place(plan("SELECT k, n, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k, n"))
    assert placed.keys == (Column("k", SqlType.STRING), Column("n", SqlType.INT))


def test_by_the_value_of_an_expression() -> None:
    placed = place(plan("SELECT upper(k) AS u, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY upper(k)"))
    assert placed.keys == (Call("upper", (Column("k", SqlType.STRING),), SqlType.STRING),)


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("SELECT SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS]", "GROUP BY"),
        ("SELECT k, SUM(v) AS a FROM s [ROWS 10 SLIDE 5] GROUP BY k", "RANGE windows"),
        ("SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR] GROUP BY k", "time slide"),
        ("SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k ORDER BY a LIMIT 3", "ORDER BY"),
        ("SELECT ISTREAM SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", "ISTREAM"),
        ("SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR WHEN FULL] GROUP BY k", "WHEN FULL"),
        ("SELECT k, SUM(v) AS a FROM (SELECT k, v FROM s) [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", "subquery"),
    ],
)
def test_one_bucket_and_why(select: str, reason: str) -> None:
    placed = place(plan(select))
    assert placed.keys == ()
    assert reason in placed.reason
