"""MATCH_RECOGNIZE: every refusal of `fixtures/recognize_refusals.txt`, and what it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import QueryError
from penstock.lang import parse

STREAM = "CREATE STREAM s (t TIMESTAMP, k INT NOT NULL, n INT, x INT, EVENT TIME t);\n"


def entries() -> list[tuple[str, str]]:
    text = (Path(__file__).parent / "fixtures" / "recognize_refusals.txt").read_text(encoding="utf-8")
    blocks = (block.strip("\n") for block in text.split("\n\n"))
    pairs = (block.split("\n=>\n") for block in blocks if block and not block.startswith("#"))
    return [(query, expected) for query, expected in pairs]


@pytest.mark.parametrize(("query", "expected"), entries(), ids=[query for query, _ in entries()])
def test_refusal(query: str, expected: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(STREAM + query)
    assert str(caught.value) == expected


def test_the_fixture_is_read_in_full() -> None:
    assert len(entries()) > 25


def test_it_is_a_pattern_with_nothing_between() -> None:
    """But for the names of hidden elements and of outputs."""
    recognized, written = parse(
        STREAM
        + """
        SELECT * FROM s MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY t MEASURES A.x AS top, LAST(B.x) AS bottom AFTER MATCH SKIP TO NEXT ROW
            PATTERN (A B{2}) WITHIN 1 MINUTE DEFINE B AS x < PREV(x) AND FIRST(B.x) > A.n) AS m;
        SELECT * FROM (
            SELECT `B 2`.k AS k, A.x AS top, `B 2`.x AS bottom
            FROM PATTERN SEQ(s A, !s `between 1`, s `B 1`, !s `between 2`, s `B 2`)
            WHERE A.k = `between 1`.k AND `between 1`.k = `B 1`.k AND `B 1`.k = `between 2`.k
              AND `between 2`.k = `B 2`.k
              AND (`B 1`.x < A.x AND `B 1`.x > A.n) AND (`B 2`.x < `B 1`.x AND `B 1`.x > A.n)
            WITHIN 1 MINUTE) AS m;
        """
    ).queries
    assert recognized.body == written.body


def test_a_stream_or_a_column_may_bear_the_word() -> None:
    program = parse(
        "SELECT match_recognize.x FROM s AS match_recognize", streams={"s": parse(STREAM).streams[0].schema}
    )
    assert program.queries[0].body.schema.names == ("x",)
