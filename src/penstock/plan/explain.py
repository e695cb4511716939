"""EXPLAIN: the physical plan as one tree of stages for each query, with what it stores, how much that is, what I/O it
will cause, and where it would run on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from penstock.lang.query import Emit, Program, Rule, StreamDef
from penstock.lang.render import render, render_duration, render_window
from penstock.lang.table_defs import TableWrite
from penstock.plan import cost
from penstock.plan.aggregations import Aggregations, count
from penstock.plan.arrival import describe_arrival
from penstock.plan.estimates import estimates_of_panes, estimates_of_rows, estimates_of_store
from penstock.plan.joins.explain import describe_join
from penstock.plan.nodes import (
    AggregateNode,
    CombineNode,
    EdgeNode,
    Emission,
    PatternNode,
    ProjectNode,
    RelationNode,
)
from penstock.plan.pane_cost import DEFAULT_MEMORY
from penstock.plan.patterns.explain import describe_pattern, names_in
from penstock.plan.physical import nodes as physical
from penstock.plan.physical.circumstances import Circumstances, OnSpark
from penstock.plan.physical.nodes import PhysicalPlan, Place, PlannedQuery, Source, Stage
from penstock.plan.physical.readers import aggregations, sharers
from penstock.plan.physical.render import render_plan
from penstock.plan.physical.rules import plan_program
from penstock.plan.placement import Spread, follows_the_wall_clock
from penstock.plan.shared_io import shared_stores
from penstock.plan.tables.explain import describe_lookup, describe_ttl, describe_writes

DEFAULT_BLOCK = 65536

_NAMES_SHOWN = 10

_EMITS = {
    Emit.EVENT_GROUP: "the arriving event's group",
    Emit.EDGE: "groups that were not in the evaluation before",
}

CLOSING = ["stores   accumulators of open windows only; no rows"]


def explain(
    plan: PhysicalPlan,
    workload: cost.Workload | None = None,
    block_size: int = DEFAULT_BLOCK,
    memory: int = DEFAULT_MEMORY,
    changes: Mapping[str, str] | None = None,
    writes: Iterable[TableWrite] = (),
    streams: Iterable[StreamDef] = (),
) -> str:
    """The stages of each query, and under each window its estimates for the workload given (or a stated default); at
    the end those of stores that several windows share, for so much memory.

    `changes` says what becomes of queries whose windows are about to change, `writes` what changes tables, `streams`
    the declared ones.
    """
    assumed = workload or cost.Workload()
    lines = [
        f"estimates for {assumed.rate:,.0f} events/s, {assumed.groups_in_slide:,} groups per slide, "
        f"{assumed.groups:,} groups per window, blocks of {block_size // 1024} KB"
    ]
    lines += describe_arrival(streams)
    lines += _counted(aggregations(plan))
    sharing = sharers(plan)
    shown = _Shown(plan, assumed, block_size)
    for planned in plan.queries:
        query = planned.query
        target = f" into {query.into}" if query.into else ""
        lines.append(f"\n{query.name}{target}")
        if query.rule is not None:
            lines.append(_rule(query.rule))
        if query.name in sharing:
            lines.append(f"shares its stored rows with {_listed(sharing[query.name])}")
        if changes is not None and query.name in changes:
            lines.append(changes[query.name])
        lines.append(f"on Spark, {_on_spark(planned)}")
        lines += shown.tree(planned.rows, "")
    for store in shared_stores(plan, assumed, block_size=block_size, memory=memory):
        lines += estimates_of_store(store, memory)
    return "\n".join(lines + describe_writes(writes))


def explain_program(program: Program, *, memory: int = DEFAULT_MEMORY, block_size: int = DEFAULT_BLOCK) -> str:
    """The plan that an app of the program begins with. Nothing is opened: no file, no table and no database."""
    plan = plan_program(program, Circumstances(memory=memory, on_spark=OnSpark()))
    return explain(plan, block_size=block_size, memory=memory, writes=program.writes, streams=program.streams)


def explain_stages(program: Program, *, memory: int = DEFAULT_MEMORY) -> str:
    """The same plan as its stages, each once, with the queries that read it."""
    return render_plan(plan_program(program, Circumstances(memory=memory, on_spark=OnSpark())))


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


def _on_spark(planned: PlannedQuery) -> str:
    placement = planned.placement
    assert placement is not None, "EXPLAIN is given plans that are placed"
    if follows_the_wall_clock(planned.node):
        return "refused: windows ON WALL CLOCK cannot be repeated there"
    in_parts = placement.spread is Spread.PARTIALS and planned.query.strategy == "panes"
    return f"{placement}{'; parts keep rows, whatever the strategy' if in_parts else ''}"


class _Shown:
    """The stages of a plan as trees. What is said of a family's panes is the same for all its queries."""

    def __init__(self, plan: PhysicalPlan, workload: cost.Workload, block_size: int) -> None:
        self._plan = plan
        self._workload = workload
        self._block_size = block_size
        self._panes: dict[int, list[str]] = {}

    def tree(self, source: Source, indent: str) -> list[str]:
        if isinstance(source, str):
            return [f"{indent}└─ stream {source}"]
        stage = self._plan.by_number[source.stage]
        title, details = self._describe(stage, source.output)
        below = [read for read in stage.inputs if not self._is_table(read)]
        bar = "│  " if below else "   "
        lines = [f"{indent}└─ {title}", *(f"{indent}   {bar}{detail}" for detail in details)]
        return lines + [line for read in below for line in self.tree(read, indent + "   ")]

    def _is_table(self, source: Source) -> bool:
        """Tables are told of at the end."""
        return isinstance(source, Place) and isinstance(self._plan.by_number[source.stage].form, physical.Table)

    def _describe(self, stage: Stage, output: int) -> tuple[str, list[str]]:
        match stage.form:
            case physical.StoredWindow() as window:
                return self._rows_stored(window.nodes[output])
            case physical.OwnWindow(node):
                return self._rows_stored(node)
            case physical.PartitionedWindow(node):
                return self._rows_stored(node)
            case physical.PaneFamily(readers) as paned:
                if stage.number not in self._panes:
                    self._panes[stage.number] = estimates_of_panes(paned.family, self._workload)
                return _aggregate(readers[output].node, self._panes[stage.number])
            case physical.ClosingWindow(node):
                return _aggregate(node, CLOSING)
            case physical.JoinCore(joins):
                title, details = describe_join(joins[output].node)
                return title, [*details, *_emission(joins[output].node.emission, {}, "the arriving event's rows")]
            case physical.RowsWindow(rows) | physical.PartitionedRows(rows) | physical.SessionRows(rows):
                return f"rows of {render_window(rows.window)}", [*_where(rows), *_emission(rows.emission, {})]
            case physical.Combine(combine):
                return _combine(combine)
            case physical.Union(union):
                return f"union all of {len(union.inputs)} inputs, by (time, position)", []
            case physical.Pattern(pattern):
                return describe_pattern(pattern)
            case physical.Scan(scan):
                return f"all rows of the table {scan.table}, every {render_duration(scan.slide.micros)}", describe_ttl(
                    scan.definition
                )
            case physical.Lookup(lookup):
                return describe_lookup(lookup)
            case physical.Edge(edge):
                return "where a condition becomes true", _edge(edge)
            case physical.Project(project):
                named = names_in(project.input) if isinstance(project.input, PatternNode) else None
                return "project", [*_where(project), "outputs  " + _outputs(project, named)]
            case physical.Table(definition):
                return f"table {definition.name}", []
            case other:
                assert_never(other)

    def _rows_stored(self, node: AggregateNode) -> tuple[str, list[str]]:
        return _aggregate(node, estimates_of_rows(node, self._workload, self._block_size))


def _where(node: ProjectNode | RelationNode | AggregateNode) -> list[str]:
    return [] if node.where is None else [f"where    {render(node.where)}"]


def _combine(node: CombineNode) -> tuple[str, list[str]]:
    names = {f"#{i}": render(key) for i, key in enumerate(node.inputs[0].group_by)}
    for i, looked in enumerate(node.looked):
        part = node.inputs[looked.input]
        names[f"${i}"] = f"{_names(part)[f'${looked.column}']} OVER {render_window(part.window)}"
    lengths = len({part.window.extent for part in node.inputs})
    return f"combine windows of {lengths} lengths, by group", _emission(node.emission, names)


def _aggregate(node: AggregateNode, estimates: Sequence[str]) -> tuple[str, list[str]]:
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
    details += estimates
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
