"""Arithmetic and mathematics over columns, as Spark SQL's ANSI mode does them.

Integers keep their width and overflow is a failure of the row; `/` is DOUBLE; a zero divisor is a failure, also for
floats; `DIV` truncates toward zero and `%` has the sign of the dividend. Called by `expressions.evaluate` only.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from penstock.expressions.ranges import result_fits
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.expressions.vector import (
    Array,
    Mask,
    Operation,
    Site,
    Vector,
    all_valid,
    both,
    by_row,
    checked,
    fail,
    strict,
    strict_errors,
)
from penstock.types import SqlType

_OVERFLOW = "ARITHMETIC_OVERFLOW"
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_SAFE_TO_SCALE = float(2**40)
_SAFE_PRODUCT = float(2**62)


def _narrow(operation: Callable[..., Array], dtype: np.dtype[Any]) -> Callable[..., tuple[Array, Mask]]:
    """Computed in 64 bits, which cannot overflow for 32-bit arguments, and compared with what fits."""

    def kernel(*args: Array) -> tuple[Array, Mask]:
        wide = operation(*args, dtype=np.int64)
        values = wide.astype(dtype)
        return values, wide != values

    return kernel


def _add_long(left: Array, right: Array) -> tuple[Array, Mask]:
    total = left + right
    return total, ((left ^ total) & (right ^ total)) < 0


def _subtract_long(left: Array, right: Array) -> tuple[Array, Mask]:
    difference = left - right
    return difference, ((left ^ right) & (left ^ difference)) < 0


def _multiply_long(left: Array, right: Array) -> tuple[Array, Mask | None]:
    """The product in floats tells which rows are near the limit; only those are computed exactly."""
    product = left * right
    near = np.abs(left.astype(np.float64) * right) >= _SAFE_PRODUCT
    if not near.any():
        return product, None
    failed = np.zeros(len(product), np.bool_)
    rows = np.flatnonzero(near)
    lefts, rights = np.broadcast_to(left, product.shape), np.broadcast_to(right, product.shape)
    failed[rows] = [not _LONG_MIN <= int(lefts[row]) * int(rights[row]) <= _LONG_MAX for row in rows]
    return product, failed


def _negate_long(values: Array) -> tuple[Array, Mask]:
    return -values, values == _LONG_MIN


def _abs_long(values: Array) -> tuple[Array, Mask]:
    return np.abs(values), values == _LONG_MIN


_INTEGER: dict[str, tuple[Callable[..., Array], Callable[..., tuple[Array, Mask | None]]]] = {
    "add": (np.add, _add_long),
    "subtract": (np.subtract, _subtract_long),
    "multiply": (np.multiply, _multiply_long),
    "negate": (np.negative, _negate_long),
    "abs": (np.abs, _abs_long),
}


def _basic(call: Call, site: Site) -> Operation:
    plain, long = _INTEGER[call.function]
    type_ = call.args[0].type
    if type_.is_floating:
        return strict(plain)
    if result_fits(call):
        return strict(plain)
    kernel = long if type_ in (SqlType.BIGINT, SqlType.INTERVAL) else _narrow(plain, type_.storage)
    return checked(kernel, site(_OVERFLOW))


def _additive(call: Call, site: Site) -> Operation:
    """TIMESTAMP and INTERVAL are both microseconds, so adding them is adding BIGINTs."""
    if call.type is SqlType.TIMESTAMP:
        return checked(_INTEGER[call.function][1], site("DATETIME_OVERFLOW"))
    return _basic(call, site)


def _divisor_first(args: tuple[Vector, ...]) -> tuple[Vector, ...]:
    """Spark evaluates the divisor before the dividend, which decides whose failure counts beside a NULL."""
    return args[::-1]


def _never_fails(call: Call) -> bool:
    """Whether the divisor is a literal by which every number can be divided, or GREATEST of columns and of a literal
    above 0. Integers may be widened."""
    divisor = _unwidened(call.args[1])
    if isinstance(divisor, Call) and divisor.function == "greatest":
        args = [_unwidened(arg) for arg in divisor.args]
        values = [arg.value for arg in args if isinstance(arg, Literal)]
        are_plain = all(isinstance(arg, Column | Literal) for arg in args)
        return are_plain and any(isinstance(value, int | float) and value > 0 for value in values)
    return isinstance(divisor, Literal) and divisor.value is not None and divisor.value not in (0, -1)


def _unwidened(expression: Expression) -> Expression:
    if not isinstance(expression, Cast) or not expression.operand.type.is_integer:
        return expression
    kind, narrow = expression.type, expression.operand.type
    is_wider = kind.is_floating or (kind.is_integer and kind.storage.itemsize > narrow.storage.itemsize)
    return expression.operand if is_wider else expression


def _divide(call: Call, site: Site) -> Operation:
    if _never_fails(call):
        return strict(np.true_divide)
    by_zero = site("DIVIDE_BY_ZERO")

    def run(*args: Vector) -> Vector:
        left, right = args[0].values, args[1].values
        quotient = Vector(left / right, all_valid(args), strict_errors(_divisor_first(args)))
        return fail(quotient, right == 0, by_zero)

    return run


def _toward_zero(left: Array, divisor: Array) -> Array:
    floor = left // divisor
    inexact = (floor * divisor != left) & ((left < 0) != (divisor < 0))
    toward_zero: Array = floor + inexact
    return toward_zero


def _div(call: Call, site: Site) -> Operation:
    if _never_fails(call):
        return strict(_toward_zero)
    by_zero, overflow = site("DIVIDE_BY_ZERO"), site(_OVERFLOW)

    def run(*args: Vector) -> Vector:
        left, right = args[0].values, args[1].values
        zero = right == 0
        divisor = np.where(zero, np.int64(1), right)
        quotient = Vector(_toward_zero(left, divisor), all_valid(args), strict_errors(_divisor_first(args)))
        return fail(fail(quotient, zero, by_zero), (left == _LONG_MIN) & (right == -1), overflow)

    return run


def _modulo(call: Call, site: Site) -> Operation:
    if _never_fails(call):
        return strict(np.fmod)
    by_zero = site("REMAINDER_BY_ZERO")

    def run(*args: Vector) -> Vector:
        left, right = args[0].values, args[1].values
        remainder = Vector(np.fmod(left, right), all_valid(args), strict_errors(_divisor_first(args)))
        return fail(remainder, right == 0, by_zero)

    return run


def _whole(call: Call, site: Site) -> Operation:
    """NaN is 0, as Java's (long) has it; what does not fit fails."""
    if call.args[0].type.is_integer:
        return strict(lambda values: values)
    direction = np.ceil if call.function == "ceil" else np.floor

    def kernel(values: Array) -> tuple[Array, Mask]:
        whole = direction(values)
        failed = (whole >= 2.0**63) | (whole < -(2.0**63))
        return np.where(failed | np.isnan(whole), 0.0, whole).astype(np.int64), failed

    return checked(kernel, site(_OVERFLOW))


