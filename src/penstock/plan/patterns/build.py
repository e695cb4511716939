"""From a typed pattern to its plan: conditions go to where they can be decided first.

SEQ(A a, B b, C+ c) WHERE a.x > 1 AND a.id = b.id AND b.y > a.x AND c.z > b.y AND COUNT(c.*) > 2
  a.x > 1          before an event gets into the state
  a.id = b.id      the key that the state is indexed by, if c has it too
  b.y > a.x        when a joins b
  c.z > b.y        for each event of c
  COUNT(c.*) > 2   for the whole match
"""

from __future__ import annotations

from itertools import pairwise

from penstock.expressions.tree import Call, Column, Expression, columns, transform
from penstock.lang.query import Pattern, Role
from penstock.plan.nodes import Node
from penstock.plan.patterns.keys import Keys, common_keys, elements_in, equality, narrowed, partitions
from penstock.plan.patterns.nodes import Between, ElementPlan, OrderPlan, PatternNode, RepeatPlan, Step
from penstock.plan.states import assign_states
from penstock.types import Field, Schema, SqlType


def build_pattern(pattern: Pattern, inputs: tuple[Node, ...]) -> PatternNode:
    own = {i: _own_conditions(pattern, i) for i in range(len(pattern.elements))}
    rest = [c for c in pattern.where if not any(c in conditions for conditions in own.values())]
    applicable = [[c for c in rest if _applies(pattern, c, order)] for order in pattern.alternatives]
    keys = common_keys(pattern, applicable)
    orders = tuple(
        _order(
            pattern,
            order,
            [c for c in conditions if not _is_implied(pattern, c, keys)]
            + _partitioned(pattern, order, conditions, keys),
        )
        for order, conditions in zip(pattern.alternatives, applicable, strict=True)
    )
    indexed = narrowed(keys)
    elements = tuple(
        ElementPlan(
            element.name,
            element.input,
            element.role,
            element.one,
            _all([_unqualified(c) for c in own[i]]),
            tuple(map(_unqualified, indexed.get(i, ()))),
            pattern.within * (2 if any(_is_long(order, i) for order in orders) else 1),
        )
        for i, element in enumerate(pattern.elements)
    )
    return PatternNode(
        inputs, elements, orders, _repeats(pattern, inputs), pattern.within, pattern.schema, pattern.apart
    )


def _own_conditions(pattern: Pattern, element: int) -> list[Expression]:
    only = frozenset((element,))
    return [
        c
        for c in pattern.where
        if elements_in(pattern, c) == only and not any(name.startswith("$") for name in columns(c))
    ]


def _applies(pattern: Pattern, condition: Expression, order: tuple[int, ...]) -> bool:
    """Whether matches of this order have all that the condition names."""
    over = {pattern.aggregates[int(n[1:])].element for n in columns(condition) if n.startswith("$")}
    return elements_in(pattern, condition) | over <= set(order)


def _is_implied(pattern: Pattern, condition: Expression, keys: Keys) -> bool:
    """Whether events of one key fulfil the condition anyway."""
    sides = equality(pattern, condition)
    if sides is None:
        return False
    (mine, left), (theirs, right) = sides
    return any(pair == (left, right) for pair in zip(keys.get(mine, ()), keys.get(theirs, ()), strict=False))


def _partitioned(
    pattern: Pattern, order: tuple[int, ...], conditions: list[Expression], keys: Keys
) -> list[Expression]:
    """That the plain elements of an order are in one partition, where that is not so anyway: their equality may be
    said by way of an element that must not come."""
    plain = [e for e in order if pattern.elements[e].role is Role.PLAIN]
    said = [set(sides) for sides in (equality(pattern, c) for c in conditions) if sides is not None]
    found: list[Expression] = []
    for group in partitions(pattern, order, conditions):
        mine = [(e, expression) for place in plain for e, expression in group if e == place]
        if len(mine) == 1 and mine[0][1] not in keys.get(mine[0][0], ()):
            found.append(Call("is_not_null", (mine[0][1],), SqlType.BOOLEAN))
        for one, other in pairwise(mine):
            equal = Call("eq", (one[1], other[1]), SqlType.BOOLEAN)
            if {one, other} not in said and not _is_implied(pattern, equal, keys):
                found.append(equal)
    return found


