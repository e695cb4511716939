"""From typed queries to plans: each SELECT becomes a node over the node of its source.

Why: docs/decisions/filter-first.md
"""

from __future__ import annotations

from typing import assert_never

from penstock.expressions.tree import Column
from penstock.lang.query import (
    Edge,
    Emit,
    Join,
    Pattern,
    Select,
    Source,
    StreamRef,
    TableRef,
    TableScan,
    Union,
    columns_of,
)
from penstock.plan.combining import combined
from penstock.plan.joins.build import build_join
from penstock.plan.nodes import (
    WINDOW_COLUMNS,
    AggregateNode,
    EdgeNode,
    Emission,
    Node,
    ProjectNode,
    RelationNode,
    StreamNode,
    UnionNode,
)
from penstock.plan.patterns.build import build_pattern
from penstock.plan.states import assign_states
from penstock.plan.tables.lookups import build_lookup, build_scan
from penstock.plan.tables.windowed import build_windowed_lookup
from penstock.types import Schema
from penstock.windows.spec import WindowSpec


def build(source: Source) -> Node:
    match source:
        case StreamRef():
            return StreamNode(source.name, source.schema)
        case Union():
            return UnionNode(tuple(build(s) for s in source.inputs), columns_of(source))
        case Pattern():
            return build_pattern(source, tuple(map(build, source.inputs)))
        case TableScan():
            return build_scan(source)
        case Edge():
            return EdgeNode(build(source.source), source.keys, source.condition, source.outputs, source.schema)
        case Select():
            return _build_select(source)
        case Join():
            raise AssertionError("a join stands in the FROM of a SELECT")
        case other:
            assert_never(other)


def _build_select(select: Select) -> Node:
    if isinstance(select.source, Join):
        return _build_join(select, select.source)
    below = build(select.source)
    if select.window is None:
        return ProjectNode(below, select.where, select.outputs, select.schema)
    emission = Emission(
        select.outputs, select.having, select.distinct, select.order_by, select.limit, select.emit, select.drain
    )
    schema = Schema(WINDOW_COLUMNS + select.schema.fields)
    partition = tuple(_column(below.schema, name) for name in select.window.partition_by)
    filter_first = _filters_first(select.window, select)
    if not select.aggregating:
        return RelationNode(below, select.window, select.where, filter_first, partition, emission, schema)

    states, answers = assign_states(select.aggregates, below.schema)
    node = AggregateNode(
        below,
        select.window,
        select.where,
        filter_first,
        partition,
        select.group_by,
        states,
        answers,
        emission,
        schema,
    )
    return combined(node, select.aggregates)


def _build_join(select: Select, join: Join) -> Node:
    if join.window is None:
        return build_lookup(select, join, build)
    if any(isinstance(side.source, TableRef) for side in join.sides):
        return build_windowed_lookup(select, join, build)
    return build_join(select, join, build)


def _column(schema: Schema, name: str) -> Column:
    field = schema.find(name)
    assert field is not None, f"the binder checked that {name} exists"
    return Column(field.name, field.type)


def _filters_first(window: WindowSpec, select: Select) -> bool:
    """Whether rows that fail WHERE may be dropped before the window (contract, rule 4).

    Counting windows count them; explicit R/I/DSTREAM on per-event windows evaluates at them.
    """
    if window.counts_before_where or window.extent.length is None:
        return False
    return select.emit is Emit.EVENT_GROUP or not window.is_per_event
