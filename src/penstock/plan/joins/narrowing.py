"""Equalities that can fail on a row, and still say where to look: the search is shorter, what is rejected is the same.

    x.k = y.k + 1 AND x.v < y.v           y.k + 1 may overflow: each pair with that row is rejected
    x.id = y.id AND x.k = y.k + 1         found by both

A pair is rejected where its condition fails, and AND goes from left to right up to the first FALSE. A pair whose keys
can be computed and differ has a FALSE at the equality. It may be left out if no condition before the equality can
fail: then nothing of it is rejected. Rows whose key fails are compared with all rows of the window, as without a key.
So are rows whose key is NULL, if another condition can fail: AND goes on behind a NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Expression
from penstock.lang.join_checks import padded
from penstock.lang.query import Join, JoinKind
from penstock.plan.joins.conditions import sides_of
from penstock.plan.joins.keys import between_sides
from penstock.plan.nodes import Condition, Equality, Narrowing

_Pair = tuple[int, int]


def narrowings(conditions: Sequence[Condition], equalities: Sequence[Equality], join: Join) -> tuple[Narrowing, ...]:
    """The equalities that narrow the search, one for each pair of sides at most."""
    steps: dict[Expression, int] = {}
    for condition in conditions:
        if not is_total(condition.expression):
            steps.setdefault(condition.expression, condition.step)
    inner = all(side.kind is JoinKind.INNER for side in join.sides)
    found = _inner(list(steps), join) if inner else _outer(steps, join)
    return tuple(
        _narrowing(pair, parts, equalities, any(part not in parts for part in steps), join)
        for pair, parts in found.items()
    )


def _inner(failing: Sequence[Expression], join: Join) -> dict[_Pair, list[Expression]]:
    """Of each pair of sides the first equalities, as far as no other condition comes between them. One before them that
    reads these sides alone is always checked with them: then nothing may be left out."""
    found: dict[_Pair, list[Expression]] = {}
    last: _Pair | None = None
    for number, part in enumerate(failing):
        pair = _pair(part, join)
        if pair is not None and pair == last:
            found[pair].append(part)
            continue
        last = None
        if pair is not None and not any(sides_of(before, join) <= set(pair) for before in failing[:number]):
            found[pair] = [part]
            last = pair
    return found


def _outer(steps: dict[Expression, int], join: Join) -> dict[_Pair, list[Expression]]:
    """The first equalities of the first step that can fail: what an earlier step rejects depends on which of its rows
    are looked at. Rows without a match are looked at with all others, so each must have a row of the side that it is
    found by."""
    found: dict[_Pair, list[Expression]] = {}
    first = min(steps.values(), default=0)
    for part, step in steps.items():
        pair = _pair(part, join)
        if step != first:
            continue
        if pair is None or pair[1] != step or (found and pair not in found) or padded(join.sides[:step])[pair[0]]:
            break
        found.setdefault(pair, []).append(part)
    return found


def _pair(part: Expression, join: Join) -> _Pair | None:
    between = between_sides(part, join)
    return None if between is None else between[:2]


def _narrowing(
    pair: _Pair, parts: Sequence[Expression], equalities: Sequence[Equality], with_nulls: bool, join: Join
) -> Narrowing:
    left: list[Expression] = []
    right: list[Expression] = []
    for equality in equalities:
        if (equality.left, equality.right) == pair:
            left += equality.left_keys
            right += equality.right_keys
    for part in parts:
        between = between_sides(part, join)
        assert between is not None
        left.append(between[2][0])
        right.append(between[2][1])
    return Narrowing(Equality(*pair, tuple(left), tuple(right)), tuple(parts), with_nulls)