def _round(call: Call, site: Site) -> Operation:
    digits = 0
    if len(call.args) == 2:
        literal = call.args[1]
        if not isinstance(literal, Literal) or literal.value is None:
            return lambda *args: Vector(args[0].values, np.zeros(1, np.bool_))
        digits = int(literal.value)
    type_ = call.args[0].type
    if type_.is_floating:
        return strict(lambda values, *_: _round_floats(values, digits))
    if digits >= 0:
        return strict(lambda values, *_: values)
    step = 10**-digits
    limits = np.iinfo(type_.storage.name)
    least, most = limits.min, limits.max

    def exact(value: int) -> int:
        rounded: int = (abs(value) + step // 2) // step * step
        return rounded if value >= 0 else -rounded

    def kernel(values: Array, *_: Array) -> tuple[Array, Mask]:
        rounded = np.array(by_row(exact, values), object)
        failed = ((rounded < least) | (rounded > most)).astype(np.bool_)
        return np.where(failed, 0, rounded).astype(type_.storage), failed

    return checked(kernel, site(_OVERFLOW))


def _round_floats(values: Array, digits: int) -> Array:
    """Halves away from zero of the number as it prints: 2.675 is a half at two digits although its bits are below it.

    Scaling in floats is right except near a half; those rows, and large ones, go through decimals.
    """
    wide = values.astype(np.float64)
    if abs(digits) > 15:
        doubtful = np.isfinite(wide)
        rounded = wide.copy()
    else:
        power = 10.0 ** abs(digits)
        scaled = np.abs(wide * power if digits >= 0 else wide / power)
        whole = np.floor(scaled)
        part = scaled - whole
        doubtful = ((np.abs(part - 0.5) < 2.0**-10) | (scaled > _SAFE_TO_SCALE)) & np.isfinite(wide)
        nearest = whole + (part > 0.5)
        rounded = np.where(np.isfinite(wide), nearest / power if digits >= 0 else nearest * power, wide)
        rounded = np.where(wide < 0, -np.abs(rounded), rounded) + 0.0
    if doubtful.any():
        rounded[doubtful] = [_round_decimal(value, digits) for value in wide[doubtful].tolist()]
    return rounded.astype(values.dtype)


def _round_decimal(value: float, digits: int) -> float:
    printed = Decimal(repr(value))
    exponent = printed.as_tuple().exponent
    if isinstance(exponent, int) and -exponent <= digits:
        return value + 0.0
    return float(printed.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)) + 0.0


