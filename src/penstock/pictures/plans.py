"""The physical plan of an application: streams, what is stored, the queries that use it, what they feed.

    stream ──▶ stored window ──▶ query ──▶ derived stream ──▶ ...
                     └─────────▶ query ──▶ sink, function
    stream ──▶ table ──▶ query

One box is one thing at work: queries that share a stored window or panes have lines from the same box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import assert_never

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
    ScanNode,
    StreamNode,
    UnionNode,
)
from penstock.plan.physical.nodes import (
    ClosingWindow,
    Combine,
    Edge,
    JoinCore,
    Lookup,
    OwnWindow,
    PaneFamily,
    PartitionedRows,
    PartitionedWindow,
    Pattern,
    PhysicalPlan,
    Place,
    Project,
    RowsWindow,
    Scan,
    SessionRows,
    Source,
    Stage,
    StoredWindow,
    Table,
    Union,
    WindowReader,
)
from penstock.plan.sharing import stream_of

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


def plan_of(program: Program, physical: PhysicalPlan) -> Plan:
    plan = Plan()
    sinks = {sink.name: sink for sink in program.sinks}
    for stream in program.streams:
        plan.add(Box("stream", f"stream {stream.name}", shortened((stream.name, stream.uri or "pushed"))))
    functions = {function.name: function.url for function in program.functions}
    for table in program.tables:
        plan.add(Box("window", f"table {table.name}", shortened((table.name, table.uri or "table"))))
    for planned in physical.queries:
        query = planned.query
        box = plan.add(_query_box(query, planned.node))
        for call in () if query.rule is None else query.rule.calls:
            lines = shortened((f"{call.function}(...)", functions.get(call.function, "in Python")))
            plan.join(box, plan.add(Box("sink", f"function {call.function}", lines)))
        for start in _inputs(query.name, planned.rows, physical, plan, count(1)):
            plan.join(start, box)
        if query.into in sinks:
            uri = sinks[query.into].uri
            plan.join(box, plan.add(Box("sink", f"sink {query.into}", shortened((query.into, uri)))))
        elif query.into is not None:
            plan.join(box, plan.add(Box("stream", f"stream {query.into}", (query.into, "derived stream"))))
    for write in program.writes:
        plan.join(f"stream {write.stream}", f"table {write.table}")
    return plan


def _inputs(query: str, source: Source, physical: PhysicalPlan, plan: Plan, numbers: Iterator[int]) -> list[str]:
    """The boxes that rows come from; those of windows are added, with a number each if they are not shared: a query may
    have several that are written alike."""
    if isinstance(source, str):
        return [plan.add(Box("stream", f"stream {source}", (source, "derived stream")))]
    stage = physical.by_number[source.stage]
    if isinstance(stage.form, Table):
        return [f"table {stage.form.definition.name}"]
    below = [start for one in _read(stage, physical) for start in _inputs(query, one, physical, plan, numbers)]
    box = _box(query, stage, numbers)
    if box is None:
        return below
    for start in below:
        plan.join(start, box.name)
    return [plan.add(box)]


def _read(stage: Stage, physical: PhysicalPlan) -> Sequence[Source]:
    """What a stage reads, without the streams that only say how far the changes of a table have come: these are drawn
    with the table."""
    if not isinstance(stage.form, Lookup | Scan):
        return stage.inputs
    places = [source for source in stage.inputs if isinstance(source, Place)]
    tables = [place for place in places if isinstance(physical.by_number[place.stage].form, Table)]
    return tables if isinstance(stage.form, Scan) else [stage.inputs[0], *tables]


def _box(query: str, stage: Stage, numbers: Iterator[int]) -> Box | None:
    """The box of what a stage keeps; None if it keeps nothing."""
    match stage.form:
        case StoredWindow() as window:
            stream = stream_of(window.nodes[0])
            return _shared_box(f"window of {stream}", "stored window", window.readers)
        case PaneFamily() as paned:
            title = f"panes of {render_duration(paned.family.pane.micros)}"
            return _shared_box(f"panes {stage.number} of {stream_of(paned.nodes[0])}", title, paned.readers)
        case JoinCore(readers) if len({reader.query for reader in readers}) > 1:
            queries = list(dict.fromkeys(reader.query for reader in readers))
            lines = shortened(("stored windows, joined", f"shared by {len(queries)} queries"))
            return Box("window", f"join {stage.number}", lines, ", ".join(queries))
        case JoinCore(readers):
            sides = [f"{side.alias} {render_window(side.window)}" for side in readers[0].node.sides]
            return _own_box(query, numbers, "stored windows, joined", *sides)
        case Pattern(pattern):
            return _own_box(query, numbers, "stored events", f"within {render_duration(pattern.within)}")
        case ClosingWindow(closing):
            return _own_box(query, numbers, "window, no rows stored", render_window(closing.window))
        case OwnWindow(node) | PartitionedWindow(node):
            return _own_box(query, numbers, "stored window", render_window(node.window))
        case RowsWindow(rows) | PartitionedRows(rows) | SessionRows(rows):
            return _own_box(query, numbers, "stored window", render_window(rows.window))
        case Lookup() | Scan() | Edge() | Project() | Union() | Combine() | Table():
            return None
        case other:
            assert_never(other)


def _shared_box(name: str, title: str, readers: Sequence[WindowReader]) -> Box:
    queries = list(dict.fromkeys(reader.query for reader in readers))
    windows = list(dict.fromkeys(render_window(reader.node.window) for reader in readers))
    users = f"shared by {len(queries)} queries" if len(queries) > 1 else f"of {queries[0]}"
    some = windows[:4] + ([f"and {len(windows) - 4} more"] if len(windows) > 4 else [])
    tip = f"{', '.join(queries)}: {' '.join(windows)}"
    return Box("window", name, shortened((title, users, *some)), tip)


def _own_box(query: str, numbers: Iterator[int], title: str, *lines: str) -> Box:
    return Box("window", f"window {next(numbers)} of {query}", shortened((title, f"of {query}", *lines)))


def _query_box(query: Query, node: Node) -> Box:
    lines = [query.name]
    if query.rule is not None:
        lines.append(f"rule {query.rule.name}{', every row' if query.rule.every else ''}")
    while isinstance(node, EdgeNode | ProjectNode) and not isinstance(node.input, StreamNode):
        node = node.input
    match node:
        case AggregateNode():
            lines += _aggregates((node,))
        case CombineNode():
            lines += _aggregates(node.inputs)
        case RelationNode():
            lines.append("rows of the window")
        case JoinNode():
            lines.append(f"joins {len(node.sides)} windows")
        case PatternNode():
            lines.append("matches of a pattern")
        case LookupNode():
            lines.append(f"looks up {_count(len(node.lookups), 'table')}")
        case StreamNode() | ScanNode() | EdgeNode() | ProjectNode() | UnionNode():
            lines.append("event by event")
        case other:
            assert_never(other)
    return Box("query", f"query {query.name}", shortened(lines), " ".join(query.text.split()))


def _aggregates(windows: tuple[AggregateNode, ...]) -> list[str]:
    answers, states = sum(len(w.answers) for w in windows), sum(len(w.states) for w in windows)
    keys = len(windows[0].group_by)
    return [
        f"{_count(answers, 'aggregate')}, {_count(states, 'state')}",
        f"groups by {_count(keys, 'key')}" if keys else "one group",
    ]


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
