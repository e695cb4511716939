"""What a join reads of each side: the columns that its rows must keep, and all that it looks at when they come."""

from __future__ import annotations

from penstock.expressions.tree import columns
from penstock.plan.nodes import JoinNode


def kept_columns(node: JoinNode, place: int) -> tuple[str, ...]:
    """The columns of a side that conditions and results need after a match is found, in the input's order."""
    emission = node.emission
    expressions = [condition.expression for condition in node.conditions]
    expressions += [output.expression for output in emission.outputs]
    expressions += [order.expression for order in emission.order_by]
    if node.where is not None:
        expressions.append(node.where)
    read = set().union(*(columns(expression) for expression in expressions))
    side = node.sides[place]
    names = node.inputs[side.input].schema.names
    return tuple(name for name in names if f"{side.alias}.{name}" in read)


def read_columns(node: JoinNode, number: int) -> set[str]:
    """All columns of an input that some side reads."""
    read: set[str] = set()
    for place, side in enumerate(node.sides):
        if side.input != number:
            continue
        read |= set(kept_columns(node, place))
        if side.where is not None:
            read |= columns(side.where)
        for equality in node.equalities:
            for at, keys in ((equality.left, equality.left_keys), (equality.right, equality.right_keys)):
                if at == place:
                    read |= set().union(*(columns(key) for key in keys))
        for band in node.bands:
            read |= {name for at, name in ((band.side, band.column), (band.other, band.other_column)) if at == place}
    return read
