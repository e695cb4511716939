"""Which windows can be one stored window: those that keep rows of the same stream. The rule `share_windows` makes it.

    SELECT AVG(x) FROM s [RANGE 1 HOUR]                       ┐
    SELECT k, MAX(x) FROM s [RANGE 1 DAY SLIDE 1 MINUTE] ...  ├ one store, with the rows of a day
    SELECT SUM(y) FROM s [ROWS 100] WHERE z > 1               ┘
    SELECT k, SUM(x) FROM s [RANGE 1 HOUR SLIDE 1 HOUR] ...     stores no rows

Windows that follow the local clock see rows at other times than the rest and stay apart.

Why: docs/decisions/one-stored-window.md
"""

from __future__ import annotations

from penstock.plan.nodes import AggregateNode, Node, children
from penstock.plan.strategy import closes_as_a_whole


def may_share(node: Node) -> bool:
    """Whether a node's window can be a part of one that others use as well."""
    if not isinstance(node, AggregateNode) or node.input.stream_name is None:
        return False
    return node.window.can_share_rows and not closes_as_a_whole(node)


def shareable(node: Node) -> list[AggregateNode]:
    """The windows of a query that may be shared, from left to right."""
    if isinstance(node, AggregateNode) and may_share(node):
        return [node]
    return [window for child in children(node) for window in shareable(child)]


def stream_of(window: AggregateNode) -> str:
    stream = window.input.stream_name
    assert stream is not None, "windows over subqueries share no rows"
    return stream
