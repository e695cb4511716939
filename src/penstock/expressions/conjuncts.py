"""Conditions taken apart at AND, and equalities between expressions: what keys of look-ups are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.expressions.tree import Call, Cast, Column, Expression, columns
from penstock.types import SqlType


class Equality(NamedTuple):
    """An expression over one's own columns that equals another one; NULLs never do."""

    own: Expression
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
    """The condition as an equality between an expression over columns that are one's `own` and one over columns that
    are `known` before; None if it is none. An integer column that was widened for the comparison is the column alone:
    that changes no value."""
    if not isinstance(condition, Call) or condition.function != "eq":
        return None
    for side, other in (condition.args, condition.args[::-1]):
        read = columns(side)
        if read and all(map(own, read)) and all(map(known, columns(other))):
            return Equality(_plain(side), other)
    return None


def _plain(expression: Expression) -> Expression:
    if isinstance(expression, Cast) and expression.type.is_integer and isinstance(expression.operand, Column):
        return expression.operand if expression.operand.type.is_integer else expression
    return expression
