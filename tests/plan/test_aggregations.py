"""Which queries are one aggregation, what its states are, and how they are counted."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.plan.aggregations import Counts, Look, count, key_of, look_of, unite
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.physical.readers import aggregations
from penstock.plan.physical.rules import plan_program

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, g INT, v INT, x DOUBLE, n INT NOT NULL, EVENT TIME t); "
DAY = "s [RANGE 1 DAY SLIDE 10 SECONDS]"


def plans(*queries: str) -> dict[str, Node]:
    return {query.name: build(query.body) for query in parse(STREAM + "; ".join(queries)).queries}


def nodes(*queries: str) -> list[AggregateNode]:
    found = list(plans(*queries).values())
    assert all(isinstance(node, AggregateNode) for node in found)
    return [node for node in found if isinstance(node, AggregateNode)]


def test_states_of_several_queries_are_their_union() -> None:
    united = unite(
        nodes(
            f"SELECT k, SUM(v) AS a, COUNT(*) AS b FROM {DAY} GROUP BY k",
            f"SELECT k, AVG(x) AS a, AVG(v) AS b, COUNT(n) AS c FROM {DAY} GROUP BY k",
        )
    )
    assert [(state.kind, [want.function for want in state.wants]) for state in united.states] == [
        ("SUM", ["SUM", "AVG"]),
        ("SUM", ["AVG"]),
    ]
    places = [[(answer.state, answer.want) for answer in own] for own in united.answers]
    assert places == [[(0, 0), (-1, 0)], [(1, 0), (0, 1), (-1, 0)]]


def test_mode_keeps_more_than_the_number_of_distinct_values() -> None:
    one, other = nodes(f"SELECT MODE(v) AS a FROM {DAY}", f"SELECT COUNT(DISTINCT v) AS a FROM {DAY}")
    assert len(unite([one, other]).states) == 2
    both = nodes(f"SELECT MODE(v) AS a, COUNT(DISTINCT v) AS b FROM {DAY}")
    assert len(unite([one, *both]).states) == 1


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (f"SELECT MAX(x) AS m, g FROM {DAY} WHERE v > 1 GROUP BY g HAVING COUNT(*) > 3 ORDER BY m LIMIT 2", True),
        (f"SELECT g, SUM(v) AS n FROM {DAY} WHERE v > 2 GROUP BY g", False),
        (f"SELECT k, SUM(v) AS n FROM {DAY} WHERE v > 1 GROUP BY k", False),
        ("SELECT g, SUM(v) AS n FROM s [RANGE 1 DAY SLIDE 5 SECONDS] WHERE v > 1 GROUP BY g", False),
        (f"SELECT g, SUM(1 / v) AS n FROM {DAY} WHERE v > 1 GROUP BY g", False),  # its failures are its own
        (f"SELECT ISTREAM g, SUM(v) AS n FROM {DAY} WHERE v > 1 GROUP BY g", False),  # looks at less
    ],
)
def test_what_makes_queries_one_aggregation(other: str, same: bool) -> None:
    one, another = nodes(f"SELECT g, SUM(v) AS n FROM {DAY} WHERE v > 1 GROUP BY g", other)
    assert (key_of(one) == key_of(another)) is same


@pytest.mark.parametrize(
    ("query", "look"),
    [
        ("SELECT k, SUM(v) AS n FROM s [RANGE 1 DAY] GROUP BY k", Look.EVENT),
        (f"SELECT k, SUM(v) AS n FROM {DAY} GROUP BY k", Look.WHOLE),
        (f"SELECT ISTREAM k, SUM(v) AS n FROM {DAY} GROUP BY k", Look.CHANGES),
        (f"SELECT DSTREAM k, g, SUM(v) AS n FROM {DAY} GROUP BY g, k HAVING COUNT(*) > 1", Look.CHANGES),
        (f"SELECT ISTREAM SUM(v) AS n FROM {DAY}", Look.CHANGES),
        (f"SELECT ISTREAM SUM(v) AS n FROM {DAY} GROUP BY k", Look.WHOLE),  # two groups may give equal rows
        (f"SELECT ISTREAM k, SUM(v) AS n FROM {DAY} GROUP BY k ORDER BY n LIMIT 3", Look.WHOLE),
        (f"SELECT ISTREAM k, 1 / SUM(v) AS n FROM {DAY} GROUP BY k", Look.WHOLE),  # rejected at every evaluation
        (f"SELECT ISTREAM g, MAX(k) AS n FROM {DAY} GROUP BY g", Look.WHOLE),
    ],
)
def test_what_is_looked_at(query: str, look: Look) -> None:
    (node,) = nodes(query)
    assert look_of(node) is look


def test_counts() -> None:
    """Windows that are not shared count for themselves; those below others count, too."""
    below = f"SELECT k, COUNT(*) AS n, SUM(v) AS a FROM {DAY} GROUP BY k"
    program = parse(
        STREAM
        + f"CREATE QUERY a AS {below};"
        + f"CREATE QUERY b AS SELECT k, COUNT(*) AS n, AVG(v) AS a FROM {DAY} GROUP BY k;"
        + f"CREATE QUERY c AS SELECT MAX(n) AS n FROM ({below}) [RANGE 1 DAY SLIDE 1 HOUR]"
    )
    found = aggregations(plan_program(program))
    assert [[name for name, _ in group] for group in found] == [["a", "b", "c"], ["c"]]
    assert count(found) == Counts(asked=7, aggregates=4, states=3)
