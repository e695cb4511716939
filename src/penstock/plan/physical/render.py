"""A physical plan as text: a line for each stage, member and place, then the place that gives the rows of each query.

0  stored window over s
     aggregation of [RANGE 1 HOUR SLIDE 1 MINUTE] by k: row count, SUM of x; looks at all groups
       0.0  a
       0.1  b
1  project over 0.1
a  from 0.0
b  from 1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from penstock.lang.render import render, render_duration, render_window
from penstock.plan.aggregations import look_of, unite
from penstock.plan.nodes import AggregateNode, StateSpec
from penstock.plan.physical import nodes as physical


def render_plan(plan: physical.PhysicalPlan) -> str:
    lines = []
    for stage in plan.stages:
        title, details = _form(stage.form)
        inputs = " and ".join(map(_source, stage.inputs))
        lines.append(f"{stage.number}  {title}{f' over {inputs}' if inputs else ''}{_names(stage.form)}")
        lines += [f"     {line}" for line in details]
        if isinstance(stage.form, physical.Shareable):
            lines += _readers(stage.number, stage.form)
    for planned in plan.queries:
        placed = "" if planned.placement is None else f"; on Spark {planned.placement}"
        lines.append(f"{planned.name}  from {_source(planned.rows)}{placed}")
    return "\n".join(lines)


def _source(source: physical.Source) -> str:
    return source if isinstance(source, str) else f"{source.stage}.{source.output}"


def _form(form: physical.Form) -> tuple[str, list[str]]:
    """What a stage is, and what is said below it. Members of stored windows are told with their readers."""
    match form:
        case physical.StoredWindow():
            return "stored window", []
        case physical.PaneFamily():
            states = _states(unite(form.nodes).states)
            return "panes", [f"of {render_duration(form.family.pane.micros)}{_keys(form.nodes[0])}: {states}"]
        case physical.JoinCore():
            return "join core", []
        case physical.OwnWindow(node):
            return "stored window of one query", [_aggregation(node, node.states)]
        case physical.ClosingWindow(node):
            return "closing window", [_aggregation(node, node.states)]
        case physical.PartitionedWindow(node, shows_changes):
            return _changing("partitioned window", shows_changes), [_aggregation(node, node.states)]
        case physical.RowsWindow(node, shows_changes):
            return _changing("rows", shows_changes), [f"of {render_window(node.window)}"]
        case physical.PartitionedRows(node, shows_changes):
            return _changing("partitioned rows", shows_changes), [f"of {render_window(node.window)}"]
        case physical.SessionRows(node):
            return "rows of sessions", [f"of {render_window(node.window)}"]
        case physical.Combine():
            return "combine", []
        case physical.Union():
            return "union", []
        case physical.Project(node):
            return "project", [] if node.where is None else [f"where {render(node.where)}"]
        case physical.Pattern(node):
            return "pattern", [f"within {render_duration(node.within)}"]
        case physical.Edge():
            return "edge", []
        case physical.Lookup():
            return "look-up", []
        case physical.Scan():
            return "scan", []
        case physical.Table(definition):
            return f"table {definition.name}", []
        case other:
            assert_never(other)


def _changing(title: str, shows_changes: bool) -> str:
    return f"{title}, only what changes," if shows_changes else title


def _names(form: physical.Form) -> str:
    saved = form.saved if isinstance(form, physical.Shareable) else ""
    at_work = form.at_work if isinstance(form, physical.StoredWindow) else ""
    return (f", goes on as {saved}" if saved else "") + (f", joins {at_work}" if at_work else "")


def _readers(number: int, form: physical.Shareable) -> list[str]:
    """The places of a stage."""
    match form:
        case physical.StoredWindow(members):
            lines, place = [], 0
            for member in members:
                look = f"; looks at {look_of(member.nodes[0]).value}"
                saved = f", goes on as {member.saved}" if member.saved else ""
                states = unite(member.nodes).states
                lines.append(f"     aggregation {_aggregation(member.nodes[0], states)}{look}{saved}")
                for reader in member.readers:
                    lines.append(f"       {number}.{place}  {reader.query}")
                    place += 1
            return lines
        case physical.PaneFamily(readers):
            shown = [f"{reader.query} {render_window(reader.node.window)}" for reader in readers]
        case physical.JoinCore(joins):
            shown = [
                f"{join.query} " + ", ".join(f"{side.alias} {render_window(side.window)}" for side in join.node.sides)
                for join in joins
            ]
        case other:
            assert_never(other)
    return [f"     {number}.{place}  {text}" for place, text in enumerate(shown)]


def _aggregation(node: AggregateNode, states: Sequence[StateSpec]) -> str:
    where = ""
    if node.where is not None:
        where = f" where {render(node.where)} {'before' if node.filter_first else 'in'} the window"
    return f"of {render_window(node.window)}{where}{_keys(node)}: {_states(states)}"


def _keys(node: AggregateNode) -> str:
    return f" by {', '.join(render(key) for key in node.group_by)}" if node.group_by else ""


def _states(states: Sequence[StateSpec]) -> str:
    shown = [f"{s.user or s.kind} of {', '.join(render(arg) for arg in s.args) or '*'}" for s in states]
    return ", ".join(["row count", *shown])
