"""EXPLAIN: the plan of each query as a tree, with what it stores, how much that is, what I/O it will cause, and where
it would run on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from penstock.lang.query import Emit, Program, Query, Rule, StreamDef
from penstock.lang.render import render, render_duration, render_window
from penstock.lang.table_defs import TableWrite
from penstock.plan import cost
from penstock.plan.aggregations import Aggregations, aggregations, count, unite
from penstock.plan.arrival import describe_arrival
from penstock.plan.build import build
from penstock.plan.joins.explain import describe_join
from penstock.plan.nodes import (
    AggregateNode,
    CombineNode,
    EdgeNode,
    Emission,
    JoinNode,
    LookupNode,
    Node,
    PatternNode,
    ProjectNode,
    RelationNode,
    ScanNode,
    StreamNode,
    UnionNode,
    children,
)
from penstock.plan.pane_cost import DEFAULT_MEMORY, Comparison, check_strategy, choose, compare
from penstock.plan.panes import Family, family_of, why_not
from penstock.plan.patterns.explain import describe_pattern, names_in
from penstock.plan.placement import Placement, Spread, follows_the_wall_clock, place
from penstock.plan.shared_io import SharedStore, shared_stores
from penstock.plan.sharing import shareable, sharers
from penstock.plan.sizes import pane_row_bytes, row_bytes, state_bytes
from penstock.plan.strategy import closes_as_a_whole
from penstock.plan.tables.explain import describe_lookup, describe_writes

DEFAULT_BLOCK = 65536

_NAMES_SHOWN = 10

_EMITS = {
    Emit.EVENT_GROUP: "the arriving event's group",
    Emit.EDGE: "groups that were not in the evaluation before",
}

Families = Mapping[AggregateNode, Family]
"""The families of the windows that are made of panes."""


def explain(
    queries: Iterable[Query],
    nodes: Mapping[str, Node],
    sharing: Mapping[str, Sequence[str]] | None = None,
    workload: cost.Workload | None = None,
    block_size: int = DEFAULT_BLOCK,
    families: Families | None = None,
    memory: int = DEFAULT_MEMORY,
    groups: Aggregations | None = None,
    changes: Mapping[str, str] | None = None,
    writes: Iterable[TableWrite] = (),
    streams: Iterable[StreamDef] = (),
) -> str:
    """The plans, and under each window its estimates for the workload given (or a stated default); at the end those of
    stores that several windows share, for so much memory.

    `sharing` names for each query those that share its stored rows, `groups` has the queries of each aggregation and
    `families` the windows that are made of panes; by default as if all were started together. `changes` says what
    becomes of queries whose windows are about to change, `writes` what changes tables, `streams` the declared ones.
    """
    queries = tuple(queries)
    if families is None:
        families = _families(queries, nodes, workload or cost.Workload(), memory)
    sharing = sharers(nodes, families) if sharing is None else sharing
    placements = place(queries, nodes)
    assumed = workload or cost.Workload()
    lines = [
        f"estimates for {assumed.rate:,.0f} events/s, {assumed.groups_in_slide:,} groups per slide, "
        f"{assumed.groups:,} groups per window, blocks of {block_size // 1024} KB"
    ]
    lines += describe_arrival(streams)
    lines += _counted(aggregations(nodes, families) if groups is None else groups)
    for query in queries:
        target = f" into {query.into}" if query.into else ""
        lines.append(f"\n{query.name}{target}")
        if query.rule is not None:
            lines.append(_rule(query.rule))
        if sharing.get(query.name):
            lines.append(f"shares its stored rows with {_listed(sharing[query.name])}")
        if changes is not None and query.name in changes:
            lines.append(changes[query.name])
        lines.append(f"on Spark, {_on_spark(query, nodes[query.name], placements[query.name])}")
        lines += _tree(nodes[query.name], "", assumed, block_size, families)
    together = {name: node for name, node in nodes.items() if sharing.get(name)}
    for store in shared_stores(together, families, assumed, block_size=block_size, memory=memory):
        lines += _shared(store, memory)
    return "\n".join(lines + describe_writes(writes))


def explain_program(program: Program, *, memory: int = DEFAULT_MEMORY, block_size: int = DEFAULT_BLOCK) -> str:
    """The plans that an app of the program begins with. Nothing is opened: no file, no table and no database."""
    nodes = {query.name: build(query.body) for query in program.queries}
    for query in program.queries:
        check_strategy(query, nodes[query.name])
    return explain(
        program.queries, nodes, block_size=block_size, memory=memory, writes=program.writes, streams=program.streams
    )


def _families(queries: Iterable[Query], nodes: Mapping[str, Node], workload: cost.Workload, memory: int) -> Families:
    windows = [(query.strategy or "auto", window) for query in queries for window in shareable(nodes[query.name])]
    choice = choose(windows, lambda window: workload, memory)
    return {window: family for (_, window), family in choice.items()}


def _counted(groups: Aggregations) -> list[str]:
    """What is computed once for several queries."""
    queries = len({name for group in groups for name, _ in group})
    if all(len(group) == 1 for group in groups):
        return []
    found = count(groups)
    return [
        f"{queries:,} queries are {len(groups):,} aggregation{'s' if len(groups) > 1 else ''}: {found.asked:,} KPIs, "
        f"{found.aggregates:,} different aggregates, {found.states:,} states"
    ]


def _listed(names: Sequence[str]) -> str:
    """Names; of many the first ones."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMES_SHOWN])} and {more:,} more"


