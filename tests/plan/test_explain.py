"""EXPLAIN against plain text fixtures: queries, a line of dashes, the plan. Numbers of the formulas are in `cost`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.explain import explain

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.txt"))


def explained(text: str) -> str:
    program = parse(text)
    return explain(program.queries, {query.name: build(query.body) for query in program.queries})


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_plan(path: Path) -> None:
    text, _, expected = path.read_text().partition("----\n")
    assert explained(text) == expected.strip("\n")


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 4
