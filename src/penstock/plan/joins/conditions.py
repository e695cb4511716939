"""The conditions of a join taken apart: which sides each speaks of, and at which step it may be checked.

FROM a [w] x LEFT JOIN b [w] y ON x.id = y.id AND y.v > 1 WHERE x.v > 0 AND y.v IS NULL
side 0: x.v > 0    side 1: y.v > 1    step 1: x.id = y.id    after the join: y.v IS NULL
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Column, Expression, columns, transform
from penstock.lang.query import Join, JoinKind
from penstock.types import SqlType


@dataclass
class Conditions:
    """`sides[i]` must hold for a row of side i to take part in anything, `steps[j]` when side j is joined to those
    before it, and `after` for a row of the whole join."""

    sides: list[list[Expression]]
    steps: list[list[Expression]]
    after: list[Expression] = field(default_factory=list)


def conjuncts(expression: Expression | None) -> Iterator[Expression]:
    """The parts of a chain of ANDs."""
    if isinstance(expression, Call) and expression.function == "and":
        for arg in expression.args:
            yield from conjuncts(arg)
    elif expression is not None:
        yield expression


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return Call("and", tuple(parts), SqlType.BOOLEAN)


def sides_of(expression: Expression, join: Join) -> set[int]:
    """The places of the sides whose columns an expression reads."""
    named = {name.partition(".")[0] for name in columns(expression)}
    return {place for place, side in enumerate(join.sides) if side.alias in named}


def own(expression: Expression) -> Expression:
    """An expression over one side's columns, with the names that the side's input has for them."""

    def plain(node: Expression) -> Expression:
        return Column(node.name.partition(".")[2], node.type) if isinstance(node, Column) else node

    return transform(expression, plain)


def assigned(join: Join, where: Expression | None) -> Conditions:
    """Where each condition goes. Pushed into a side is only what cannot fail, and only where it changes nothing:

    - a part of ON that reads its own side alone, unless rows of that side remain without a match;
    - a part of WHERE that reads one side, unless NULLs may stand in that side's place.

    A part of WHERE that reads several sides is checked with the last of them, if that is joined INNER.
    """
    found = Conditions([[] for _ in join.sides], [[] for _ in join.sides])
    kinds = [side.kind for side in join.sides]
    for place, side in enumerate(join.sides):
        for part in conjuncts(side.on):
            alone = sides_of(part, join) == {place}
            if alone and not kinds[place].keeps_right and is_total(part):
                found.sides[place].append(part)
            elif kinds[place] is JoinKind.INNER and _step_of(part, join, kinds) == place:
                found.steps[place].append(part)
            elif all(kind is JoinKind.INNER for kind in kinds):
                _place_in_where(part, join, kinds, found)
            else:
                found.steps[place].append(part)
    for part in conjuncts(where):
        _place_in_where(part, join, kinds, found)
    return found


def _place_in_where(part: Expression, join: Join, kinds: Sequence[JoinKind], found: Conditions) -> None:
    read = sides_of(part, join)
    step = _step_of(part, join, kinds)
    if len(read) == 1:
        (place,) = read
        kept = kinds[place] in (JoinKind.INNER, JoinKind.RIGHT)
        if kept and not any(kind.keeps_right for kind in kinds[place + 1 :]) and is_total(part):
            found.sides[place].append(part)
            return
    if step is None:
        found.after.append(part)
    else:
        found.steps[step].append(part)


def _step_of(part: Expression, join: Join, kinds: Sequence[JoinKind]) -> int | None:
    """The step at which a part of WHERE may be checked; None if only after the whole join."""
    last = max(sides_of(part, join), default=0) or 1
    inner = kinds[last] is JoinKind.INNER and not any(kind.keeps_right for kind in kinds[last:])
    return last if inner else None
