"""Comparisons, three-valued logic and conditionals over columns.

NaN equals NaN and is greater than every other number; -0.0 equals 0.0; text compares by its UTF-8 bytes.

Every argument is computed for the whole batch, but a failure counts only where Spark would have evaluated that
argument: AND and OR go from left to right and stop at the first FALSE or TRUE (FALSE AND failure is FALSE, failure AND
FALSE is a failure), CASE and IF count the conditions up to the first TRUE and the value taken, COALESCE the arguments
up to the first that is not NULL, IN the items up to the first that is equal. Called by `expressions.evaluate` only.

Why: docs/decisions/expressions-follow-spark.md
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.expressions.tree import Call, Expression, Literal
from penstock.expressions.vector import (
    Array,
    Codes,
    Mask,
    Operation,
    Site,
    Vector,
    both,
    constant,
    select,
    strict,
    strict_errors,
)
from penstock.types import SqlType

_FEW_ITEMS = 8


def flags(result: Any) -> Mask:
    """The booleans of an Arrow result as numpy; what is under a NULL does not matter."""
    if isinstance(result, pa.Scalar):
        return np.array([bool(result.as_py())])
    if result.null_count:
        result = result.fill_null(False)
    unpacked: Mask = result.to_numpy(zero_copy_only=False)
    return unpacked


def _text_kernel(name: str) -> Callable[[Any, Any], Mask]:
    function = pc.get_function(name)
    return lambda left, right: flags(function.call([left, right]))


def _nan_less(left: Array, right: Array) -> Any:
    return (left < right) | (np.isnan(right) & ~np.isnan(left))


def _nan_equal(left: Array, right: Array) -> Any:
    return (left == right) | (np.isnan(left) & np.isnan(right))


_PLAIN: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_FLOATS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": _nan_equal,
    "ne": lambda left, right: ~_nan_equal(left, right),
    "lt": _nan_less,
    "le": lambda left, right: ~_nan_less(right, left),
    "gt": lambda left, right: _nan_less(right, left),
    "ge": lambda left, right: ~_nan_less(left, right),
}

_FLOATS_TO_NUMBER: dict[str, Callable[[Array, Array], Array]] = {
    **_PLAIN,
    "gt": lambda left, right: ~(left <= right),
    "ge": lambda left, right: ~(left < right),
}
"""Where the right side is a literal that is not NaN, the left may be: one comparison says it."""

_TEXT = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
"""Arrow's names."""


def _is_number(expression: Expression) -> bool:
    return isinstance(expression, Literal) and isinstance(expression.value, float) and not math.isnan(expression.value)


def _kernel(name: str, type_: SqlType, right: Expression | None = None) -> Callable[[Any, Any], Any]:
    if type_ is SqlType.STRING:
        return _text_kernel(_TEXT[name])
    if not type_.is_floating:
        return _PLAIN[name]
    return (_FLOATS_TO_NUMBER if right is not None and _is_number(right) else _FLOATS)[name]


def _compare(call: Call, site: Site) -> Operation:
    return strict(_kernel(call.function, call.args[0].type, call.args[1]))


def _eq_null_safe(call: Call, site: Site) -> Operation:
    kernel = _kernel("eq", call.args[0].type)

    def run(left: Vector, right: Vector) -> Vector:
        equal = kernel(left.values, right.values)
        if left.valid is not None or right.valid is not None:
            known_left, known_right = _known(left), _known(right)
            equal = np.where(known_left & known_right, equal, known_left == known_right)
        return _with_errors(Vector(equal, None), _either(left.errors, right.errors))

    return run


def _known(vector: Vector) -> Mask:
    return np.ones(1, np.bool_) if vector.valid is None else vector.valid


def _either(first: Codes | None, second: Codes | None) -> Codes | None:
    if first is None or second is None:
        return second if first is None else first
    return np.where(first != 0, first, second)


def _with_errors(vector: Vector, errors: Codes | None) -> Vector:
    """The vector with these errors only, and NULL where they are."""
    if errors is None:
        return Vector(vector.values, vector.valid)
    return Vector(vector.values, both(vector.valid, errors == 0), errors)


def _and_two(left: Vector, right: Vector) -> Vector:
    if left.valid is None and right.valid is None:
        return Vector(left.values & right.values, None)
    left_false = _known(left) & ~left.values
    right_false = _known(right) & ~right.values
    decided = left_false | right_false
    vector = Vector(~decided, decided | (_known(left) & _known(right)))
    if left.errors is None and right.errors is None:
        return vector
    counted = None if right.errors is None else np.where(left_false, np.int32(0), right.errors)
    return _with_errors(vector, _either(left.errors, counted))


