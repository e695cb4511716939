"""Limits between the times of two sides: rows within them are found by searching.

    y.t BETWEEN x.t - INTERVAL '5' SECONDS AND x.t    ->    y.t - x.t is in [-5 s, 0]

A band only narrows the search, and only where the columns are the times of the events (or a constant away from them),
which the operator sees when they come; the condition stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.expressions.tree import Call, Column, Expression, Literal
from penstock.lang.durations import LONGEST
from penstock.lang.query import Join
from penstock.plan.nodes import Band
from penstock.types import SqlType

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def bands(parts: Sequence[Expression], step: int, join: Join) -> list[Band]:
    """The bands of the side of a step among its conditions, those of the same columns put together."""
    found: dict[tuple[int, str, int, str], tuple[int | None, int | None]] = {}
    aliases = [side.alias for side in join.sides]
    for part in parts:
        if not isinstance(part, Call) or part.function not in _MIRRORED:
            continue
        one, other = _shifted(part.args[0]), _shifted(part.args[1])
        if one is None or other is None:
            continue
        (name, shift), (other_name, other_shift) = one, other
        left, right = aliases.index(name.partition(".")[0]), aliases.index(other_name.partition(".")[0])
        if left == right:
            continue
        function, limit = part.function, other_shift - shift
        if left < right:  # the later side is the one whose rows are searched first
            left, right, name, other_name = right, left, other_name, name
            function, limit = _MIRRORED[function], -limit
        if left != step:
            continue  # both sides were joined before
        if abs(limit) > LONGEST:
            continue  # no search needs so much, and times would not bear it
        key = (left, name.partition(".")[2], right, other_name.partition(".")[2])
        low, high = found.get(key, (None, None))
        if function in ("ge", "gt", "eq"):
            bound = limit + (function == "gt")
            low = bound if low is None else max(low, bound)
        if function in ("le", "lt", "eq"):
            bound = limit - (function == "lt")
            high = bound if high is None else min(high, bound)
        found[key] = (low, high)
    return [Band(*key, low, high) for key, (low, high) in found.items()]


def _shifted(expression: Expression) -> tuple[str, int] | None:
    """A TIMESTAMP column and the interval that is added to it."""
    if isinstance(expression, Column):
        return (expression.name, 0) if expression.type is SqlType.TIMESTAMP else None
    if not isinstance(expression, Call) or expression.function not in ("add", "subtract"):
        return None
    one, other = expression.args
    if expression.function == "add" and isinstance(one, Literal):
        one, other = other, one
    inner = _shifted(one)
    if inner is None or not isinstance(other, Literal) or other.type is not SqlType.INTERVAL:
        return None
    assert isinstance(other.value, int)
    return inner[0], inner[1] + (other.value if expression.function == "add" else -other.value)
