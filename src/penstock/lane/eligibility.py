"""Which aggregations run in the lane: decided once, from the plan alone."""

from __future__ import annotations

from penstock.plan.aggregations import Look, look_of
from penstock.plan.nodes import AggregateNode, StateSpec
from penstock.types import SqlType
from penstock.windows.spec import Range, Rows

_SUMMED = (SqlType.TINYINT, SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT, SqlType.DOUBLE)
_COMPARED = (*_SUMMED, SqlType.DATE, SqlType.TIMESTAMP)


def why_not(node: AggregateNode) -> str | None:
    """Why an aggregation does not run in the lane; None if it does."""
    window = node.window
    if node.partition_by or not window.is_per_event or look_of(node) is not Look.EVENT:
        return "the window does not show the arriving event's group with every event"
    if not isinstance(window.extent, Range | Rows) or window.when_full:
        return "the window is neither a RANGE nor ROWS, or waits until it is full"
    return next((reason for state in node.states if (reason := _why_not(state)) is not None), None)


def _why_not(state: StateSpec) -> str | None:
    if state.filter is not None:
        return f"{state.shown} has a FILTER"
    types = tuple(arg.type for arg in state.args)
    match state.kind:
        case "COUNT":
            is_known = SqlType.STRING not in types
        case "SUM":
            is_known = types[0] in _SUMMED
        case "MIN" | "MAX":
            is_known = types[0] in _COMPARED
        case _:
            return f"{state.shown} has no operation in the lane"
    return None if is_known else f"{state.shown} of {types[0]} has no operation in the lane"
