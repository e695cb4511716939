"""Patterns as they are read: every refusal of `fixtures/pattern_refusals.txt`, and what is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import QueryError
from penstock.lang import parse
from penstock.lang.pattern_orders import shuffles
from penstock.lang.query import Pattern, Role, Select
from penstock.types import Field, Schema, SqlType

TRADES = Schema(
    (
        Field("t", SqlType.TIMESTAMP, nullable=False),
        Field("symbol", SqlType.STRING),
        Field("price", SqlType.DOUBLE),
        Field("volume", SqlType.INT),
        Field("buy", SqlType.BOOLEAN),
    )
)
OTHER = Schema((Field("t", SqlType.TIMESTAMP, nullable=False), Field("own", SqlType.INT)))


def entries() -> list[tuple[str, str]]:
    text = (Path(__file__).parent / "fixtures" / "pattern_refusals.txt").read_text(encoding="utf-8")
    blocks = (block.strip("\n") for block in text.split("\n\n"))
    pairs = (block.split("\n=>\n") for block in blocks if block and not block.startswith("#"))
    return [(query, expected) for query, expected in pairs]


def pattern_of(text: str) -> tuple[Select, Pattern]:
    body = parse(text, streams={"trades": TRADES, "other": OTHER, "pattern": TRADES, "one": TRADES}).queries[0].body
    assert isinstance(body, Select)
    assert isinstance(body.source, Pattern)
    return body, body.source


@pytest.mark.parametrize(("query", "expected"), entries(), ids=[query for query, _ in entries()])
def test_refusal(query: str, expected: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(query, streams={"trades": TRADES})
    assert str(caught.value) == expected


def test_the_fixture_is_read_in_full() -> None:
    assert len(entries()) > 40


@pytest.mark.parametrize(
    ("written", "orders"),
    [
        ("SEQ(trades a, trades b)", [(0, 1)]),
        ("SEQ(trades a, OR(trades b, trades c), trades d)", [(0, 1, 3), (0, 2, 3)]),
        ("SEQ(trades a, AND(trades b, trades c))", [(0, 1, 2), (0, 2, 1)]),
        ("AND(SEQ(trades a, trades b), trades c)", [(0, 1, 2), (0, 2, 1), (2, 0, 1)]),
        ("OR(trades a, SEQ(trades b, !trades c))", [(0,), (1, 2)]),
    ],
)
def test_orders(written: str, orders: list[tuple[int, ...]]) -> None:
    _, pattern = pattern_of(f"SELECT 1 AS one FROM PATTERN {written} WITHIN 1 SECOND")
    assert list(pattern.alternatives) == orders


def test_shuffles_are_as_many_as_they_must_be() -> None:
    assert len(set(shuffles(((1, 2), (3, 4), (5,))))) == 30


def test_elements() -> None:
    _, pattern = pattern_of(
        "SELECT 1 AS x FROM PATTERN SEQ(ONE trades a, NOT other b, ALL trades+ c, (SELECT own FROM other) d, `one` e) "
        "WITHIN 2 MINUTES"
    )
    assert [(e.name, e.input, e.role, e.one) for e in pattern.elements] == [
        ("a", 0, Role.PLAIN, True),
        ("b", 1, Role.ABSENT, False),
        ("c", 0, Role.REPEATED, False),
        ("d", 2, Role.PLAIN, False),
        ("e", 3, Role.PLAIN, False),
    ]
    assert pattern.within == 120_000_000


def test_a_star_names_columns_plainly_where_they_are_unique() -> None:
    body, _ = pattern_of("SELECT * FROM PATTERN SEQ(trades a, !trades b, trades+ c, other d) WITHIN 1 SECOND")
    assert body.schema.names == ("a_t", "symbol", "price", "volume", "buy", "d_t", "own")


def test_a_stream_may_be_named_pattern() -> None:
    program = parse("SELECT seq.price FROM pattern seq; SELECT price FROM pattern", streams={"pattern": TRADES})
    assert [query.body.schema.names for query in program.queries] == [("price",), ("price",)]


def test_what_may_be_missing_may_be_null() -> None:
    body, _ = pattern_of(
        "SELECT a.t AS x, b.t AS y, COUNT(c.*) AS n FROM PATTERN SEQ(trades a, OR(trades b, trades+ c), trades d) "
        "WITHIN 1 SECOND"
    )
    assert [field.nullable for field in body.schema] == [False, True, True]


@pytest.mark.parametrize("operator", ["SEQ", "AND", "OR"])
def test_elements_have_a_number(operator: str) -> None:
    elements = ", ".join(f"trades a{i}" for i in range(2000))
    with pytest.raises(QueryError, match="a pattern has at most 100 elements"):
        pattern_of(f"SELECT 1 AS x FROM PATTERN {operator}({elements}) WITHIN 1 MINUTE")
