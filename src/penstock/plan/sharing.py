"""Which queries share one stored window: those whose windows keep rows of the same stream.

    SELECT AVG(x) FROM s [RANGE 1 HOUR]                       ┐
    SELECT k, MAX(x) FROM s [RANGE 1 DAY SLIDE 1 MINUTE] ...  ├ one store, with the rows of a day
    SELECT SUM(y) FROM s [ROWS 100] WHERE z > 1               ┘
    SELECT k, SUM(x) FROM s [RANGE 1 HOUR SLIDE 1 HOUR] ...     stores no rows

Windows that follow the local clock see rows at other times than the rest and stay apart.

Why: docs/decisions/one-stored-window.md
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from penstock.plan.joins.sharing import core_key, joins
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


def sharers(nodes: Mapping[str, Node], families: Mapping[AggregateNode, object] | None = None) -> dict[str, list[str]]:
    """For each query that shares a window the others that do, when all are started together. `families` are those of
    windows that are made of panes and keep no rows: these are shared within a family."""
    paned = families or {}
    users: dict[Hashable, set[str]] = {}
    shared: dict[str, list[Hashable]] = {}
    for name, node in nodes.items():
        windows: list[Hashable] = [paned.get(window) or ("rows", stream_of(window)) for window in shareable(node)]
        cores: list[Hashable] = [("join", core_key(join)) for join in joins(node) if join.joins_streams]
        shared[name] = [*windows, *cores]
        for key in shared[name]:
            users.setdefault(key, set()).add(name)
    found: dict[str, list[str]] = {}
    for name, keys in shared.items():
        together = set().union(*(users[key] for key in keys))
        if len(together) > 1:
            found[name] = [other for other in nodes if other in together and other != name]
    return found


def stream_of(window: AggregateNode) -> str:
    stream = window.input.stream_name
    assert stream is not None, "windows over subqueries share no rows"
    return stream
