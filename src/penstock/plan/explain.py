"""EXPLAIN: the plan of each query as a tree, with what it stores, how much that is, what I/O it will cause, and where
it would run on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.lang.query import Emit, Query
from penstock.lang.render import render, render_window
from penstock.plan import cost
from penstock.plan.nodes import (
    AggregateNode,
    CombineNode,
    Emission,
    Node,
    ProjectNode,
    RelationNode,
    StreamNode,
    UnionNode,
    children,
)
from penstock.plan.nullability import can_be_null
from penstock.plan.placement import Placement, follows_the_wall_clock, place
from penstock.plan.sharing import sharers
from penstock.plan.strategy import closes_as_a_whole
from penstock.windows.spec import Range, TimeSlide

STATE_BYTES = {"COUNT": 8, "SUM": 48, "MOMENTS": 144, "COMOMENTS": 320}
"""Bytes per group and state of constant size; the other kinds grow with the window."""

DEFAULT_BLOCK = 65536


def explain(
    queries: Iterable[Query],
    nodes: Mapping[str, Node],
    sharing: Mapping[str, Sequence[str]] | None = None,
    workload: cost.Workload | None = None,
    block_size: int = DEFAULT_BLOCK,
) -> str:
    """The plans, and under each window its estimates for the workload given (or a stated default).

    `sharing` names for each query those that share its stored rows; by default as if all were started together.
    """
    queries = tuple(queries)
    sharing = sharers(nodes) if sharing is None else sharing
    placements = place(queries, nodes)
    assumed = workload or cost.Workload()
    lines = [
        f"estimates for {assumed.rate:,.0f} events/s, {assumed.groups_in_slide:,} groups per slide, "
        f"{assumed.groups:,} groups per window, blocks of {block_size // 1024} KB"
    ]
    for query in queries:
        target = f" into {query.into}" if query.into else ""
        lines.append(f"\n{query.name}{target}")
        if sharing.get(query.name):
            lines.append(f"shares its stored rows with {', '.join(sharing[query.name])}")
        lines.append(f"on Spark, {_on_spark(nodes[query.name], placements[query.name])}")
        lines += _tree(nodes[query.name], "", assumed, block_size)
    return "\n".join(lines)


def _on_spark(node: Node, placement: Placement) -> str:
    return "refused: windows ON WALL CLOCK cannot be repeated there" if follows_the_wall_clock(node) else str(placement)


def _tree(node: Node, indent: str, workload: cost.Workload, block_size: int) -> list[str]:
    title, details = _describe(node, workload, block_size)
    below = children(node)
    lines = [f"{indent}└─ {title}"]
    bar = "│  " if below else "   "
    lines += [f"{indent}   {bar}{detail}" for detail in details]
    for child in below:
        lines += _tree(child, indent + "   ", workload, block_size)
    return lines


def _describe(node: Node, workload: cost.Workload, block_size: int) -> tuple[str, list[str]]:
    if isinstance(node, StreamNode):
        return f"stream {node.name}", []
    if isinstance(node, UnionNode):
        return f"union all of {len(node.inputs)} inputs, by (time, position)", []
    if isinstance(node, CombineNode):
        names = {f"#{i}": render(key) for i, key in enumerate(node.inputs[0].group_by)}
        for i, looked in enumerate(node.looked):
            part = node.inputs[looked.input]
            names[f"${i}"] = f"{_names(part)[f'${looked.column}']} OVER {render_window(part.window)}"
        lengths = len({part.window.extent for part in node.inputs})
        return f"combine windows of {lengths} lengths, by group", _emission(node.emission, names)
    details = [] if node.where is None else [f"where    {render(node.where)}"]
    if isinstance(node, ProjectNode):
        return "project", [*details, "outputs  " + _outputs(node)]
    if isinstance(node, RelationNode):
        details += _emission(node.emission, {})
        return f"rows of {render_window(node.window)}", details
    if node.where is not None:
        details[-1] += "  (before the window)" if node.filter_first else "  (the window counts rows before it)"
    if node.group_by:
        details.append("group by " + ", ".join(render(key) for key in node.group_by))
    details += [f"state    {_state(node, i)}" for i in range(len(node.states))]
    shared = sum(answer.state < 0 for answer in node.answers)
    details.append(
        f"shared   {len(node.answers)} aggregates, {len(node.states)} states"
        + (f", {shared} from the group's row count" if shared else "")
    )
    details += _emission(node.emission, _names(node))
    return f"aggregate over {render_window(node.window)}", details + _estimates(node, workload, block_size)


def _outputs(node: ProjectNode) -> str:
    return ", ".join(f"{render(o.expression)} AS {o.name}" for o in node.outputs)


def _state(node: AggregateNode, index: int) -> str:
    state = node.states[index]
    arguments = ", ".join(render(arg) for arg in state.args) or "*"
    behind = f" where {render(state.filter)}" if state.filter is not None else ""
    wants = ", ".join(w.function + (f"({w.parameter})" if w.parameter is not None else "") for w in state.wants)
    return f"{state.user or state.kind} of {arguments}{behind}, answers {wants}"


def _names(node: AggregateNode) -> dict[str, str]:
    """What keys and aggregates, columns named `#0` and `$0` in the plan, are called by people."""
    names = {f"#{i}": render(key) for i, key in enumerate(node.group_by)}
    for i, answer in enumerate(node.answers):
        names[f"${i}"] = "COUNT(*)"
        if answer.state >= 0:
            state = node.states[answer.state]
            want = state.wants[answer.want]
            arguments = [render(arg) for arg in state.args] + ([] if want.parameter is None else [str(want.parameter)])
            names[f"${i}"] = f"{want.function}({', '.join(arguments) or '*'})"
    return names


def _emission(emission: Emission, names: Mapping[str, str]) -> list[str]:
    what = "the arriving event's group" if emission.emit is Emit.EVENT_GROUP else emission.emit.value
    lines = [f"emits    {what}" + (", drained at the end" if emission.drain else "")]
    if emission.having is not None:
        lines.append(f"having   {render(emission.having, names)}")
    if emission.order_by:
        keys = ", ".join(render(o.expression, names) + (" DESC" if o.descending else "") for o in emission.order_by)
        lines.append(f"order by {keys}" + (f" limit {emission.limit}" if emission.limit is not None else ""))
    return lines


def row_bytes(node: AggregateNode) -> int:
    """Bytes of a row in the window's blocks: time, group and each distinct argument and filter, as stored."""
    arguments = dict.fromkeys(arg for state in node.states for arg in state.args)
    filters = dict.fromkeys(state.filter for state in node.states if state.filter is not None)
    nullable = sum(can_be_null(arg, node.input.schema) for arg in arguments)
    return 12 + sum(arg.type.storage.itemsize for arg in arguments) + len(filters) + -(-nullable // 8)


def _estimates(node: AggregateNode, workload: cost.Workload, block_size: int) -> list[str]:
    if closes_as_a_whole(node):
        return ["stores   accumulators of open windows only; no rows"]
    row = row_bytes(node)
    io = (
        f"{cost.iops(workload.rate, block_size=block_size, row=row):.2f} requests/s (3.1), "
        f"{_size(cost.io_bandwidth(workload.rate, block_size=block_size, row=row))}/s (3.2)"
    )
    lines = [f"stores   rows of {row} bytes, each written once and read once"]
    state = max((STATE_BYTES.get(s.kind, 64) for s in node.states), default=8)
    if isinstance(node.window.extent, Range):
        window = node.window.extent.micros / 1e6
        one = cost.space_one_window(workload, aggregates=len(node.states) + 1, window=window, row=row, state=state)
        lines.append(f"space    one window (1W) {_size(one)} (2.2), used")
        if isinstance(node.window.slide, TimeSlide):
            two = cost.space_two_level(
                workload,
                aggregates=len(node.states) + 1,
                window=window,
                slide=node.window.slide.micros / 1e6,
                state=state,
                partial=state + 4,
            )
            lines.append(f"         two levels (2LA) would take {_size(two)} (2.1)")
    return [*lines, f"I/O      {io} once the window is larger than memory"]


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
