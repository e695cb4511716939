"""Between which integers an expression lies whatever its columns hold: what cannot overflow needs no check.

    CAST(k AS BIGINT) + 1        k is an INT, so it fits a BIGINT
    tod DIV 10 * 10              is never further from 0 than tod

Only integer types have a range here. Values under a NULL are outside of it, and mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.expressions.tree import Call, Cast, Expression, Literal
from penstock.types import SqlType

Range = tuple[int, int]


def range_of(expression: Expression) -> Range:
    """The least and the greatest value of an expression of an integer type.

    >>> from penstock.expressions.tree import Column
    >>> tod = Column("tod", SqlType.INT)
    >>> ten = Literal(10, SqlType.INT)
    >>> range_of(Call("modulo", (tod, ten), SqlType.INT))
    (-9, 9)
    """
    widest = limits(expression.type)
    if isinstance(expression, Literal) and isinstance(expression.value, int):
        return int(expression.value), int(expression.value)
    if isinstance(expression, Cast) and expression.operand.type.is_integer:
        found = range_of(expression.operand)
    elif isinstance(expression, Call) and expression.function in _RESULTS and _of_integers(expression):
        found = _RESULTS[expression.function](*map(range_of, expression.args))
    else:
        return widest
    return found if fits(found, expression.type) else widest


def result_fits(call: Call) -> bool:
    """Whether an operation of integers has a result of its type whatever its arguments are."""
    return _of_integers(call) and fits(_RESULTS[call.function](*map(range_of, call.args)), call.type)


def limits(kind: SqlType) -> Range:
    bounds = np.iinfo(kind.storage.name)
    return int(bounds.min), int(bounds.max)


def fits(found: Range, kind: SqlType) -> bool:
    least, most = limits(kind)
    return least <= found[0] and found[1] <= most


def _of_integers(call: Call) -> bool:
    return call.type.is_integer and all(arg.type.is_integer for arg in call.args)


def _hull(*values: int) -> Range:
    return min(values), max(values)


def _add(one: Range, other: Range) -> Range:
    return one[0] + other[0], one[1] + other[1]


def _subtract(one: Range, other: Range) -> Range:
    return one[0] - other[1], one[1] - other[0]


def _multiply(one: Range, other: Range) -> Range:
    return _hull(*(a * b for a in one for b in other))


def _negate(one: Range) -> Range:
    return -one[1], -one[0]


def _abs(one: Range) -> Range:
    inside = one[0] <= 0 <= one[1]
    return 0 if inside else min(map(abs, one)), max(map(abs, one))


def _div(one: Range, other: Range) -> Range:
    """By the divisors nearest to zero and furthest from it; zero itself fails."""
    divisors = [d for d in (*other, 1, -1) if d and other[0] <= d <= other[1]]
    quotients = [abs(a) // abs(d) * (1 if (a < 0) == (d < 0) else -1) for a in one for d in divisors]
    return _hull(*quotients, 0)


def _modulo(one: Range, other: Range) -> Range:
    """As large as the dividend or the divisor less one at most, with the sign of the dividend."""
    most = max(abs(other[0]), abs(other[1]), 1) - 1
    return max(min(one[0], 0), -most), min(max(one[1], 0), most)


_RESULTS: dict[str, Callable[..., Range]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "negate": _negate,
    "abs": _abs,
    "div": _div,
    "modulo": _modulo,
}
