"""Where the rows of a stream may go when a query runs in several places at once, and why.

    SELECT k, SUM(v) FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k     by key: the rows of a group stay together
    the same, beside a query with GROUP BY j                               partials: rows are anywhere, parts are merged
    SELECT a, b FROM s WHERE a > 0                                         anywhere: no row needs another
    SELECT SUM(v) FROM s [ROWS 100]                                        one place: the count is the whole stream's

Rule: queries over one stream that have the same key are placed by it. If keys differ, queries whose aggregates can be
merged give partial results, so that each row is kept once for all keys. The other queries go by a key of their own, and
a query without a key runs in one place. Where a few keys have most of the rows, all queries that can be merged may be
spread in parts (`in_parts`), whatever their keys are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from penstock.expressions.tree import Column, Expression
from penstock.lang.query import Emit, Query
from penstock.lang.render import render
from penstock.plan.joins.placement import join_keys
from penstock.plan.nodes import (
    AggregateNode,
    CombineNode,
    EdgeNode,
    JoinNode,
    LookupNode,
    Node,
    PatternNode,
    ProjectNode,
    RelationNode,
    ScanNode,
    StreamNode,
    UnionNode,
    streams,
    walk,
)
from penstock.plan.partials import mergeable
from penstock.plan.patterns.placement import keys_by_stream
from penstock.plan.tables.placement import keys_of_tables

Keys = tuple[Expression, ...]
"""What of a row decides where it goes."""


_TOGETHER = "it reads a subquery or several streams, whose rows belong together"

_NUMBERED = "a rule that calls functions numbers what it fires"


class Spread(StrEnum):
    """How the rows of a stream are spread."""

    BY_KEY = "by key"
    PARTIALS = "partials"
    ANYWHERE = "anywhere"
    ONE_PLACE = "one place"


@dataclass(frozen=True)
class Placement:
    """`keys` are, for BY_KEY, expressions over the columns of each stream that is read: rows of different streams whose
    keys are equal, of the same types, come together. `reason` says why it is so."""

    spread: Spread
    keys: tuple[tuple[str, Keys], ...] = ()
    reason: str = ""

    def keys_of(self, stream: str) -> Keys:
        return next(keys for name, keys in self.keys if name == stream)

    def __str__(self) -> str:
        shown = [", ".join(map(render, keys)) for _, keys in self.keys]
        if len(shown) > 1:
            shown = [f"{text} of {name}" for text, (name, _) in zip(shown, self.keys, strict=True)]
        by = f" {' and '.join(shown)}" if shown else ""
        return f"{self.spread}{by}: {self.reason}"


def place(
    queries: Sequence[Query],
    nodes: Mapping[str, Node],
    before: Mapping[str, Spread] | None = None,
    *,
    in_parts: bool = False,
) -> dict[str, Placement]:
    """The placement of each query beside the others. A query that was placed `before` stays there, since its state is
    there: other queries that come or go change nothing for it."""
    kept = before or {}
    linked = _linked(queries, nodes)
    alone = {
        query.name: _one_place("it is linked with other queries by a derived stream")
        if query.name in linked
        else place_alone(nodes[query.name])
        for query in queries
    }
    calling = {query.name for query in queries if query.rule is not None and query.rule.calls}
    for name in calling:
        if alone[name].spread in (Spread.PARTIALS, Spread.ANYWHERE):
            alone[name] = _one_place(_NUMBERED)
    keys: dict[str, set[Keys]] = {}
    for placement in alone.values():
        for stream, own in placement.keys:
            keys.setdefault(stream, set()).add(own)
    return {
        name: _kept(placement, kept[name])
        if name in kept
        else _beside(placement, nodes[name], keys, in_parts, name in calling)
        for name, placement in alone.items()
    }


def _kept(alone: Placement, spread: Spread) -> Placement:
    keys = alone.keys if spread is Spread.BY_KEY else ()
    return Placement(spread, keys, "its state is kept so")


def _beside(
    placement: Placement, node: Node, keys: Mapping[str, set[Keys]], in_parts: bool, is_numbered: bool
) -> Placement:
    if placement.spread is not Spread.BY_KEY:
        return placement
    refused = _NUMBERED if is_numbered else _not_in_parts(node)
    if in_parts and refused is None:
        return Placement(Spread.PARTIALS, (), "it was asked for, and its parts can be merged")
    contested = [stream for stream, _ in placement.keys if len(keys[stream]) > 1]
    if not contested:
        return placement
    if refused is None:
        reason = f"queries over {contested[0]} have different keys, and its parts can be merged"
        return Placement(Spread.PARTIALS, (), reason)
    copied = "a copy of the stream goes" if len(placement.keys) == 1 else "copies of the streams go"
    return Placement(placement.spread, placement.keys, f"{copied} by this key, since {refused}")


def _not_in_parts(node: Node) -> str | None:
    """Why a query cannot be computed in parts; None if it can."""
    match node:
        case AggregateNode():
            return mergeable(node)
        case RelationNode():
            return "it shows rows and not aggregates"
        case CombineNode():
            return "it compares windows of several lengths"
        case JoinNode():
            return "it joins rows by it"
        case EdgeNode():
            return "a rule looks at the events of a key one after the other"
        case StreamNode() | UnionNode() | ProjectNode() | PatternNode() | LookupNode() | ScanNode():
            return "its rows belong together"
        case other:
            assert_never(other)


def place_alone(node: Node) -> Placement:
    """The best placement of a query that shares its stream with no other."""
    match node:
        case ProjectNode(input=StreamNode()):
            return Placement(Spread.ANYWHERE, (), "every row stands for itself")
        case ProjectNode(input=PatternNode() as pattern):
            return _placed_by(keys_by_stream(pattern), "all events of a match have the same key")
        case ProjectNode():
            below = place_alone(node.input)
            return below if below.spread is Spread.BY_KEY else _one_place(_TOGETHER)
        case LookupNode():
            return _place_lookup(node)
        case EdgeNode():
            return _place_edge(node)
        case JoinNode() | AggregateNode(input=JoinNode()):
            return _placed_by(join_keys(node), "rows that match have the same key")
        case CombineNode():
            longest = replace(node.inputs[0], emission=node.emission)
            reason = "it reads a subquery" if longest.input.stream_name is None else _not_by_key(longest)
            return _by_key(longest) if reason is None else _one_place(reason)
        case AggregateNode(input=StreamNode()) | RelationNode(input=StreamNode()):
            return _place_window(node)
        case StreamNode() | UnionNode() | AggregateNode() | RelationNode() | PatternNode() | ScanNode():
            return _one_place(_TOGETHER)
        case other:
            assert_never(other)


def _place_window(node: AggregateNode | RelationNode) -> Placement:
    """Of a window over a stream: by key, or in parts."""
    refused = _not_by_key(node)
    if refused is None:
        return _by_key(node)
    if isinstance(node, AggregateNode) and mergeable(node) is None:
        return Placement(Spread.PARTIALS, (), f"{refused}, and its parts can be merged")
    return _one_place(refused)


def _placed_by(keys: tuple[tuple[str, Keys], ...] | str, reason: str) -> Placement:
    """By the keys of streams, for the reason given. A text as `keys` says why there are none: then in one place."""
    return _one_place(keys) if isinstance(keys, str) else Placement(Spread.BY_KEY, keys, reason)


def _place_lookup(node: LookupNode) -> Placement:
    """Anywhere with tables that do not change, of which every place has a copy; else by their key, if all that read and
    write them have it."""
    if node.input.stream_name is None:
        return _one_place(_TOGETHER)
    if not any(lookup.writes for lookup in node.lookups):
        return Placement(Spread.ANYWHERE, (), "every row stands for itself, and every place has a copy of the tables")
    return _placed_by(keys_of_tables(node), "all that reads or writes a row of the table has its key")


def _place_edge(node: EdgeNode) -> Placement:
    """By the keys of the rule, or by those of the groups that it looks at."""
    stream = node.input.stream_name
    if stream is not None:
        if not node.keys:
            return _one_place("the rule has no BY to split by")
        reason = "a rule looks at the events of each key for themselves"
        return Placement(Spread.BY_KEY, ((stream, node.keys),), reason)
    below = place_alone(node.input)
    return below if below.spread in (Spread.BY_KEY, Spread.ONE_PLACE) else _one_place("a rule looks at all its rows")


def order_matters(node: Node) -> bool:
    """Whether results may depend on the order of rows with equal times."""
    match node:
        case LookupNode(input=StreamNode()):
            return any(lookup.writes for lookup in node.lookups)
        case ProjectNode(input=StreamNode()):
            return False
        case CombineNode():
            return any(map(order_matters, node.inputs))
        case AggregateNode(input=StreamNode()):
            return not (node.window.is_sliced_by_time and all(state.is_order_free for state in node.states))
        case StreamNode() | UnionNode() | ProjectNode() | AggregateNode() | RelationNode() | PatternNode():
            return True
        case EdgeNode() | JoinNode() | LookupNode() | ScanNode():
            return True
        case other:
            assert_never(other)


def follows_the_wall_clock(node: Node) -> bool:
    """Whether some window slides by the local clock, whose ticks a micro-batch that is run again could not repeat."""
    windows = (below.own_window for below in walk(node))
    return any(window is not None and window.wall_clock_slide is not None for window in windows)


def _by_key(node: AggregateNode | RelationNode) -> Placement:
    (stream,) = streams(node)
    return Placement(Spread.BY_KEY, ((stream, node.own_keys),), "rows of one key never depend on those of another")


def _one_place(reason: str) -> Placement:
    return Placement(Spread.ONE_PLACE, (), reason)


def _not_by_key(node: AggregateNode | RelationNode) -> str | None:
    """Why rows of one key depend on those of another; None if they do not."""
    emission, window = node.emission, node.window
    if not node.own_keys:
        return "there is no GROUP BY to split by" if isinstance(node, AggregateNode) else "there is no key to split by"
    if node.partition_by:
        return None  # each partition is a stream of its own
    if emission.order_by or emission.limit is not None:
        return "ORDER BY and LIMIT compare all groups of an evaluation"
    if (emission.distinct or emission.emit in (Emit.ISTREAM, Emit.DSTREAM)) and not _shows_keys(node):
        return "DISTINCT, ISTREAM and DSTREAM compare rows of different groups where the keys are not shown"
    if window.when_full:
        return "WHEN FULL depends on the first event of the whole stream"
    if not window.extent.is_told_by_times:
        return "the window belongs to the whole stream"
    if window.is_per_event and emission.emit is not Emit.EVENT_GROUP:
        return "every event shows all groups"
    if window.counts_events:
        return "the slide counts the events of the whole stream"
    return None


def _shows_keys(node: AggregateNode | RelationNode) -> bool:
    """Whether rows of different groups always differ in what is shown."""
    shown = (output.expression for output in node.emission.outputs)
    names = {expression.name for expression in shown if isinstance(expression, Column)}
    return all(f"#{i}" in names for i in range(len(node.own_keys)))


def _linked(queries: Sequence[Query], nodes: Mapping[str, Node]) -> set[str]:
    """Queries that feed a stream which some query reads, and those that read it."""
    read = set().union(*(streams(node) for node in nodes.values())) if nodes else set()
    feeding = {query.name: query.into for query in queries if query.into in read}
    return set(feeding) | {name for name, node in nodes.items() if streams(node) & set(feeding.values())}
