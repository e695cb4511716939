"""How many bytes things take: rows of a window, accumulators, pane rows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.nodes import AggregateNode, StateSpec
from penstock.plan.nullability import can_be_null


def row_bytes(node: AggregateNode) -> int:
    """Bytes of a row in the window's blocks: time, group and each distinct argument and filter, as stored."""
    arguments = dict.fromkeys(arg for state in node.states for arg in state.args)
    filters = dict.fromkeys(state.filter for state in node.states if state.filter is not None)
    nullable = sum(can_be_null(arg, node.input.schema) for arg in arguments)
    return 12 + sum(arg.type.storage.itemsize for arg in arguments) + len(filters) + -(-nullable // 8)


def state_bytes(states: Sequence[StateSpec]) -> int:
    """Bytes of the largest of these states for one group."""
    return max((state.traits.bytes_in_formulas for state in states), default=8)


def pane_row_bytes(states: Sequence[StateSpec]) -> int:
    """Bytes of a pane row: group, where its extra words are, row count and the states."""
    return 20 + sum(state.traits.pane_bytes or 0 for state in states)
