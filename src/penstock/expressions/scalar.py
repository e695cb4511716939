"""Expressions over one row: closures over Python values, for events that come one by one.

The evaluator (`expressions.evaluate`) defines what an expression is. Of a single row it costs microseconds for each
node, most of them for numpy's calls. Here the same tree becomes nested closures over a dict of Python values (bool,
int, float, str; NULL is None), which cost a tenth of that.

Invariants:
1. A value that comes out is the evaluator's, to the bit.
2. Where the evaluator would reject the row, or its answer is not certain here, `RowFails` is raised: then the evaluator
   is asked. A closure changes nothing, so asking twice does no harm.
3. `scalar` knows the common functions; of all others it says None.

Arguments are computed from left to right, and only as far as the evaluator counts their failures: strict functions stop
at the first NULL, AND at the first FALSE, CASE at the first TRUE, COALESCE at the first value.

Why: docs/decisions/single-rows-as-values.md
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from penstock.expressions.ranges import limits
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal, columns
from penstock.expressions.vector import constant
from penstock.types import SqlType

Values = dict[str, Any]
"""A row: its columns as Python values."""

RowFunction = Callable[[Values], Any]
Compile = Callable[[Expression], RowFunction]

_WHOLE = (
    SqlType.TINYINT,
    SqlType.SMALLINT,
    SqlType.INT,
    SqlType.BIGINT,
    SqlType.TIMESTAMP,
    SqlType.DATE,
    SqlType.INTERVAL,
)
"""The types whose values are Python's int."""

_SECOND = 1_000_000


class RowFails(Exception):
    """The row fails, or its value is not certain here: the evaluator says which."""


def scalar(expression: Expression, compile_: Compile) -> RowFunction | None:
    """A closure for the expression; None if its function is not known here. `compile_` is asked for the closures of
    its arguments."""
    if isinstance(expression, Literal):
        return _always(literal_value(expression))
    if isinstance(expression, Column):
        return itemgetter(expression.name)
    if isinstance(expression, Cast):
        found = _cast(expression, compile_)
    else:
        build = _FUNCTIONS.get(expression.function)
        found = None if build is None else build(expression, compile_)
    if found is None or columns(expression):
        return found
    try:
        return _always(found({}))
    except (RowFails, ArithmeticError):
        return found


def literal_value(literal: Literal) -> Any:
    """The Python value that a column of the literal's type would have."""
    if literal.value is None or literal.type is SqlType.STRING:
        return literal.value
    return constant(literal.value, literal.type).values.item(0)


def _always(value: Any) -> RowFunction:
    return lambda values: value


# Arithmetic


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Call, Compile], RowFunction | None]:
    def build(call: Call, compile_: Compile) -> RowFunction | None:
        first, second = call.args
        if first.type is SqlType.DOUBLE and second.type is SqlType.DOUBLE:
            return _of_floats(operation, compile_(first), compile_(second))
        is_long = {first.type, second.type} <= {SqlType.TIMESTAMP, SqlType.INTERVAL}
        if not (first.type.is_integer and first.type is second.type) and not is_long:
            return None
        return _of_whole_numbers(operation, compile_(first), compile_(second), *limits(first.type))

    return build


def _of_whole_numbers(
    operation: Callable[[Any, Any], Any], left: RowFunction, right: RowFunction, least: int, most: int
) -> RowFunction:
    def run(values: Values) -> Any:
        a = left(values)
        if a is None:
            return None
        b = right(values)
        if b is None:
            return None
        result = operation(a, b)
        if least <= result <= most:
            return result
        raise RowFails

    return run


def _of_floats(operation: Callable[[Any, Any], Any], left: RowFunction, right: RowFunction) -> RowFunction:
    def run(values: Values) -> Any:
        a = left(values)
        if a is None:
            return None
        b = right(values)
        if b is None:
            return None
        result = operation(a, b)
        if result != result:  # which NaN it is, the processor's own instructions say
            raise RowFails
        return result

    return run


def _divide(call: Call, compile_: Compile) -> RowFunction | None:
    first, second = call.args
    if first.type is not SqlType.DOUBLE or second.type is not SqlType.DOUBLE:
        return None
    # The divisor is computed first. A division by zero raises an ArithmeticError.
    return _of_floats(lambda divisor, dividend: dividend / divisor, compile_(second), compile_(first))


