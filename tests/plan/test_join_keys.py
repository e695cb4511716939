"""By which keys the rows of joined windows are found."""

from __future__ import annotations

import pytest

from penstock.expressions.render import render
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.joins.steps import certain_steps, inner_steps
from penstock.plan.nodes import JoinNode

DECLARED = "".join(f"CREATE STREAM {s} (t TIMESTAMP, k INT, v INT, u STRING, EVENT TIME t);" for s in "abc")


def plan(tail: str) -> JoinNode:
    node = build(parse(f"{DECLARED} SELECT x.k FROM a [RANGE 1 HOUR] AS x {tail}").queries[0].body)
    assert isinstance(node, JoinNode)
    return node


def keys(node: JoinNode) -> tuple[list[str], list[str]]:
    """Those of the first sides of equalities, which cannot fail, and of narrowings, which can."""
    sure = [render(key) for e in node.equalities for key in e.right_keys]
    return sure, [render(key) for n in node.narrowings for key in n.equality.right_keys]


@pytest.mark.parametrize(
    ("where", "sure", "failing"),
    [
        ("x.k = y.k DIV 10 * 10", ["(CAST(k AS BIGINT) DIV 10) * 10"], []),
        ("CAST(y.k AS BIGINT) = x.k", ["CAST(k AS BIGINT)"], []),
        ("x.k % 16 = y.v AND x.u = lower(y.u)", ["v", "lower(u)"], []),
        ("x.u || 'a' = y.u", [], ["u"]),
        ("x.k = y.k + 1", [], ["k + 1"]),
        ("x.u = y.u AND y.k + 1 = x.k AND x.v = y.v * 2", ["u"], ["u", "k + 1", "v * 2"]),
        ("x.v < y.v AND x.k = y.k + 1 AND 10 DIV x.v > 1", [], ["k + 1"]),
        ("10 DIV x.v > 1 AND x.k = y.k + 1", [], []),
        ("x.k + y.k = 3", [], []),
    ],
)
def test_keys_of_two_sides(where: str, sure: list[str], failing: list[str]) -> None:
    node = plan(f", b [RANGE 1 HOUR] AS y WHERE {where}")
    assert keys(node) == (sure, failing)
    assert node.is_theta == (not sure and not failing)


@pytest.mark.parametrize(
    ("tail", "failing"),
    [
        ("LEFT JOIN b [ROWS 9] AS y ON x.k = y.k + 1", ["k + 1"]),
        ("FULL JOIN b [ROWS 9] AS y ON x.v < y.v AND x.k = y.k + 1", ["k + 1"]),
        ("LEFT JOIN b [ROWS 9] AS y ON x.k = y.k + 1 LEFT JOIN c [ROWS 9] AS z ON z.k + 1 = x.k", ["k + 1"]),
        ("LEFT JOIN b [ROWS 9] AS y ON x.k = y.k LEFT JOIN c [ROWS 9] AS z ON z.k + 1 = y.k", []),
        ("LEFT JOIN b [ROWS 9] AS y ON x.k = y.k LEFT JOIN c [ROWS 9] AS z ON z.k + 1 = x.k", ["k + 1"]),
        ("LEFT JOIN b [ROWS 9] AS y ON x.v < y.v WHERE x.k = y.k + 1", []),
    ],
)
def test_keys_of_outer_joins(tail: str, failing: list[str]) -> None:
    assert keys(plan(tail.replace("[ROWS 9]", "[RANGE 1 HOUR]")))[1] == failing


def test_keys_that_can_fail_change_the_order_of_the_sides_only_while_none_does() -> None:
    node = plan(", b [RANGE 1 HOUR] AS y, c [RANGE 1 HOUR] AS z WHERE x.k = z.k + 1 AND z.v = y.v")
    assert [step.side for step in inner_steps(node)[0]] == [1, 2]
    certain = certain_steps(node)
    assert certain is not None
    assert [step.side for step in certain[0]] == [2, 1]
    node = plan(", b [RANGE 1 HOUR] AS y, c [RANGE 1 HOUR] AS z WHERE x.k = z.k + 1 AND z.v - y.v > 1")
    assert certain_steps(node) is None
