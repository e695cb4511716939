"""Which columns of its inputs a pattern reads, and which of them its events keep."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.expressions.tree import Expression, columns
from penstock.plan.patterns.nodes import PatternNode


def kept_columns(node: PatternNode, number: int) -> tuple[str, ...]:
    """The columns of input `number` that are looked at once an event has got into the state, in the input's order."""
    mine = {element.name for element in node.elements if element.input == number}
    named = set(node.schema.names).union(*map(columns, _over_matches(node)))
    kept = {rest for element, _, rest in (name.partition(".") for name in named) if element in mine}
    return tuple(name for name in node.inputs[number].schema.names if name in kept)


def read_columns(node: PatternNode, number: int) -> set[str]:
    """All columns of input `number` that are read."""
    found = set(kept_columns(node, number))
    for element in node.elements:
        if element.input == number:
            found |= set().union(*map(columns, element.keys))
            found |= set() if element.filter is None else columns(element.filter)
    return found


def _over_matches(node: PatternNode) -> Iterator[Expression]:
    """The expressions that name columns `element.column`."""
    for order in node.orders:
        for step in order.steps:
            yield from step.conditions
        for between in (*order.repeated, *order.absent):
            yield from between.conditions
        yield from order.last
    for repeat in node.repeats:
        for state in repeat.states:
            yield from state.args
            if state.filter is not None:
                yield state.filter