def _whole_division(operation: Callable[[int, int], int]) -> Callable[[Call, Compile], RowFunction | None]:
    """`operation` takes the divisor first, as it is computed first."""

    def build(call: Call, compile_: Compile) -> RowFunction | None:
        first, second = call.args
        if first.type is not second.type or not first.type.is_integer:
            return None
        if call.function == "div" and first.type is not SqlType.BIGINT:
            return None
        return _of_whole_numbers(operation, compile_(second), compile_(first), *limits(first.type))

    return build


def _toward_zero(divisor: int, dividend: int) -> int:
    return dividend // divisor if (dividend < 0) == (divisor < 0) else -(-dividend // divisor)


def _remainder(divisor: int, dividend: int) -> int:
    """It has the sign of the dividend."""
    return dividend % abs(divisor) if dividend >= 0 else -(-dividend % abs(divisor))


def _of_one(operation: Callable[[Any], Any]) -> Callable[[Call, Compile], RowFunction | None]:
    def build(call: Call, compile_: Compile) -> RowFunction | None:
        (only,) = call.args
        if not only.type.is_integer:
            return None
        least, most = limits(only.type)
        arg = compile_(only)

        def run(values: Values) -> Any:
            a = arg(values)
            if a is None:
                return None
            result = operation(a)
            if least <= result <= most:
                return result
            raise RowFails

        return run

    return build


# Comparisons: NaN equals NaN and is above all other numbers


def _float_equal(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _float_less(a: float, b: float) -> bool:
    return a < b or (b != b and a == a)


_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": _float_equal,
    "ne": lambda a, b: not _float_equal(a, b),
    "lt": _float_less,
    "le": lambda a, b: not _float_less(b, a),
    "gt": lambda a, b: _float_less(b, a),
    "ge": lambda a, b: not _float_less(a, b),
}


def _comparison(name: str, first: SqlType, second: SqlType) -> Callable[[Any, Any], Any] | None:
    if first.is_floating and second.is_floating:
        return _FLOATS[name]
    is_same = first is second and first is not SqlType.NULL
    return _PLAIN[name] if is_same or (first in _WHOLE and second in _WHOLE) else None


def _compare(call: Call, compile_: Compile) -> RowFunction | None:
    first, second = call.args
    holds = _comparison(call.function, first.type, second.type)
    if holds is None:
        return None
    if isinstance(second, Literal) and second.value is not None:
        return _compare_with(holds, first, literal_value(second), compile_)
    left, right = compile_(first), compile_(second)

    def run(values: Values) -> Any:
        a = left(values)
        if a is None:
            return None
        b = right(values)
        return None if b is None else holds(a, b)

    return run


def _compare_with(holds: Callable[[Any, Any], Any], first: Expression, value: Any, compile_: Compile) -> RowFunction:
    """The commonest of all, so those of columns by plain equality are written out."""
    if isinstance(first, Column) and holds is operator.eq:
        name = first.name
        return lambda values: None if (a := values[name]) is None else a == value
    if isinstance(first, Column) and holds is operator.ne:
        name = first.name
        return lambda values: None if (a := values[name]) is None else a != value
    left = compile_(first)

    def run(values: Values) -> Any:
        a = left(values)
        return None if a is None else holds(a, value)

    return run


def _eq_null_safe(call: Call, compile_: Compile) -> RowFunction | None:
    first, second = call.args
    equal = _comparison("eq", first.type, second.type)
    if equal is None:
        return None
    left, right = compile_(first), compile_(second)

    def run(values: Values) -> Any:
        a, b = left(values), right(values)
        return a is b if a is None or b is None else equal(a, b)

    return run


# Logic and conditionals


def _connective(decisive: bool) -> Callable[[Call, Compile], RowFunction]:
    """AND and OR: one `decisive` argument is the answer."""

    def build(call: Call, compile_: Compile) -> RowFunction:
        args = [compile_(arg) for arg in call.args]

        def run(values: Values) -> Any:
            answer: bool | None = not decisive
            for arg in args:
                found = arg(values)
                if found is decisive:
                    return decisive
                if found is None:
                    answer = None
            return answer

        return run

    return build


