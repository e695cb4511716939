"""Equalities between two sides, by which rows are found instead of compared.

    x.id = y.id AND x.a = y.b AND x.v < y.v    ->    (x.id, x.a) = (y.id, y.b), and x.v < y.v remains

An expression that can fail on a row stays a condition: if it fails, the pair is rejected and not the row. It may narrow
the search (`plan.joins.narrowing`). An expression that has a value where an outer join has put NULLs stays a condition,
too: no stored row has that value as its key.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Expression
from penstock.lang.join_checks import padded
from penstock.lang.query import Join
from penstock.plan.joins.conditions import own, sides_of
from penstock.plan.nodes import Equality
from penstock.plan.nullability import of_nulls


def equalities(parts: Sequence[Expression], step: int, join: Join) -> tuple[list[Equality], list[Expression]]:
    """The equalities with the side of a step among its conditions, one for each side before it, and the conditions
    that remain. One between two sides before it is a condition too: by then these have been joined."""
    pairs: dict[tuple[int, int], list[tuple[Expression, Expression]]] = {}
    others: list[Expression] = []
    for part in parts:
        found = between_sides(part, join) if is_total(part) else None
        if found is None or found[1] != step or not _found_by_key(found[2][0], found[0], step, join):
            others.append(part)
        else:
            left, right, keys = found
            pairs.setdefault((left, right), []).append(keys)
    return [
        Equality(left, right, tuple(key for key, _ in keys), tuple(key for _, key in keys))
        for (left, right), keys in pairs.items()
    ], others


def between_sides(part: Expression, join: Join) -> tuple[int, int, tuple[Expression, Expression]] | None:
    """The two sides of an equality, each with its expression; None if it is none between two sides."""
    if not isinstance(part, Call) or part.function != "eq":
        return None
    one, other = part.args
    left, right = sides_of(one, join), sides_of(other, join)
    if len(left) != 1 or len(right) != 1 or left == right:
        return None
    (first,), (second,) = left, right
    if first > second:
        first, second, one, other = second, first, other, one
    return first, second, (own(one), own(other))


def _found_by_key(key: Expression, side: int, step: int, join: Join) -> bool:
    """Whether what has no row on a side has no key there either."""
    return not padded(join.sides[:step])[side] or of_nulls(key)
