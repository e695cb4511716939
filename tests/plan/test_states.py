"""States are shared: calls over the same values are answered by one state, and the group's row count serves all."""

from __future__ import annotations

import pytest

from penstock.generators.callcentre import FIELDS, GROUP_KEYS
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode

COLUMNS = "t TIMESTAMP, k STRING, x DOUBLE, y DOUBLE NOT NULL, n INT NOT NULL"


def plan(select: str, columns: str = COLUMNS) -> AggregateNode:
    text = f"CREATE STREAM s ({columns}, EVENT TIME t); SELECT {select} FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k"
    node = build(parse(text).queries[0].body)
    assert isinstance(node, AggregateNode)
    return node


def states(select: str) -> list[str]:
    """Each state as its kind and what it answers."""
    return [f"{s.kind}: {' '.join(w.function for w in s.wants)}" for s in plan(select).states]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("COUNT(*) AS a", []),
        ("COUNT(y) AS a, COUNT(n) AS b", []),
        ("COUNT(x) AS a", ["COUNT: COUNT"]),
        ("SUM(x) AS a, AVG(x) AS b, COUNT(x) AS c, COUNT(*) AS d", ["SUM: SUM AVG COUNT"]),
        ("COUNT(x) AS c, SUM(x) AS a", ["SUM: COUNT SUM"]),
        ("SUM(y) AS a, COUNT(y) AS b", ["SUM: SUM"]),
        ("SUM(x) AS a, SUM(y) AS b", ["SUM: SUM", "SUM: SUM"]),
        ("SUM(x) AS a, SUM(x) FILTER (WHERE n > 0) AS b", ["SUM: SUM", "SUM: SUM"]),
        ("COUNT(*) FILTER (WHERE n > 0) AS a, COUNT(y) FILTER (WHERE n > 0) AS b", ["COUNT: COUNT"]),
        ("SUM(x + y) AS a, AVG(x + y) AS b", ["SUM: SUM AVG"]),
        (
            "MEDIAN(x) AS a, PERCENTILE_CONT(x, 0.5) AS b, PERCENTILE_CONT(x, 0.9) AS c",
            ["ORDER: PERCENTILE_CONT PERCENTILE_CONT"],
        ),
    ],
)
def test_which_states_answer(select: str, expected: list[str]) -> None:
    assert states(select) == expected


def test_every_call_finds_its_answer() -> None:
    node = plan("COUNT(*) AS a, SUM(x) AS b, COUNT(y) AS c, AVG(x) AS d, SUM(x) AS e")
    assert [(a.state, a.want) for a in node.answers] == [(-1, 0), (0, 0), (-1, 0), (0, 1)]
    shown = [o.expression.name for o in node.emission.outputs]  # type: ignore[union-attr]
    assert shown == ["$0", "$1", "$2", "$3", "$1"], "the same call twice is one aggregate"


def call_centre(nullable: bool) -> list[AggregateNode]:
    """The 144 KPIs of the paper: SUM, COUNT and AVG of six fields by each of eight keys."""
    null = "" if nullable else " NOT NULL"
    columns = ", ".join(f"{name} INT{null}" for name in (*FIELDS, *GROUP_KEYS))
    kpis = ", ".join(
        f"{function}({field}) AS {function}_{field}" for field in FIELDS for function in ("SUM", "COUNT", "AVG")
    )
    window = "[RANGE 1 DAY SLIDE 10 SECONDS]"
    queries = ";".join(f"SELECT {key}, {kpis} FROM s {window} GROUP BY {key}" for key in GROUP_KEYS)
    program = parse(f"CREATE STREAM s (t TIMESTAMP, {columns}, EVENT TIME t); {queries}")
    nodes = [build(query.body) for query in program.queries]
    return [node for node in nodes if isinstance(node, AggregateNode)]


def test_the_call_centre_needs_104_aggregates_and_56_states() -> None:
    """Per key: SUM and AVG of six fields and one COUNT are 13 aggregates, six sums and one count are 7 states."""
    nodes = call_centre(nullable=False)
    kpis = sum(len(node.emission.outputs) - 1 for node in nodes)
    distinct = {
        (node.group_by, answer.state, answer.want if answer.state >= 0 else None)
        for node in nodes
        for answer in node.answers
    }
    own_states = {(node.group_by, state) for node in nodes for state in node.states}
    row_counts = {node.group_by for node in nodes if any(answer.state < 0 for answer in node.answers)}
    assert kpis == 144
    assert len(distinct) == 104
    assert len(own_states) + len(row_counts) == 56


def test_with_nulls_every_field_counts_for_itself() -> None:
    nodes = call_centre(nullable=True)
    assert sum(len(node.states) for node in nodes) == 48
    assert all(answer.state >= 0 for node in nodes for answer in node.answers)
