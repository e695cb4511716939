"""Which keys index a pattern's state, and where its events go on Spark."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.lang.render import render
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.plan.nodes import PatternNode, ProjectNode
from penstock.plan.placement import Spread, place_alone

STREAMS = """
CREATE STREAM a (t TIMESTAMP, id INT, at TIMESTAMP, s STRING, x DOUBLE, EVENT TIME t);
CREATE STREAM b (t TIMESTAMP, id BIGINT, at TIMESTAMP, s STRING, y DOUBLE, EVENT TIME t);
"""


def planned(pattern: str) -> tuple[ProjectNode, PatternNode]:
    node = build(parse(f"{STREAMS} SELECT 1 AS x FROM PATTERN {pattern} WITHIN 1 MINUTE").queries[0].body)
    assert isinstance(node, ProjectNode)
    assert isinstance(node.input, PatternNode)
    return node, node.input


def keys(pattern: str) -> list[str]:
    return [", ".join(map(render, element.keys)) for element in planned(pattern)[1].elements]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("SEQ(a p, a q) WHERE p.id = q.id", ["id", "id"]),
        ("SEQ(a p, b q) WHERE p.id = q.id", ["CAST(id AS BIGINT)", "id"]),
        ("SEQ(a p, a q) WHERE p.id = q.id AND p.s = q.s", ["id, s", "id, s"]),
        ("SEQ(a p, a q) WHERE CAST(p.at AS DATE) = CAST(q.at AS DATE)", ["CAST(at AS DATE)", "CAST(at AS DATE)"]),
        ("SEQ(a p, a q) WHERE p.x + 1 = q.x", ["x + 1.0", "x"]),
        ("SEQ(a p, a q) WHERE p.id + 1 = q.id", ["", ""]),  # may overflow: decided when both are there
        ("SEQ(a p, a q, a r) WHERE p.id = q.id", ["", "", ""]),
        ("SEQ(a p, !a q, a r) WHERE p.id = r.id", ["id", "", "id"]),
        ("SEQ(a p, !a q, a r) WHERE p.id = q.id AND q.id = r.id", ["id", "id", "id"]),
        ("SEQ(a p, !a q, a r, !a z) WHERE p.id = q.id AND q.id = r.id", ["", "", "", ""]),
        ("SEQ(a p, !a q, !a z) WHERE p.id = q.id", ["", "", ""]),
        ("SEQ(a p, OR(a q, a r)) WHERE p.id = q.id AND p.id = r.id", ["id", "id", "id"]),
        ("SEQ(a p, OR(a q, a r)) WHERE p.id = q.id AND p.s = r.s", ["", "", ""]),
        ("SEQ(a p, a+ q, a r) WHERE p.id = r.id AND p.id = q.id AND p.s = r.s", ["id", "id", "id"]),
        # With r there is no condition on q, so it is looked for among all events.
        ("SEQ(a p, a+ q, OR(a r, a z)) WHERE p.id = r.id AND p.id = z.id AND q.id = z.id", ["id", "", "id", "id"]),
    ],
)
def test_keys(pattern: str, expected: list[str]) -> None:
    assert keys(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "spread", "reason"),
    [
        ("SEQ(a p, b q) WHERE p.id = q.id", Spread.BY_KEY, "all events of a match have the same key"),
        ("SEQ(a p, a q) WHERE p.id = q.id", Spread.BY_KEY, "all events of a match have the same key"),
        ("SEQ(a p, b q)", Spread.ONE_PLACE, "not all elements of the pattern have a key in common"),
        ("SEQ(a p, a q) WHERE p.s = q.s AND p.id = q.id", Spread.BY_KEY, "all events of a match have the same key"),
        ("SEQ(a p, !b q, a r) WHERE p.id = r.id", Spread.ONE_PLACE, "not all elements of the pattern have a key"),
        ("SEQ(a p, (SELECT id FROM a) q) WHERE p.id = q.id", Spread.ONE_PLACE, "it reads a subquery"),
    ],
)
def test_placement(pattern: str, spread: Spread, reason: str) -> None:
    placement = place_alone(planned(pattern)[0])
    assert placement.spread is spread
    assert placement.reason.startswith(reason)


def test_only_columns_that_are_read_are_taken_in() -> None:
    program = parse(
        f"{STREAMS} SELECT p.x, SUM(c.y) AS s FROM PATTERN SEQ(a p, b+ c) WHERE p.id = c.id WITHIN 1 MINUTE"
    )
    node = build(program.queries[0].body)
    assert [needed_columns(stream, [node]) for stream in program.streams] == [("t", "id", "x"), ("t", "id", "y")]
