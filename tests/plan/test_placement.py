"""Where the rows of a stream may go, alone and beside other queries."""

from __future__ import annotations

import pytest

from penstock.expressions.tree import Call, Column
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import Node
from penstock.plan.placement import Placement, Spread, order_matters, place, place_alone
from penstock.types import SqlType

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, n INT, v DOUBLE, w DOUBLE, x INT, EVENT TIME t SEQUENCE x);"


def plan(select: str) -> Node:
    return build(parse(f"{STREAM} {select}").queries[0].body)


def placed(*selects: str, before: dict[str, Spread] | None = None) -> list[Placement]:
    queries = parse(f"{STREAM} {'; '.join(selects)}").queries
    return list(place(queries, {query.name: build(query.body) for query in queries}, before).values())


def test_by_the_group_keys() -> None:
    found = place_alone(plan("SELECT k, n, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k, n"))
    assert found.keys_of("s") == (Column("k", SqlType.STRING), Column("n", SqlType.INT))


def test_by_the_value_of_an_expression() -> None:
    select = "SELECT upper(k) AS u, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY upper(k)"
    assert place_alone(plan(select)).keys_of("s") == (Call("upper", (Column("k", SqlType.STRING),), SqlType.STRING),)


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("SELECT MEDIAN(v) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS]", "GROUP BY"),
        ("SELECT k, SUM(v) AS a FROM s [ROWS 10 SLIDE 5] GROUP BY k", "whole stream"),
        ("SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 5 ROWS] GROUP BY k", "counts the events"),
        ("SELECT RSTREAM k, SUM(v) AS a FROM s [RANGE 1 HOUR] GROUP BY k", "all groups"),
        ("SELECT k, LAST(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k ORDER BY a LIMIT 3", "ORDER BY"),
        ("SELECT ISTREAM SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", "ISTREAM"),
        ("SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR WHEN FULL] GROUP BY k", "WHEN FULL"),
        ("SELECT k, SUM(v) AS a FROM (SELECT k, v FROM s) [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", "subquery"),
    ],
)
def test_one_place_and_why(select: str, reason: str) -> None:
    found = place_alone(plan(select))
    assert (found.spread, found.keys) == (Spread.ONE_PLACE, ())
    assert reason in found.reason


BY_K = "SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k"
BY_N = "SELECT n, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY n"
MEDIAN = "SELECT n, MEDIAN(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY n"


def test_one_key_for_all_is_the_key() -> None:
    assert [p.spread for p in placed(BY_K, BY_K)] == [Spread.BY_KEY] * 2


def test_different_keys_are_merged_from_parts_where_that_can_be_done() -> None:
    assert [p.spread for p in placed(BY_K, BY_N, MEDIAN)] == [Spread.PARTIALS, Spread.PARTIALS, Spread.BY_KEY]


def test_all_that_can_be_merged_is_spread_in_parts_where_that_is_asked_for() -> None:
    queries = parse(f"{STREAM} {BY_K}; {BY_K.replace('SUM', 'MEDIAN')}").queries
    nodes = {query.name: build(query.body) for query in queries}
    assert [p.spread for p in place(queries, nodes, in_parts=True).values()] == [Spread.PARTIALS, Spread.BY_KEY]
    assert place(queries, nodes, {"q1": Spread.BY_KEY}, in_parts=True)["q1"].spread is Spread.BY_KEY


def test_what_was_placed_before_stays_there() -> None:
    found = placed(BY_K, BY_N, before={"q1": Spread.BY_KEY})
    assert [p.spread for p in found] == [Spread.BY_KEY, Spread.PARTIALS]
    assert found[0].keys_of("s") == (Column("k", SqlType.STRING),)


def test_queries_that_are_linked_stay_together() -> None:
    chain = (
        "INSERT INTO d SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k",
        "SELECT a FROM d",
        BY_N,
    )
    assert [p.spread for p in placed(*chain)] == [Spread.ONE_PLACE, Spread.ONE_PLACE, Spread.BY_KEY]


@pytest.mark.parametrize(
    ("select", "matters"),
    [
        (BY_K, False),
        (MEDIAN, False),
        ("SELECT k, v FROM s WHERE v > 0", False),
        ("SELECT k, LAST(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", True),
        ("SELECT k, COUNT(DISTINCT v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", False),
        ("SELECT k, MODE(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", True),
        ("SELECT k, SUM(v) AS a FROM s [RANGE 1 HOUR] GROUP BY k", True),
        ("SELECT SUM(v) AS a FROM s [ROWS 3 SLIDE 1 HOUR]", True),
    ],
)
def test_where_the_order_of_equal_times_matters(select: str, matters: bool) -> None:
    assert order_matters(plan(select)) is matters
