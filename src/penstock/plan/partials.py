"""Which aggregations can be computed in parts: each place aggregates its share of the events, and the partial
aggregates of an evaluation are merged by (window_end, group).

    SELECT k, AVG(v) FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k     in parts
    SELECT MEDIAN(v) FROM s [RANGE 1 HOUR SLIDE 10 SECONDS]                not: MEDIAN needs all values in one place
    SELECT SUM(v) FROM s [ROWS 1000]                                       not: no part knows which rows are the last

Events may be dealt out to the parts in any way. Asked by runtimes that have several places.
"""

from __future__ import annotations

from penstock.lang.query import Emit
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import WindowSpec


def mergeable(node: AggregateNode) -> str | None:
    """None if the aggregation can be computed in parts, or else why not, as it can be shown to a user."""
    return _window_reason(node.window) or _input_reason(node) or _emission_reason(node.emission.emit) or _states(node)


def _window_reason(window: WindowSpec) -> str | None:
    if not window.is_sliced_by_time:
        return "only RANGE and SINCE windows with a time slide hold the same events wherever these are"
    if window.partition_by:
        return "a window with PARTITION BY is kept whole, partition by partition"
    if window.wall_clock_slide is not None:
        return "ON WALL CLOCK slides follow the clock of one place"
    if window.when_full:
        return "WHEN FULL depends on the first event of the whole stream"
    return None


def _input_reason(node: AggregateNode) -> str | None:
    return "where a subquery's last event is, no part can tell alone" if node.input.stream_name is None else None


def _emission_reason(emit: Emit) -> str | None:
    if emit is Emit.EDGE:
        return "a rule compares an evaluation with the one before"
    return f"{emit.value} compares an evaluation with the one before" if emit.compares else None


def _states(node: AggregateNode) -> str | None:
    for state in node.states:
        if not state.traits.is_mergeable:
            return f"{state.shown} cannot be merged from partial results"
    return None
