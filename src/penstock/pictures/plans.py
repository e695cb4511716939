"""The shared plan of an application: streams, the windows that are stored, the queries that use them, what they feed.

    stream ──▶ stored window ──▶ query ──▶ derived stream ──▶ ...
                     └─────────▶ query ──▶ sink, function
    stream ──▶ table ──▶ query

One box is one thing at work: queries that share a stored window (`plan.sharing`) have lines from the same box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from penstock.lang.query import Program, Query
from penstock.lang.render import render_duration, render_window
from penstock.pictures.svg import Box, Placed, Sheet, shortened
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
    StreamNode,
    children,
)
from penstock.plan.sharing import may_share, shareable, stream_of
from penstock.plan.strategy import closes_as_a_whole

_ACROSS, _DOWN = 70, 16


@dataclass
class Plan:
    """Boxes by name, in the order of the program, and the lines between them."""

    boxes: dict[str, Box] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)

    def add(self, box: Box) -> str:
        self.boxes.setdefault(box.name, box)
        return box.name

    def join(self, start: str, end: str) -> None:
        if (start, end) not in self.lines:
            self.lines.append((start, end))


def plan_of(program: Program, nodes: Mapping[str, Node]) -> Plan:
    """`nodes` are the plans of the queries by name."""
    plan = Plan()
    sinks = {sink.name: sink for sink in program.sinks}
    shared = _shared_boxes(nodes)
    for stream in program.streams:
        plan.add(Box("stream", f"stream {stream.name}", shortened((stream.name, stream.uri or "pushed"))))
    functions = {function.name: function.url for function in program.functions}
    for table in program.tables:
        plan.add(Box("window", f"table {table.name}", shortened((table.name, table.uri or "table"))))
    for query in program.queries:
        box = plan.add(_query_box(query, nodes[query.name]))
        for call in () if query.rule is None else query.rule.calls:
            lines = shortened((f"{call.function}(...)", functions.get(call.function, "in Python")))
            plan.join(box, plan.add(Box("sink", f"function {call.function}", lines)))
        for start in _inputs(query.name, nodes[query.name], plan, shared, count(1)):
            plan.join(start, box)
        if query.into in sinks:
            uri = sinks[query.into].uri
            plan.join(box, plan.add(Box("sink", f"sink {query.into}", shortened((query.into, uri)))))
        elif query.into is not None:
            plan.join(box, plan.add(Box("stream", f"stream {query.into}", (query.into, "derived stream"))))
    for write in program.writes:
        plan.join(f"stream {write.stream}", f"table {write.table}")
    return plan


def _shared_boxes(nodes: Mapping[str, Node]) -> dict[str, Box]:
    """For each stream the one store of the windows that may share, with their queries."""
    found: dict[str, list[tuple[str, AggregateNode]]] = {}
    for name, node in nodes.items():
        for window in shareable(node):
            found.setdefault(stream_of(window), []).append((name, window))
    return {stream: _shared_box(stream, members) for stream, members in found.items()}


def _inputs(query: str, node: Node, plan: Plan, shared: Mapping[str, Box], numbers: Iterator[int]) -> list[str]:
    """The boxes that a node's rows come from; those of windows are added, with a number each if they are not shared: a
    query may have several that are written alike."""
    if isinstance(node, StreamNode):
        return [plan.add(Box("stream", f"stream {node.name}", (node.name, "derived stream")))]
    # A stream that only says how far a table's changes have come is drawn with the table.
    read = (node.input,) if isinstance(node, LookupNode) else children(node)
    below = [start for child in read for start in _inputs(query, child, plan, shared, numbers)]
    if isinstance(node, LookupNode):
        return [*below, *(f"table {lookup.table}" for lookup in node.lookups)]
    if not isinstance(node, AggregateNode | RelationNode | JoinNode | PatternNode):
        return below
    if isinstance(node, AggregateNode) and may_share(node):
        box = plan.add(shared[stream_of(node)])
    else:
        box = plan.add(_own_box(query, node, next(numbers)))
    for start in below:
        plan.join(start, box)
    return [box]


def _shared_box(stream: str, members: Sequence[tuple[str, AggregateNode]]) -> Box:
    queries = list(dict.fromkeys(query for query, _ in members))
    windows = list(dict.fromkeys(render_window(node.window) for _, node in members))
    who = f"shared by {len(queries)} queries" if len(queries) > 1 else f"of {queries[0]}"
    some = windows[:4] + ([f"and {len(windows) - 4} more"] if len(windows) > 4 else [])
    tip = f"{', '.join(queries)}: {' '.join(windows)}"
    return Box("window", f"window of {stream}", shortened(("stored window", who, *some)), tip)


def _own_box(query: str, node: AggregateNode | RelationNode | JoinNode | PatternNode, number: int) -> Box:
    name = f"window {number} of {query}"
    if isinstance(node, JoinNode):
        sides = [f"{side.alias} {render_window(side.window)}" for side in node.sides]
        return Box("window", name, shortened(("stored windows, joined", f"of {query}", *sides)))
    if isinstance(node, PatternNode):
        return Box(
            "window", name, shortened(("stored events", f"of {query}", f"within {render_duration(node.within)}"))
        )
    closes = isinstance(node, AggregateNode) and closes_as_a_whole(node)
    title = "window, no rows stored" if closes else "stored window"
    lines = shortened((title, f"of {query}", render_window(node.window)))
    return Box("window", name, lines)


def _query_box(query: Query, node: Node) -> Box:
    lines = [query.name]
    if query.rule is not None:
        lines.append(f"rule {query.rule.name}{', every row' if query.rule.every else ''}")
    while isinstance(node, EdgeNode | ProjectNode) and not isinstance(node.input, StreamNode):
        node = node.input
    if isinstance(node, AggregateNode | CombineNode):
        windows = node.inputs if isinstance(node, CombineNode) else (node,)
        answers, states = sum(len(w.answers) for w in windows), sum(len(w.states) for w in windows)
        lines.append(f"{_count(answers, 'aggregate')}, {_count(states, 'state')}")
        keys = len(windows[0].group_by)
        lines.append(f"groups by {_count(keys, 'key')}" if keys else "one group")
    elif isinstance(node, RelationNode):
        lines.append("rows of the window")
    elif isinstance(node, JoinNode):
        lines.append(f"joins {len(node.sides)} windows")
    elif isinstance(node, PatternNode):
        lines.append("matches of a pattern")
    elif isinstance(node, LookupNode):
        lines.append(f"looks up {_count(len(node.lookups), 'table')}")
    else:
        lines.append("event by event")
    return Box("query", f"query {query.name}", shortened(lines), " ".join(query.text.split()))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def draw(plan: Plan, sheet: Sheet, x: float, y: float) -> float:
    """Draws the plan from left to right with its upper left corner there; how far down it goes."""
    sheet.write("the plan: streams, stored windows, queries", x, y + 4, "title")
    columns: dict[int, list[Box]] = {}
    for name, depth in _depths(plan).items():
        columns.setdefault(depth, []).append(plan.boxes[name])
    placed: dict[str, Placed] = {}
    tallest = max((_height(boxes) for boxes in columns.values()), default=0)
    for depth in sorted(columns):
        down = y + 24 + (tallest - _height(columns[depth])) / 2
        width = max(box.width for box in columns[depth])
        for box in columns[depth]:
            placed[box.name] = sheet.place(replace(box, least_width=width), x, down)
            down = placed[box.name].bottom + _DOWN
        x += width + _ACROSS
    for start, end in plan.lines:
        sheet.join_across(placed[start], placed[end])
    return max((node.bottom for node in placed.values()), default=y)


def _height(column: Sequence[Box]) -> float:
    return sum(box.height + _DOWN for box in column) - _DOWN


def _depths(plan: Plan) -> dict[str, int]:
    """The longest way from a stream to each box. Lines never lead back: a query reads only what was there before it."""
    depths = dict.fromkeys(plan.boxes, 0)
    changed = True
    while changed:
        changed = False
        for start, end in plan.lines:
            if depths[end] <= depths[start]:
                depths[end] = depths[start] + 1
                changed = True
    return depths
