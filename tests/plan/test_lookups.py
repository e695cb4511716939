"""How tables are looked up, and where that may run."""

from __future__ import annotations

import pytest

from penstock.expressions.render import render
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.placement import Spread, order_matters, place_alone
from penstock.plan.tables.explain import describe_writes
from penstock.plan.tables.lookups import read_behind
from penstock.plan.tables.nodes import LookupNode

DECLARED = """
CREATE STREAM s (t TIMESTAMP, id INT, x INT, u STRING, EVENT TIME t);
CREATE STREAM w (t TIMESTAMP, id INT, wide BIGINT, u STRING, EVENT TIME t);
CREATE TABLE a (id INT PRIMARY KEY, b INT, u STRING);
CREATE TABLE c (x INT, y STRING, v INT, PRIMARY KEY (x, y));
"""


def plan(query: str, writes: str = "") -> LookupNode:
    node = build(parse(DECLARED + writes + query).queries[0].body)
    assert isinstance(node, LookupNode)
    return node


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("SELECT b FROM s, a WHERE s.id = a.id AND a.u = 'x'", [("a", ("id",))]),
        ("SELECT b FROM s JOIN a ON a.id = s.x + s.id", [("a", ())]),
        ("SELECT b FROM s, a WHERE s.u = a.u AND s.x = a.b", [("a", ("u", "b"))]),
        ("SELECT b FROM s, a WHERE s.x < a.b", [("a", ())]),
        ("SELECT v FROM s, c, a WHERE s.id = a.id AND c.x = a.b AND c.y = s.u", [("a", ("id",)), ("c", ("x", "y"))]),
        ("SELECT v FROM s LEFT JOIN c ON c.x = s.x LEFT JOIN a ON a.id = s.id", [("c", ("x",)), ("a", ("id",))]),
    ],
)
def test_found_by(text: str, by: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [(lookup.table, tuple(map(render, lookup.by))) for lookup in plan(text).lookups] == by


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT b FROM s, a WHERE s.id = a.id", [{"a.b"}]),
        ("SELECT b, s.id FROM s, a WHERE s.id = a.id AND a.u < s.u", [{"a.b", "s.id", "a.u", "s.u"}]),
        ("SELECT v FROM s, a, c WHERE s.id = a.id AND c.x = a.b AND c.y = s.u", [{"a.b", "s.u", "c.v"}, {"c.v"}]),
        # What fails is rejected with all its columns.
        ("SELECT b + 1 AS b FROM s, a WHERE s.id = a.id", [None]),
        ("SELECT v FROM s, a, c WHERE s.id = a.id AND c.x = a.b + 1 AND c.y = s.u", [None, None]),
    ],
)
def test_what_is_read_behind_a_look_up(text: str, read: list[set[str] | None]) -> None:
    assert read_behind(plan(text)) == read


@pytest.mark.parametrize(
    ("where", "by"),
    [
        ("a.id = s.x + s.id", [("id",)]),
        ("a.b + 1 = s.x", [("b + 1",)]),
        ("a.u = s.u AND a.b + 1 = s.x AND 1 DIV a.b > 1", [("u", "b + 1")]),
        ("1 DIV a.b > 1 AND a.b + 1 = s.x", [None]),
        ("a.id = s.id AND a.b + 1 = s.x", [None]),
        ("a.b = s.x AND a.b = s.x + 1", [None]),
        ("a.b + 1 = s.x AND c.v - 1 = a.b", [("b + 1",), ("v - 1",)]),
        ("c.v - 1 = a.b AND a.b + 1 = s.x", [None, ("v - 1",)]),
    ],
)
def test_narrowed_by_what_can_fail(where: str, by: list[tuple[str, ...] | None]) -> None:
    """Conditions that can fail keep their order: what stands behind another one narrows nothing."""
    tables = "a, c" if "c." in where else "a"
    found = [lookup.narrowed for lookup in plan(f"SELECT b FROM s, {tables} WHERE {where}").lookups]
    assert [None if n is None else tuple(map(render, n.by)) for n in found] == by


def test_what_a_later_look_up_rejects_is_not_left_out_before() -> None:
    node = plan("SELECT b FROM s JOIN a ON a.b + 1 = s.x LEFT JOIN c ON c.x = s.x + 1 AND c.y = s.u")
    assert [lookup.narrowed for lookup in node.lookups] == [None, None]
    node = plan("SELECT b FROM s JOIN a ON a.b + 1 = s.x LEFT JOIN c ON c.x = s.x AND c.y = s.u")
    assert node.lookups[0].narrowed is not None


def test_filters_go_first_where_they_cannot_fail() -> None:
    node = plan("SELECT b FROM s, a WHERE s.id = a.id AND s.u = 'x' AND 10 / s.x > 1")
    assert node.first is not None
    assert node.where is not None


WRITE = "ON w UPSERT INTO a (id, b) VALUES (w.id, 1);"


@pytest.mark.parametrize(
    ("text", "writes", "spread"),
    [
        ("SELECT b FROM s, a WHERE s.id = a.id", "", Spread.ANYWHERE),
        ("SELECT b FROM s, a WHERE s.id = a.id", WRITE, Spread.BY_KEY),
        ("SELECT b FROM s, a WHERE s.u = a.u", WRITE, Spread.ONE_PLACE),
        ("SELECT b FROM s, a WHERE s.id = a.id", "ON w DELETE FROM a WHERE a.id = w.wide;", Spread.ONE_PLACE),
        ("SELECT b FROM s, a WHERE s.id = a.id", "ON w DELETE FROM a WHERE a.u = w.u;", Spread.ONE_PLACE),
        ("SELECT b FROM s, a WHERE s.id = a.id", WRITE + "ON s DELETE FROM a WHERE a.id = s.x;", Spread.ONE_PLACE),
    ],
)
def test_placed(text: str, writes: str, spread: Spread) -> None:
    node = plan(text, writes)
    assert place_alone(node).spread is spread
    assert order_matters(node) == bool(writes)


def test_explain_says_how_events_find_the_rows_that_they_change() -> None:
    program = parse("""
        CREATE STREAM s (t TIMESTAMP, k INT, v INT, EVENT TIME t);
        CREATE TABLE r (k INT PRIMARY KEY, v INT);
        ON s WHERE v > 1 UPSERT INTO r (k, v) VALUES (s.k, s.v);
        ON s DELETE FROM r WHERE r.v < s.v;
    """)
    assert describe_writes(program.writes) == [
        "\ntables are changed",
        "├─ every event of s that passes s.v > 1: UPSERT r by its key s.k",
        "└─ every event of s: DELETE r by comparing every row r.v < s.v: name its key in an equality",
    ]