def _order(pattern: Pattern, order: tuple[int, ...], conditions: list[Expression]) -> OrderPlan:
    roles = {e: pattern.elements[e].role for e in order}
    plain = tuple(e for e in order if roles[e] is Role.PLAIN)
    waits = roles[order[-1]] is not Role.PLAIN
    places = list(range(len(plain) - 1, -1, -1))
    if waits:
        places = [0, *places[:-1]]
    on_plain = [
        c
        for c in conditions
        if all(roles[e] is Role.PLAIN for e in elements_in(pattern, c))
        and not any(name.startswith("$") for name in columns(c))
    ]
    steps, joined, decided = [], set(), set()
    for place in places:
        joined.add(plain[place])
        now = tuple(c for c in on_plain if c not in decided and elements_in(pattern, c) <= joined)
        decided |= set(now)
        steps.append(Step(place, now))
    between = [_between(pattern, order, e, conditions) for e in order if roles[e] is not Role.PLAIN]
    elsewhere = {c for b in between for c in b.conditions} | set(on_plain)
    return OrderPlan(
        plain,
        tuple(steps),
        tuple(b for b in between if roles[b.element] is Role.REPEATED),
        tuple(b for b in between if roles[b.element] is Role.ABSENT),
        tuple(c for c in conditions if c not in elsewhere),
        waits,
    )


def _between(pattern: Pattern, order: tuple[int, ...], element: int, conditions: list[Expression]) -> Between:
    at = order.index(element)
    roles = {e: pattern.elements[e].role for e in order}
    lower = sum(roles[e] is Role.PLAIN for e in order[:at]) - 1
    before = next((e for e in reversed(order[:at]) if roles[e] is not Role.ABSENT), -1)
    behind = next((e for e in order[at + 1 :] if roles[e] is not Role.ABSENT), -1)
    return Between(
        element,
        lower,
        lower + 1,
        before if before >= 0 and roles[before] is Role.REPEATED else -1,
        behind if behind >= 0 and roles[behind] is Role.REPEATED else -1,
        tuple(c for c in conditions if element in elements_in(pattern, c)),
    )


def _is_long(order: OrderPlan, element: int) -> bool:
    """Whether an element is looked for before the first event of a match that is decided only after its time."""
    return order.waits and any(b.element == element and b.lower < 0 for b in order.absent)


def _repeats(pattern: Pattern, inputs: tuple[Node, ...]) -> tuple[RepeatPlan, ...]:
    optional = {i for i in range(len(pattern.elements)) if any(i not in order for order in pattern.alternatives)}
    schema = Schema(
        tuple(
            Field(f"{element.name}.{field.name}", field.type, field.nullable or i in optional)
            for i, element in enumerate(pattern.elements)
            for field in inputs[element.input].schema
        )
    )
    found = []
    for number, element in enumerate(pattern.elements):
        mine = tuple(i for i, aggregate in enumerate(pattern.aggregates) if aggregate.element == number)
        if element.role is Role.REPEATED and mine:
            states, answers = assign_states(tuple(pattern.aggregates[i].call for i in mine), schema)
            found.append(RepeatPlan(number, mine, states, answers))
    return tuple(found)


def _unqualified(expression: Expression) -> Expression:
    """Over the columns of the element's own input."""

    def bare(node: Expression) -> Expression:
        return Column(node.name.partition(".")[2], node.type) if isinstance(node, Column) else node

    return transform(expression, bare)


def _all(conditions: list[Expression]) -> Expression | None:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Call("and", tuple(conditions), SqlType.BOOLEAN)
