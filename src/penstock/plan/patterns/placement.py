"""Where the events of a pattern may go: by the key that all its elements have in common.

SEQ(A a, !B b) WHERE a.id = b.id                  by id of A and id of B
SEQ(A a1, A a2) WHERE a1.id = a2.before           one place: an event of A would have to be in two
"""

from __future__ import annotations

from penstock.expressions.tree import Expression
from penstock.plan.patterns.nodes import PatternNode


def keys_by_stream(node: PatternNode) -> tuple[tuple[str, tuple[Expression, ...]], ...] | str:
    """The keys of each stream, or why there are none."""
    found: dict[str, tuple[Expression, ...]] = {}
    for element in node.elements:
        stream = node.inputs[element.input].stream_name
        if stream is None:
            return "it reads a subquery, whose rows belong together"
        if not element.keys:
            return "not all elements of the pattern have a key in common"
        if found.setdefault(stream, element.keys) != element.keys:
            return f"elements that read {stream} have different keys"
    return tuple(found.items())
