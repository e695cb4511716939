"""The keys that the events of a match have in common: equalities that connect all elements.

    SEQ(A a, !B b, C c) WHERE a.id = b.id AND b.id = c.id     by id: a.id, b.id, c.id
    SEQ(A a, !B b, C c) WHERE a.id = c.id                     by id: a.id, c.id; b is looked for among all events
    SEQ(A a, B b, C c) WHERE a.id = b.id                      none: c has no part in it

Events of one key are all that a match needs, so the state is indexed by it, and on Spark they are in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Expression, columns
from penstock.lang.query import Pattern, Role

Keys = dict[int, tuple[Expression, ...]]
"""The keys of each element that has them, in the same order; their columns are `element.column`."""

_Class = dict[int, Expression]


def elements_in(pattern: Pattern, condition: Expression) -> frozenset[int]:
    """The elements that a condition names itself, and not through an aggregate."""
    named = {name.partition(".")[0] for name in columns(condition) if not name.startswith("$")}
    return frozenset(i for i, element in enumerate(pattern.elements) if element.name in named)


def common_keys(pattern: Pattern, applicable: Sequence[Sequence[Expression]]) -> Keys:
    """`applicable` are the conditions for each order. Keys that all elements have are used alone where there are some;
    otherwise those that all plain elements have."""
    orders = pattern.alternatives
    plain = [{e for e in order if pattern.elements[e].role is Role.PLAIN} for order in orders]
    for wanted in ([set(order) for order in orders], plain):
        found: list[_Class] | None = None
        for needed, conditions in zip(wanted, applicable, strict=True):
            own = [c for c in _classes(pattern, conditions) if needed <= c.keys()]
            found = own if found is None else _agreed(found, own)
        if found:
            have = set.intersection(*(set(c) for c in found))
            return {e: tuple(c[e] for c in found) for e in sorted(have)}
    return {}


def _classes(pattern: Pattern, conditions: Sequence[Expression]) -> list[_Class]:
    """Sets of expressions, each over one element, that equalities say are equal; of each element the first."""
    groups: list[list[tuple[int, Expression]]] = []
    for condition in conditions:
        sides = equality(pattern, condition)
        if sides is None:
            continue
        touched = [group for group in groups if any(side in group for side in sides)]
        merged = [member for group in touched for member in group]
        merged += [side for side in sides if side not in merged]
        groups = [group for group in groups if group not in touched] + [merged]
    classes: list[_Class] = []
    for group in groups:
        chosen: _Class = {}
        for element, expression in group:
            chosen.setdefault(element, expression)
        classes.append(chosen)
    return classes


def equality(pattern: Pattern, condition: Expression) -> tuple[tuple[int, Expression], tuple[int, Expression]] | None:
    """The two sides of `a.x = b.y`, with their elements, where neither can fail."""
    if not isinstance(condition, Call) or condition.function != "eq" or not is_total(condition):
        return None
    left, right = condition.args
    mine, theirs = elements_in(pattern, left), elements_in(pattern, right)
    aggregated = any(name.startswith("$") for name in columns(condition))
    if len(mine) != 1 or len(theirs) != 1 or mine == theirs or aggregated:
        return None
    return (next(iter(mine)), left), (next(iter(theirs)), right)


def _agreed(found: list[_Class], others: list[_Class]) -> list[_Class]:
    """The keys of several orders as one, where these agree about the elements that they share."""
    agreed: list[_Class] = []
    for one in found:
        for other in others:
            shared = one.keys() & other.keys()
            same_type = next(iter(one.values())).type is next(iter(other.values())).type
            if same_type and all(one[e] == other[e] for e in shared):
                agreed.append(one | other)
                break
    return agreed
