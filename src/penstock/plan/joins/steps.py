"""In which order a join looks for the rows that go with a given one.

In an inner join a row of any side may be the first; the next side is the one with the most keys in common with those
that are there, so that every step looks rows up, if the conditions allow it at all. With outer joins the order is that
of the text, for what a row does not match matters: `operators.joins.outer` goes by `step_of`.

    x.id = y.id AND y.k = z.k, from z:    z, then y by k, then x by id
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.tree import Expression, columns
from penstock.plan.joins.conditions import conjunction
from penstock.plan.nodes import Band, JoinNode

Keys = tuple[Expression, ...]


@dataclass(frozen=True)
class Lookup:
    """Rows of a side whose `keys` are what `from_keys` are in the row of side `from_side`."""

    from_side: int
    from_keys: Keys
    keys: Keys


@dataclass(frozen=True)
class Step:
    """Joins `side` to the sides that are there: rows are looked up (or all taken), the other lookups and the condition
    are checked."""

    side: int
    lookup: Lookup | None
    checks: tuple[Lookup, ...]
    bands: tuple[Band, ...]
    condition: Expression | None


def inner_steps(node: JoinNode, first: int) -> tuple[Step, ...]:
    """The steps from a row of side `first` on."""
    there, steps = {first}, []
    checked: set[Expression] = set()
    while len(there) < len(node.sides):
        best: tuple[int, int, int] | None = None
        for place in range(len(node.sides)):
            if place in there:
                continue
            most = max((len(lookup.keys) for lookup in lookups(node, place, there)), default=0)
            rank = (most, sum(place in (band.side, band.other) for band in _bands(node, place, there)), -place)
            best = rank if best is None or rank > best else best
        assert best is not None
        side = -best[2]
        step = step_of(node, side, there, checked)
        there.add(side)
        steps.append(step)
    return tuple(steps)


def step_of(node: JoinNode, side: int, there: set[int], checked: set[Expression]) -> Step:
    """How a side is joined to those that are there. What is `checked` with it is noted."""
    found = sorted(lookups(node, side, there), key=lambda lookup: -len(lookup.keys))
    aliases = {node.sides[place].alias for place in there | {side}}
    ready = []
    for condition in node.conditions:
        read = {name.partition(".")[0] for name in columns(condition.expression)}
        of_step = read <= aliases if node.is_inner else condition.step == side
        if of_step and condition.expression not in checked:
            checked.add(condition.expression)
            ready.append(condition.expression)
    bands = tuple(_bands(node, side, there))
    return Step(side, found[0] if found else None, tuple(found[1:]), bands, conjunction(ready))


def lookups(node: JoinNode, side: int, there: set[int]) -> list[Lookup]:
    """The equalities of a side with those that are there. With outer joins those are of its own step."""
    found = []
    for equality in node.equalities:
        if equality.right == side and equality.left in there:
            found.append(Lookup(equality.left, equality.left_keys, equality.right_keys))
        elif node.is_inner and equality.left == side and equality.right in there:
            found.append(Lookup(equality.right, equality.right_keys, equality.left_keys))
    return found


def _bands(node: JoinNode, side: int, there: set[int]) -> list[Band]:
    return [
        band
        for band in node.bands
        if (band.side == side and band.other in there) or (node.is_inner and band.other == side and band.side in there)
    ]
