"""How a windowed aggregation is carried out.

Why: docs/decisions/closing-windows.md
"""

from __future__ import annotations

from penstock.expressions.tree import Expression
from penstock.plan.nodes import AggregateNode
from penstock.types import SqlType


def closes_as_a_whole(node: AggregateNode) -> bool:
    """Whether windows are kept as accumulators that close, without storing rows: sessions and most tumbling windows.

    A tumbling window stores its rows after all where an evaluation is compared with the one before, where a state
    keeps strings, whose codes are given back row by row, and where ticks of the local clock say what is in it.
    """
    if node.window.extent.closes:
        return True
    if node.window.wall_clock_slide is not None:
        return False
    if not node.window.is_tumbling or node.emission.emit.compares:
        return False
    arguments: list[Expression] = [arg for state in node.states for arg in state.args]
    return all(arg.type is not SqlType.STRING for arg in arguments)
