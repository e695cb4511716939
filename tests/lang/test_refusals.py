"""Every refusal of `fixtures/refusals.txt`: the message, the place with its caret, and the hint, letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import QueryError
from penstock.lang import parse
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


def entries() -> list[tuple[str, str]]:
    text = (Path(__file__).parent / "fixtures" / "refusals.txt").read_text(encoding="utf-8")
    blocks = (block.strip("\n") for block in text.split("\n\n"))
    pairs = (block.split("\n=>\n") for block in blocks if block and not block.startswith("#"))
    return [(query, expected) for query, expected in pairs]


@pytest.mark.parametrize(("query", "expected"), entries(), ids=[query for query, _ in entries()])
def test_refusal(query: str, expected: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(query, streams={"trades": TRADES}, sinks=["files"])
    assert str(caught.value) == expected


def test_the_fixture_is_read_in_full() -> None:
    assert len(entries()) > 120
