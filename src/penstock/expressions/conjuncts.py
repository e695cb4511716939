"""Conditions taken apart at AND, and equalities that name a column: what keys of look-ups are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.expressions.tree import Call, Cast, Column, Expression, columns
from penstock.types import SqlType


class Equality(NamedTuple):
    """A column that equals an expression; NULLs never do."""

    column: str
    other: Expression


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The conditions that AND puts together, from left to right."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.args for part in conjuncts(argument)]
    return [condition]


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    if len(conditions) > 1:
        return Call("and", tuple(conditions), SqlType.BOOLEAN)
    return conditions[0] if conditions else None


def equality(condition: Expression, own: Callable[[str], bool], known: Callable[[str], bool]) -> Equality | None:
    """The condition as an equality between a column that is one's `own` and an expression over columns that are `known`
    before; None if it is none. An integer column may have been widened for the comparison: that changes no value."""
    if not isinstance(condition, Call) or condition.function != "eq":
        return None
    for side, other in (condition.args, condition.args[::-1]):
        column = _plain(side)
        if column is not None and own(column.name) and all(map(known, columns(other))):
            return Equality(column.name, other)
    return None


def _plain(expression: Expression) -> Column | None:
    if isinstance(expression, Cast) and expression.type.is_integer and expression.operand.type.is_integer:
        expression = expression.operand
    return expression if isinstance(expression, Column) else None
