"""Which windows are shared, and what makes two columns or two groupings the same."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.physical.readers import sharers
from penstock.plan.physical.rules import plan_program
from penstock.plan.reads import fallible_reads, grouping_of, reads_of
from penstock.plan.sharing import may_share, shareable

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v INT, x DOUBLE, EVENT TIME t); "


def plans(*queries: str) -> dict[str, Node]:
    program = parse(STREAM + "; ".join(queries))
    return {query.name: build(query.body) for query in program.queries}


def aggregate(query: str) -> AggregateNode:
    (node,) = plans(query).values()
    assert isinstance(node, AggregateNode)
    return node


@pytest.mark.parametrize(
    ("query", "shared"),
    [
        ("SELECT SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]", True),
        ("SELECT SUM(v) AS n FROM s [RANGE 1 HOUR]", True),
        ("SELECT SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 5 ROWS]", True),
        ("SELECT SUM(v) AS n FROM s [ROWS 5 SLIDE 1 MINUTE]", True),
        ("SELECT ISTREAM k, SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", True),
        ("SELECT k, SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k", False),
        ("SELECT SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE ON WALL CLOCK]", False),
        ("SELECT k, SUM(v) AS n FROM s [PARTITION BY k ROWS 5] GROUP BY k", False),
        ("SELECT SUM(v) AS n FROM s [SINCE TIMESTAMP '2020-01-01' SLIDE 1 HOUR]", False),
        ("SELECT SUM(v) AS n FROM s [SESSION 1 MINUTE]", False),
        ("SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]", False),
    ],
)
def test_windows_that_store_the_stream_are_shared(query: str, shared: bool) -> None:
    (node,) = plans(query).values()
    assert may_share(node) is shared
    assert shareable(node) == ([node] if shared else [])


def test_the_window_below_another_is_shared_and_the_one_above_is_not() -> None:
    below = "SELECT k, SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k"
    (node,) = plans(f"SELECT MAX(n) AS n FROM ({below}) [RANGE 1 DAY SLIDE 1 HOUR]").values()
    assert isinstance(node, AggregateNode)
    assert shareable(node) == [node.input]


def test_who_shares_with_whom() -> None:
    program = parse(
        STREAM
        + "CREATE QUERY a AS SELECT SUM(v) AS n FROM s [ROWS 5];"
        + "CREATE QUERY b AS SELECT v FROM s;"
        + "CREATE QUERY c AS SELECT MAX(v) AS n FROM s [RANGE 1 HOUR];"
        + "INSERT INTO d SELECT MIN(v) AS n FROM s [RANGE 1 DAY SLIDE 1 HOUR] WHERE v > 1;"
        + "CREATE QUERY e AS SELECT MIN(n) AS n FROM d [ROWS 10]"
    )
    assert sharers(plan_program(program)) == {"a": ["c", "d"], "c": ["a", "d"], "d": ["a", "c"]}


def test_a_column_is_named_by_what_it_computes() -> None:
    one = aggregate("SELECT SUM(v) FILTER (WHERE x > 1) AS a, MAX(k) AS b FROM s [ROWS 5]")
    other = aggregate("SELECT COUNT(DISTINCT k) AS a, AVG(v) AS b, MIN(x) AS c FROM s [RANGE 1 HOUR] GROUP BY k")
    names, others = ([read.name for read in reads_of(node.states)] for node in (one, other))
    assert [name.split()[0] for name in names] == ["filter", "argument", "text"]
    assert set(names) & set(others) == {names[1], names[2]}
    twins = [aggregate(f"SELECT SUM(x + {zero}) AS a FROM s [ROWS 5]") for zero in ("0.0D", "-0.0D")]
    assert reads_of(twins[0].states)[0].name != reads_of(twins[1].states)[0].name


def test_arguments_that_can_fail_are_a_part_of_the_grouping() -> None:
    """A row on which 1/v fails is in no group of the queries that compute it, and in the groups of the others."""
    plain = aggregate("SELECT SUM(x) AS n FROM s [ROWS 5]")
    other = aggregate("SELECT MAX(k) AS n FROM s [RANGE 1 HOUR]")
    fails = aggregate("SELECT SUM(x) AS n, MAX(1 / v) AS m FROM s [ROWS 5]")
    guarded = aggregate("SELECT SUM(x) AS n, MAX(1 / v) FILTER (WHERE v > 0) AS m FROM s [ROWS 5]")
    both = aggregate("SELECT MAX(1 / v) FILTER (WHERE v > 0) AS n, MIN(1 / v) AS m FROM s [ROWS 5]")
    assert grouping_of(plain).name == grouping_of(other).name
    assert len({grouping_of(node).name for node in (plain, fails, guarded)}) == 3
    assert grouping_of(fails).name == grouping_of(both).name
    (behind,) = fallible_reads(guarded.states)
    assert [read.is_filter for read in behind.behind] == [True]
    assert fallible_reads(both.states)[0].behind == ()