def _sign(values: Array) -> Array:
    return np.where(values == 0, values, np.sign(values))


def _power(base: Array, exponent: Array) -> Array:
    """Java's pow differs from C's: NaN wins over a base of 1, and 1 to an infinite power is NaN.

    The exponent is spread over the rows because numpy computes with a constant 2, 0.5 or -1 by other means, whose last
    digit may differ, and only in batches of more than one row.
    """
    if len(exponent) == 1 < len(base):
        exponent = np.full(len(base), exponent[0])
    undefined = np.isnan(exponent) | ((np.abs(base) == 1) & np.isinf(exponent))
    return np.where(undefined, np.nan, np.power(base, exponent))


def _angle(ordinate: Array, abscissa: Array) -> Array:
    """-0.0 counts as 0.0."""
    return np.arctan2(ordinate + 0.0, abscissa + 0.0)


def _logarithm(kernel: Callable[[Array], Array]) -> Callable[[Call, Site], Operation]:
    """NULL, not a failure, where there is no logarithm."""

    def build(call: Call, site: Site) -> Operation:
        def run(arg: Vector) -> Vector:
            return Vector(kernel(arg.values), both(arg.valid, ~(arg.values <= 0)), arg.errors)

        return run

    return build


def _is_nan(call: Call, site: Site) -> Operation:
    def run(arg: Vector) -> Vector:
        nan = np.isnan(arg.values)
        known = None if arg.errors is None else arg.errors == 0
        return Vector(nan if arg.valid is None else nan & arg.valid, known, arg.errors)

    return run


def _shift(call: Call, site: Site) -> Operation:
    operation = np.left_shift if call.function == "shiftleft" else np.right_shift
    dtype = call.type.storage.type
    width = np.int32(63 if call.type is SqlType.BIGINT else 31)
    return strict(lambda values, by: operation(values, (by & width).astype(dtype)))


def _plain(kernel: Callable[..., Array]) -> Callable[[Call, Site], Operation]:
    return lambda call, site: strict(kernel)


ARITHMETIC: dict[str, Callable[[Call, Site], Operation]] = {
    "add": _additive,
    "subtract": _additive,
    "multiply": _basic,
    "negate": _basic,
    "abs": _basic,
    "divide": _divide,
    "div": _div,
    "modulo": _modulo,
    "ceil": _whole,
    "floor": _whole,
    "round": _round,
    "sign": _plain(_sign),
    "sqrt": _plain(np.sqrt),
    "exp": _plain(np.exp),
    "ln": _logarithm(np.log),
    "log10": _logarithm(np.log10),
    "log2": _logarithm(np.log2),
    "pow": _plain(_power),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tan": _plain(np.tan),
    "atan": _plain(np.arctan),
    "atan2": _plain(_angle),
    "degrees": _plain(np.degrees),
    "radians": _plain(np.radians),
    "is_nan": _is_nan,
    "bitand": _plain(np.bitwise_and),
    "bitor": _plain(np.bitwise_or),
    "bitxor": _plain(np.bitwise_xor),
    "shiftleft": _shift,
    "shiftright": _shift,
}
