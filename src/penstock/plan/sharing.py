"""Which queries share one stored window: those whose windows keep rows of the same stream.

    SELECT AVG(x) FROM s [RANGE 1 HOUR]                       ┐
    SELECT k, MAX(x) FROM s [RANGE 1 DAY SLIDE 1 MINUTE] ...  ├ one store, with the rows of a day
    SELECT SUM(y) FROM s [ROWS 100] WHERE z > 1               ┘
    SELECT k, SUM(x) FROM s [RANGE 1 HOUR SLIDE 1 HOUR] ...     stores no rows

Windows that follow the local clock see rows at other times than the rest and stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.nodes import AggregateNode, Node, StreamNode, children
from penstock.plan.strategy import closes_as_a_whole
from penstock.windows.spec import Range, Rows, TimeSlide


def may_share(node: Node) -> bool:
    """Whether a node's window can be a part of one that others use as well."""
    if not isinstance(node, AggregateNode) or not isinstance(node.input, StreamNode):
        return False
    if node.partition_by or closes_as_a_whole(node) or not isinstance(node.window.extent, Range | Rows):
        return False
    return not (isinstance(node.window.slide, TimeSlide) and node.window.slide.wall_clock)


def shareable(node: Node) -> list[AggregateNode]:
    """The windows of a query that may be shared, from left to right."""
    if isinstance(node, AggregateNode) and may_share(node):
        return [node]
    return [window for child in children(node) for window in shareable(child)]


def sharers(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """For each query that shares a window the others that do, when all are started together."""
    by_stream: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for stream in dict.fromkeys(stream_of(window) for window in shareable(node)):
            by_stream.setdefault(stream, []).append(name)
    found: dict[str, list[str]] = {}
    for names in by_stream.values():
        for name in names:
            found.setdefault(name, []).extend(other for other in names if other != name)
    return {name: others for name, others in found.items() if others}


def stream_of(window: AggregateNode) -> str:
    assert isinstance(window.input, StreamNode)
    return window.input.name
