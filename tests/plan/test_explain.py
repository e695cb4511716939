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
