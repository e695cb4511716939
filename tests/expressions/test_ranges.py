"""Ranges of integer expressions hold every value, and what is said to fit is never a failure."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.batch import Batch
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.ranges import limits, range_of
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal, columns
from penstock.expressions.vector import Vector
from penstock.lang import parse
from penstock.types import SqlType

KINDS = {"a": SqlType.TINYINT, "b": SqlType.INT, "c": SqlType.BIGINT}
FUNCTIONS = ["add", "subtract", "multiply", "negate", "abs", "div", "modulo"]


@st.composite
def expressions(draw: Any, kind: SqlType, depth: int) -> Expression:
    """Expressions of one type; what is narrower is cast."""
    named = [name for name, own in KINDS.items() if own is kind]
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if named and draw(st.booleans()):
            return Column(named[0], kind)
        least, most = limits(kind)
        return Literal(draw(st.sampled_from([least, -10, -3, -1, 0, 1, 2, 10, most])), kind)
    narrower = [own for own in KINDS.values() if own.storage.itemsize < kind.storage.itemsize]
    if narrower and draw(st.booleans()):
        return Cast(draw(expressions(draw(st.sampled_from(narrower)), depth - 1)), kind)
    function = draw(st.sampled_from(FUNCTIONS if kind is SqlType.BIGINT else [*FUNCTIONS[:5], "modulo"]))
    count = 1 if function in ("negate", "abs") else 2
    return Call(function, tuple(draw(expressions(kind, depth - 1)) for _ in range(count)), kind)


def edges(kind: SqlType) -> list[int]:
    least, most = limits(kind)
    return [least, least + 1, -11, -1, 0, 1, 7, most - 1, most]


ROWS = list(itertools.product(*(edges(kind) for kind in KINDS.values())))
BATCH = Batch(
    KINDS,
    {
        name: Vector(np.array([row[place] for row in ROWS], KINDS[name].storage), None)
        for place, name in enumerate(KINDS)
    },
    len(ROWS),
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(list(KINDS.values())).flatmap(lambda kind: expressions(kind, 3)))
def test_ranges_hold_every_value(expression: Expression) -> None:
    result = compile_expression(expression)(BATCH)
    values, valid = result.columns
    least, most = range_of(expression)
    there = values if valid is None else values[valid]
    assert all(least <= int(value) <= most for value in there), expression
    if is_total(expression):
        assert result.errors is None
        if columns(expression):
            assert [int(v) for v in values] == [exact(expression, dict(zip(KINDS, row, strict=True))) for row in ROWS]


def exact(expression: Expression, row: dict[str, int]) -> int:
    """The value in Python's integers, which have no limits."""
    if isinstance(expression, Literal):
        assert isinstance(expression.value, int)
        return expression.value
    if isinstance(expression, Column):
        return row[expression.name]
    if isinstance(expression, Cast):
        return exact(expression.operand, row)
    one, *others = (exact(arg, row) for arg in expression.args)
    if not others:
        return abs(one) if expression.function == "abs" else -one
    (other,) = others
    if expression.function in ("div", "modulo"):
        quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
        return quotient if expression.function == "div" else one - quotient * other
    return {"add": one + other, "subtract": one - other, "multiply": one * other}[expression.function]


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("k + 1", False),
        ("CAST(k AS BIGINT) + 1", True),
        ("k DIV 10 * 10", True),
        ("b DIV 10 * 10", True),
        ("b DIV 10 * 11", False),
        ("k % 16 * 1000 - 7", True),
        ("-k", False),
        ("abs(k % 7)", True),
        ("b % k", False),
        ("b % 0", False),
        ("b DIV greatest(k, 1)", True),
        ("b % greatest(1, b, k)", True),
        ("b / greatest(k, 1)", True),
        ("b DIV greatest(k, 0)", False),
        ("b DIV greatest(k, -5)", False),
        ("b DIV greatest(CAST(b AS INT), 1)", False),
        ("b DIV least(k, 1)", False),
    ],
)
def test_what_cannot_fail(text: str, total: bool) -> None:
    query = f"CREATE STREAM s (t TIMESTAMP, k INT, b BIGINT, EVENT TIME t); SELECT {text} AS e FROM s"
    (query_of,) = parse(query).queries
    assert is_total(query_of.body.outputs[0].expression) is total  # type: ignore[union-attr]
