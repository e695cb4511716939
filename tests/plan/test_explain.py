"""EXPLAIN against plain text fixtures: queries, a line of dashes, the plan. Numbers of the formulas are in `cost`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lang import parse
from penstock.plan.explain import explain_program

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.txt"))


def explained(text: str) -> str:
    return explain_program(parse(text))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_plan(path: Path) -> None:
    text, _, expected = path.read_text().partition("----\n")
    assert explained(text) == expected.strip("\n")


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 4


def test_the_order_of_arrival_is_told_of_every_stream() -> None:
    told = explained("""
        CREATE STREAM a (t TIMESTAMP, EVENT TIME t);
        CREATE STREAM b (t TIMESTAMP, EVENT TIME t) FROM 'days/*.csv';
        CREATE STREAM c (t TIMESTAMP, EVENT TIME t) FROM 'generate:stock';
        CREATE STREAM d (t TIMESTAMP, EVENT TIME t) FROM '-';
        CREATE STREAM e (t TIMESTAMP, ARRIVAL ORDER t)
    """)
    assert told.splitlines()[1:] == [
        "stream a, arrival order: as pushed; on Spark unknown (a DataFrame): which events beyond LATENESS are late "
        "depends on the run",
        "stream b, arrival order: files by name, rows by place",
        "stream c, arrival order: as generated",
        "stream d, arrival order: as the lines come; not on Spark",
        "stream e, arrival order: that of its events, which are taken as they come; refused on Spark",
    ]
