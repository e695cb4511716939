"""Which joins have one core: the same inputs, conditions on single sides and keys, whatever their windows' sizes are.

SELECT ... FROM a [RANGE 1 HOUR] x JOIN b [RANGE 1 HOUR] y ON x.id = y.id                   ┐ rows are kept and
SELECT ... FROM a [RANGE 5 MINUTES] x JOIN b [RANGE 1 HOUR] y ON x.id = y.id AND x.v > y.v  ┘ linked by key once
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.tree import Expression
from penstock.plan.nodes import Equality, JoinNode, Narrowing, Node, children
from penstock.windows.spec import Range


@dataclass(frozen=True)
class CoreKey:
    """What must be the same. Windows by time drop rows that fail the side's condition, others count them."""

    inputs: tuple[Node, ...]
    sides: tuple[tuple[int, Expression | None, bool], ...]
    equalities: tuple[Equality, ...]
    narrowings: tuple[Narrowing, ...]


def core_key(node: JoinNode) -> CoreKey:
    sides = tuple((side.input, side.where, isinstance(side.window.extent, Range)) for side in node.sides)
    return CoreKey(node.inputs, sides, node.equalities, node.narrowings)


def joins(node: Node) -> list[JoinNode]:
    """The joins of a query, in the order in which its operators are made."""
    below = [join for child in children(node) for join in joins(child)]
    return [*below, node] if isinstance(node, JoinNode) else below
