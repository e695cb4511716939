"""The keys that the events of a match have in common: equalities that connect all elements.

    SEQ(A a, !B b, C c) WHERE a.id = b.id AND b.id = c.id     by id: a.id, b.id, c.id
    SEQ(A a, !B b, C c) WHERE a.id = c.id                     by id: a.id, c.id; b is looked for among all events
    SEQ(A a, B b, C c) WHERE a.id = b.id                      none: c has no part in it

Events of one key are all that a match needs, so the state is indexed by it, and on Spark they are in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Cast, Expression, columns
from penstock.lang.query import Pattern, Role
from penstock.types import SqlType

Keys = dict[int, tuple[Expression, ...]]
"""The keys of each element that has them, in the same order; their columns are `element.column`."""

Class = dict[int, Expression]
"""One key: of each element that has it, what it is."""

Equal = list[tuple[int, Expression]]
"""Expressions that equalities say are equal, each with the element it is over."""


def elements_in(pattern: Pattern, condition: Expression) -> frozenset[int]:
    """The elements that a condition names itself, and not through an aggregate."""
    named = {name.partition(".")[0] for name in columns(condition) if not name.startswith("$")}
    return frozenset(i for i, element in enumerate(pattern.elements) if element.name in named)


def common_keys(pattern: Pattern, applicable: Sequence[Sequence[Expression]]) -> Keys:
    """`applicable` are the conditions for each order. Keys that all elements have, which make partitions, are used
    alone where there are some; otherwise those that all plain elements have by themselves, if these are several."""
    orders = pattern.alternatives
    plain = [{e for e in order if pattern.elements[e].role is Role.PLAIN} for order in orders]
    by_order = [list(map(_chosen, partitions(pattern, o, c))) for o, c in zip(orders, applicable, strict=True)]
    found = _in_all(by_order)
    if not found and all(len(elements) > 1 for elements in plain):
        by_order = [_among_plain(pattern, p, c) for p, c in zip(plain, applicable, strict=True)]
        found = _in_all(by_order)
    have = set.intersection(*(set(c) for c in found)) if found else set()
    # What has the key in one order and not in another one must be found there by any key.
    there = [[keys for o, keys in zip(orders, by_order, strict=True) if e in o] for e in range(len(pattern.elements))]
    have = {e for e in have if all(_has(keys, e, c) for keys in there[e] for c in found)}
    return {e: tuple(c[e] for c in found) for e in sorted(have)}


def _has(keys: list[Class], element: int, common: Class) -> bool:
    """Whether an element has a common key among the keys of one order."""
    return any(element in key and key.items() <= common.items() for key in keys)


def partitions(pattern: Pattern, order: tuple[int, ...], conditions: Sequence[Expression]) -> list[Equal]:
    """What equalities say is equal of all elements of an order, be it through one that must not come. All events of a
    match are in one partition, and an event with a NULL in its key is in none."""
    return [g for g in _groups(pattern, conditions) if set(order) <= {e for e, _ in g} and len(order) > 1]


def _among_plain(pattern: Pattern, plain: set[int], conditions: Sequence[Expression]) -> list[Class]:
    """Keys that plain elements have without the others; and the others where they are equal to those."""
    sides = [s for s in (equality(pattern, c) for c in conditions) if s is not None]
    between = [c for c in conditions if elements_in(pattern, c) <= plain]
    found = [c for c in map(_chosen, _groups(pattern, between)) if plain <= c.keys()]
    for one, other in [*sides, *((b, a) for a, b in sides)]:
        for keys in found:
            if one[0] not in plain and keys.get(other[0]) == other[1] and other[0] in plain:
                keys.setdefault(*one)
    return found


def _groups(pattern: Pattern, conditions: Sequence[Expression]) -> list[Equal]:
    """Sets of expressions, each over one element, that equalities say are equal."""
    groups: list[Equal] = []
    for condition in conditions:
        sides = equality(pattern, condition)
        if sides is None:
            continue
        touched = [group for group in groups if any(side in group for side in sides)]
        merged = [member for group in touched for member in group]
        merged += [side for side in sides if side not in merged]
        groups = [group for group in groups if group not in touched] + [merged]
    return groups


def _chosen(group: Equal) -> Class:
    """Of each element the first."""
    chosen: Class = {}
    for element, expression in group:
        chosen.setdefault(element, expression)
    return chosen


def equality(pattern: Pattern, condition: Expression) -> tuple[tuple[int, Expression], tuple[int, Expression]] | None:
    """The two sides of `a.x = b.y`, with their elements, where neither can fail. Integers are widened, so that the keys
    of three elements are one though two of them are compared as INT."""
    if not isinstance(condition, Call) or condition.function != "eq" or not is_total(condition):
        return None
    left, right = condition.args
    mine, theirs = elements_in(pattern, left), elements_in(pattern, right)
    aggregated = any(name.startswith("$") for name in columns(condition))
    if len(mine) != 1 or len(theirs) != 1 or mine == theirs or aggregated:
        return None
    return (next(iter(mine)), _widened(left)), (next(iter(theirs)), _widened(right))


def _widened(expression: Expression) -> Expression:
    if not expression.type.is_integer or expression.type is SqlType.BIGINT:
        return expression
    return Cast(expression, SqlType.BIGINT)


def narrowed(keys: Keys) -> Keys:
    """The same keys without the widening that none of the elements needs."""
    by_key = zip(*keys.values(), strict=True)
    stripped = [(column, [_narrow(key) for key in column]) for column in by_key]
    chosen = [tuple(narrow) if len({key.type for key in narrow}) == 1 else column for column, narrow in stripped]
    return dict(zip(keys, zip(*chosen, strict=True), strict=True)) if chosen else keys


def _narrow(key: Expression) -> Expression:
    widens = isinstance(key, Cast) and key.type is SqlType.BIGINT and key.operand.type.is_integer
    return key.operand if widens and isinstance(key, Cast) else key


def _in_all(orders: Sequence[list[Class]]) -> list[Class]:
    """Keys that all orders have, as one where they agree about the elements that they share."""
    found = orders[0]
    for others in orders[1:]:
        found = [agreed for one in found if (agreed := _agreed(one, others)) is not None]
    return found


def _agreed(one: Class, others: list[Class]) -> Class | None:
    for other in others:
        same_type = next(iter(one.values())).type is next(iter(other.values())).type
        if same_type and all(one[e] == other[e] for e in one.keys() & other.keys()):
            return one | other
    return None
