"""Which joins have one core: the same inputs, conditions on single sides and keys, whatever their windows' sizes are.

SELECT ... FROM a [RANGE 1 HOUR] x JOIN b [RANGE 1 HOUR] y ON x.id = y.id                   ┐ rows are kept and
SELECT ... FROM a [RANGE 5 MINUTES] x JOIN b [RANGE 1 HOUR] y ON x.id = y.id AND x.v > y.v  ┘ linked by key once
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.tree import Expression
from penstock.plan.nodes import Equality, JoinNode, Narrowing, Node, walk


@dataclass(frozen=True)
class CoreKey:
    """What must be the same. Windows by time drop rows that fail the side's condition, others count them."""

    inputs: tuple[Node, ...]
    sides: tuple[tuple[int, Expression | None, bool], ...]
    equalities: tuple[Equality, ...]
    narrowings: tuple[Narrowing, ...]


def core_key(node: JoinNode) -> CoreKey:
    sides = tuple((side.input, side.where, side.window.extent.is_told_by_times) for side in node.sides)
    return CoreKey(node.inputs, sides, node.equalities, node.narrowings)


def joins(node: Node) -> list[JoinNode]:
    """The joins of a query, in the order in which its operators are made."""
    return [below for below in walk(node) if isinstance(below, JoinNode)]
