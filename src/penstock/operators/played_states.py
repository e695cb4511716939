"""The states of an aggregation as a lane's program plays them."""

from __future__ import annotations

from penstock.lane.program import PlayedStates
from penstock.operators.aggregation import Aggregation
from penstock.operators.window_member import WindowMember
from penstock.plan.nodes import AggregateNode


def played_states(node: AggregateNode, member: WindowMember, aggregation: Aggregation) -> PlayedStates:
    """`node` has all states of the aggregation."""
    columns = [own.arguments[0] if own.arguments else -1 for own in member.state_columns]
    return PlayedStates(node.window.extent, aggregation.states, node.states, columns, member.has_slots)
