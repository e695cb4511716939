"""The page about the language names every function and aggregate there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.aggregates import signatures
from penstock.expressions import functions

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")

OPERATORS = {
    "add", "subtract", "multiply", "divide", "div", "eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "and", "or",
    "not", "in", "like", "case",
}  # fmt: skip
"""Functions that are written as operators."""


def section(title: str) -> str:
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)", text))


def test_every_function_is_listed() -> None:
    listed = names(section("Functions"))
    assert set(functions.FUNCTIONS) - OPERATORS <= listed
    assert listed <= set(functions.FUNCTIONS) | set(functions.ALIASES)


def test_every_aggregate_is_listed() -> None:
    listed = names(section("Aggregates"))
    assert set(signatures.SIGNATURES) - {"COUNT_DISTINCT"} <= listed
    assert "COUNT(DISTINCT x)" in section("Aggregates")