def _on_spark(query: Query, node: Node, placement: Placement) -> str:
    if follows_the_wall_clock(node):
        return "refused: windows ON WALL CLOCK cannot be repeated there"
    in_parts = placement.spread is Spread.PARTIALS and query.strategy == "panes"
    return f"{placement}{'; parts keep rows, whatever the strategy' if in_parts else ''}"


def _tree(node: Node, indent: str, workload: cost.Workload, block_size: int, families: Families) -> list[str]:
    title, details = _describe(node, workload, block_size, families)
    below = children(node)
    lines = [f"{indent}└─ {title}"]
    bar = "│  " if below else "   "
    lines += [f"{indent}   {bar}{detail}" for detail in details]
    for child in below:
        lines += _tree(child, indent + "   ", workload, block_size, families)
    return lines


def _describe(node: Node, workload: cost.Workload, block_size: int, families: Families) -> tuple[str, list[str]]:
    match node:
        case StreamNode():
            return f"stream {node.name}", []
        case UnionNode():
            return f"union all of {len(node.inputs)} inputs, by (time, position)", []
        case CombineNode():
            return _combine(node)
        case PatternNode():
            return describe_pattern(node)
        case JoinNode():
            title, details = describe_join(node)
            return title, [*details, *_emission(node.emission, {}, "the arriving event's rows")]
        case ScanNode():
            return f"all rows of the table {node.table}, every {render_duration(node.slide.micros)}", []
        case LookupNode():
            return describe_lookup(node)
        case EdgeNode():
            return "where a condition becomes true", _edge(node)
        case ProjectNode():
            named = names_in(node.input) if isinstance(node.input, PatternNode) else None
            return "project", [*_where(node), "outputs  " + _outputs(node, named)]
        case RelationNode():
            return f"rows of {render_window(node.window)}", [*_where(node), *_emission(node.emission, {})]
        case AggregateNode():
            return _aggregate(node, workload, block_size, families)
        case other:
            assert_never(other)


def _where(node: ProjectNode | RelationNode | AggregateNode) -> list[str]:
    return [] if node.where is None else [f"where    {render(node.where)}"]


def _combine(node: CombineNode) -> tuple[str, list[str]]:
    names = {f"#{i}": render(key) for i, key in enumerate(node.inputs[0].group_by)}
    for i, looked in enumerate(node.looked):
        part = node.inputs[looked.input]
        names[f"${i}"] = f"{_names(part)[f'${looked.column}']} OVER {render_window(part.window)}"
    lengths = len({part.window.extent for part in node.inputs})
    return f"combine windows of {lengths} lengths, by group", _emission(node.emission, names)


def _aggregate(
    node: AggregateNode, workload: cost.Workload, block_size: int, families: Families
) -> tuple[str, list[str]]:
    details = _where(node)
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
    family = families.get(node)
    if family is not None:
        details += _estimates_of_panes(family, workload)
    else:
        details += _estimates(node, workload, block_size)
    return f"aggregate over {render_window(node.window)}", details