def _not_one(vector: Vector) -> Vector:
    return Vector(~vector.values, vector.valid, vector.errors)


def _and(call: Call, site: Site) -> Operation:
    def run(first: Vector, *rest: Vector) -> Vector:
        for vector in rest:
            first = _and_two(first, vector)
        return first

    return run


def _or(call: Call, site: Site) -> Operation:
    """By De Morgan, which keeps the order and the stop of AND."""
    conjunction = _and(call, site)
    return lambda *args: _not_one(conjunction(*map(_not_one, args)))


def _not(call: Call, site: Site) -> Operation:
    return _not_one


def _is_null(call: Call, site: Site) -> Operation:
    wanted = call.function == "is_null"

    def run(arg: Vector) -> Vector:
        values = np.full(1, not wanted) if arg.valid is None else (~arg.valid if wanted else arg.valid)
        return _with_errors(Vector(values, None), arg.errors)

    return run


def _overruled(vector: Vector, errors: Codes, nothing: Vector) -> Vector:
    """The vector where there is no error, `nothing` (a constant NULL of its type) with the error elsewhere."""
    return select(errors != 0, Vector(nothing.values, nothing.valid, errors), vector)


def _case(call: Call, site: Site) -> Operation:
    nothing = constant(None, call.type)

    def run(*args: Vector) -> Vector:
        result = args[-1]
        for condition, value in zip(args[-3::-2], args[-2::-2], strict=True):
            taken = condition.values if condition.valid is None else condition.values & condition.valid
            result = select(taken, value, result)
            if condition.errors is not None:
                result = _overruled(result, condition.errors, nothing)
        return result

    return run


def _coalesce(call: Call, site: Site) -> Operation:
    def run(*args: Vector) -> Vector:
        result = args[-1]
        for vector in args[-2::-1]:
            if vector.valid is None:
                result = vector
            else:
                settled = vector.valid if vector.errors is None else vector.valid | (vector.errors != 0)
                result = select(settled, vector, result)
        return result

    return run


def _extreme(call: Call, site: Site) -> Operation:
    """The first of equals is kept, so greatest(-0.0, 0.0) is -0.0, as in Spark."""
    better = _kernel("gt" if call.function == "greatest" else "lt", call.type)
    nothing = constant(None, call.type)

    def run(*args: Vector) -> Vector:
        errors = None
        for vector in args:
            errors = _either(errors, vector.errors)
        best = args[0]
        for vector in args[1:]:
            replaced = better(vector.values, best.values)
            if best.valid is not None:
                replaced = replaced | ~best.valid
            if vector.valid is not None:
                replaced = replaced & vector.valid
            best = select(replaced, vector, best)
        return best if errors is None else _overruled(Vector(best.values, best.valid), errors, nothing)

    return run


def _in_literals(call: Call, site: Site) -> Operation:
    """IN a list of literals; `expressions.evaluate` turns any other IN into OR of equalities."""
    type_ = call.args[0].type
    items = [item.value for item in call.args[1:] if isinstance(item, Literal)]
    given = [item for item in items if item is not None]
    found = _text_finder(given) if type_ is SqlType.STRING else _finder(given, type_)
    unknown = len(given) < len(items)

    def run(value: Vector, *_: Vector) -> Vector:
        hits = found(value.values)
        return Vector(hits, both(value.valid, hits) if unknown else value.valid, strict_errors((value,)))

    return run


def _text_finder(given: list[Any]) -> Callable[[Any], Mask]:
    options = pc.SetLookupOptions(pa.array(given, pa.string()))
    function = pc.get_function("is_in")
    return lambda values: flags(function.call([values], options))


def _finder(given: list[Any], type_: SqlType) -> Callable[[Array], Mask]:
    dtype = np.dtype(np.bool_) if type_ is SqlType.BOOLEAN else type_.storage
    equal = _kernel("eq", type_)
    items = np.unique(np.array(given, dtype))
    if len(items) <= _FEW_ITEMS:

        def few(values: Array) -> Mask:
            hits = np.zeros(len(values), np.bool_)
            for item in items:
                hits |= equal(values, item)
            return hits

        return few

    def many(values: Array) -> Mask:
        places = np.minimum(np.searchsorted(items, values), len(items) - 1)
        hits: Mask = equal(values, items[places])
        return hits

    return many


LOGIC: dict[str, Callable[[Call, Site], Operation]] = {
    **dict.fromkeys(_PLAIN, _compare),
    "eq_null_safe": _eq_null_safe,
    "and": _and,
    "or": _or,
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_null,
    "case": _case,
    "if": _case,
    "coalesce": _coalesce,
    "greatest": _extreme,
    "least": _extreme,
    "in": _in_literals,
}
