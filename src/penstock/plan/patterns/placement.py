"""Where the events of a pattern may go: by the key that all its elements have in common.

SEQ(A a, !B b) WHERE a.id = b.id                  by id of A and id of B
SEQ(A a1, A a2) WHERE a1.id = a2.before           one place: an event of A would have to be in two
"""

from __future__ import annotations

from penstock.expressions.tree import Expression
from penstock.plan.nodes import StreamNode
from penstock.plan.patterns.nodes import PatternNode


def keys_by_stream(node: PatternNode) -> tuple[tuple[str, tuple[Expression, ...]], ...] | str:
    """The keys of each stream, or why there are none."""
    found: dict[str, tuple[Expression, ...]] = {}
    for element in node.elements:
        below = node.inputs[element.input]
        if not isinstance(below, StreamNode):
            return "it reads a subquery, whose rows belong together"
        if not element.keys:
            return "not all elements of the pattern have a key in common"
        if found.setdefault(below.name, element.keys) != element.keys:
            return f"elements that read {below.name} have different keys"
    return tuple(found.items())