def _edge(node: EdgeNode) -> list[str]:
    names = _names(node.input) if isinstance(node.input, AggregateNode) else {}
    keys = ", ".join(render(key, names) for key in node.keys)
    condition = "TRUE" if node.condition is None else render(node.condition, names)
    return [
        f"when     {condition}",
        *([f"by       {keys}"] if keys else []),
        "outputs  " + _outputs(node, names),
        f"stores   the {'keys' if keys else 'fact'} for which it is true now",
    ]


def _rule(rule: Rule) -> str:
    """What a rule does, in a line."""
    does = [*(f"emits into {name}" for name in rule.writes), *rule.changes]
    does += [f"calls {call.function}({', '.join(a.name for a in call.arguments)})" for call in rule.calls]
    return f"rule {rule.name}, {'at every row' if rule.every else 'where it becomes true'}: {', '.join(does)}"


def _outputs(node: ProjectNode | EdgeNode, names: Mapping[str, str] | None = None) -> str:
    return ", ".join(f"{render(o.expression, names or {})} AS {o.name}" for o in node.outputs)


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


def _emission(emission: Emission, names: Mapping[str, str], of_event: str | None = None) -> list[str]:
    what = _EMITS.get(emission.emit, emission.emit.value)
    if of_event is not None and emission.emit is Emit.EVENT_GROUP:
        what = of_event
    lines = [f"emits    {what}" + (", drained at the end" if emission.drain else "")]
    if emission.having is not None:
        lines.append(f"having   {render(emission.having, names)}")
    if emission.order_by:
        keys = ", ".join(render(o.expression, names) + (" DESC" if o.descending else "") for o in emission.order_by)
        lines.append(f"order by {keys}" + (f" limit {emission.limit}" if emission.limit is not None else ""))
    return lines


def _estimates(node: AggregateNode, workload: cost.Workload, block_size: int) -> list[str]:
    if closes_as_a_whole(node):
        return ["stores   accumulators of open windows only; no rows"]
    row = row_bytes(node)
    io = (
        f"{cost.iops(workload.rate, block_size=block_size, row=row):.2f} requests/s (3.1), "
        f"{_size(cost.io_bandwidth(workload.rate, block_size=block_size, row=row))}/s (3.2)"
    )
    lines = [f"stores   rows of {row} bytes, each written once and read once"]
    if why_not(node) is None:
        lines += _comparison(compare(family_of([node]), workload), panes_used=False)
    elif node.window.extent.length is not None:
        window, state = node.window.extent.length / 1e6, state_bytes(node.states)
        one = cost.space_one_window(workload, aggregates=len(node.states) + 1, window=window, row=row, state=state)
        lines.append(f"space    one window (1W) {_size(one)} (2.2)")
    return [*lines, f"I/O      {io} once the window is larger than memory"]


def _estimates_of_panes(family: Family, workload: cost.Workload) -> list[str]:
    windows, row = len(family.windows), pane_row_bytes(unite(family.nodes).states)
    made = f"for {windows:,} windows" if windows > 1 else "for this window"
    return [
        f"stores   panes of {render_duration(family.pane.micros)} {made}, rows of {row} bytes for each group in a pane",
        *_comparison(compare(family, workload), panes_used=True),
    ]


def _shared(store: SharedStore, memory: int) -> list[str]:
    needed = (
        f"at most {store.requests:.2f} requests/s (4.1), {store.hit_rate:.0%} of the blocks found in memory (4.2)"
        if store.hit_rate < 1
        else "none: all blocks stay in memory"
    )
    return [
        f"\nthe stored rows of {store.stream}, shared by {', '.join(store.queries)}",
        f"   stores   rows of {store.row} bytes, each written once",
        f"   space    {_size(store.space)}, that of the largest window; {_size(store.space_apart)} for windows apart",
        f"   I/O      {needed} with {_size(memory)}; {store.requests_apart:.2f} for windows apart (3.1)",
    ]


def _comparison(found: Comparison, *, panes_used: bool) -> list[str]:
    one, panes = found.one_window, found.panes
    used, not_used = ("", ", used") if panes_used else (", used", "")
    return [
        f"space    one window (1W) {_size(one.space)} (2.2){used}",
        f"         two levels (2LA) {_size(panes.space)} (2.1){not_used}",
        f"CPU      one window {one.cpu:.3%} of a core, panes {panes.cpu:.3%}",
    ]


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