def _not(call: Call, compile_: Compile) -> RowFunction:
    arg = compile_(call.args[0])

    def run(values: Values) -> Any:
        found = arg(values)
        return None if found is None else not found

    return run


def _is_null(call: Call, compile_: Compile) -> RowFunction:
    arg = compile_(call.args[0])
    if call.function == "is_null":
        return lambda values: arg(values) is None
    return lambda values: arg(values) is not None


def _case(call: Call, compile_: Compile) -> RowFunction:
    args = [compile_(arg) for arg in call.args]
    otherwise = args[-1]
    if len(args) == 3:
        condition, then, _ = args
        return lambda values: then(values) if condition(values) is True else otherwise(values)
    cases = list(zip(args[:-1:2], args[1::2], strict=True))

    def run(values: Values) -> Any:
        for holds, value in cases:
            if holds(values) is True:
                return value(values)
        return otherwise(values)

    return run


def _coalesce(call: Call, compile_: Compile) -> RowFunction:
    args = [compile_(arg) for arg in call.args]

    def run(values: Values) -> Any:
        for arg in args:
            found = arg(values)
            if found is not None:
                return found
        return None

    return run


def _extreme(call: Call, compile_: Compile) -> RowFunction | None:
    better = _comparison("gt" if call.function == "greatest" else "lt", call.type, call.type)
    if better is None or any(arg.type is not call.type for arg in call.args):
        return None
    args = [compile_(arg) for arg in call.args]

    def run(values: Values) -> Any:
        best = None
        for arg in args:
            found = arg(values)
            if found is not None and (best is None or better(found, best)):
                best = found
        return best

    return run


def _in(call: Call, compile_: Compile) -> RowFunction | None:
    value, *items = call.args
    if value.type.is_floating or not all(isinstance(item, Literal) for item in items):
        return None
    if any(item.type is not value.type for item in items if isinstance(item, Literal) and item.value is not None):
        return None
    given = frozenset(literal_value(item) for item in items if isinstance(item, Literal))
    unknown = None if None in given else False
    asked = compile_(value)

    def run(values: Values) -> Any:
        found = asked(values)
        return None if found is None else True if found in given else unknown

    return run


# Casts


def _cast(cast: Cast, compile_: Compile) -> RowFunction | None:
    source, target = cast.operand.type, cast.type
    arg = compile_(cast.operand)
    if source is target or (source is SqlType.FLOAT and target is SqlType.DOUBLE):
        return arg
    if source.is_integer and target.is_integer:
        return arg if target.storage.itemsize >= source.storage.itemsize else _narrowed(arg, *limits(target))
    if source is SqlType.BOOLEAN and target.is_integer:
        return _mapped(arg, int)
    if source.is_integer and target is SqlType.DOUBLE:
        return _mapped(arg, float)
    if source.is_integer and target is SqlType.BOOLEAN:
        return _mapped(arg, bool)
    if source is SqlType.TIMESTAMP and target is SqlType.BIGINT:
        return _mapped(arg, lambda micros: micros // _SECOND)
    return None


def _mapped(arg: RowFunction, function: Callable[[Any], Any]) -> RowFunction:
    def run(values: Values) -> Any:
        found = arg(values)
        return None if found is None else function(found)

    return run


def _narrowed(arg: RowFunction, least: int, most: int) -> RowFunction:
    def run(values: Values) -> Any:
        found = arg(values)
        if found is None or least <= found <= most:
            return found
        raise RowFails

    return run


_FUNCTIONS: dict[str, Callable[[Call, Compile], RowFunction | None]] = {
    "add": _arithmetic(operator.add),
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "negate": _of_one(operator.neg),
    "abs": _of_one(abs),
    "divide": _divide,
    "div": _whole_division(_toward_zero),
    "modulo": _whole_division(_remainder),
    **dict.fromkeys(_PLAIN, _compare),
    "eq_null_safe": _eq_null_safe,
    "and": _connective(False),
    "or": _connective(True),
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_null,
    "case": _case,
    "if": _case,
    "coalesce": _coalesce,
    "greatest": _extreme,
    "least": _extreme,
    "in": _in,
}
