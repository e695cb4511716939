"""A SELECT over several windows to a `JoinNode`; aggregates over it are one more node, over the rows of each R(k).

At slides a join gives its relation R(k) as rows of the time b - 1. A tumbling window as long as the slide holds just
these, so aggregates over R(k) are those of any tumbling window.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.expressions.tree import Column, columns
from penstock.lang.query import Emit, Join, Output, Select, Source, TableRef
from penstock.plan.joins.bands import bands
from penstock.plan.joins.conditions import assigned, conjunction, own
from penstock.plan.joins.keys import equalities
from penstock.plan.joins.narrowing import narrowings
from penstock.plan.nodes import (
    WINDOW_COLUMNS,
    AggregateNode,
    Band,
    Condition,
    Emission,
    Equality,
    JoinNode,
    JoinSide,
    Node,
)
from penstock.plan.states import assign_states
from penstock.types import Schema
from penstock.windows.spec import Range, WindowSpec


def build_join(select: Select, join: Join, build: Callable[[Source], Node]) -> Node:
    inputs: list[Node] = []
    sides: list[JoinSide] = []
    found_equalities: list[Equality] = []
    found_bands: list[Band] = []
    conditions: list[Condition] = []
    placed = assigned(join, select.where)
    for place, side in enumerate(join.sides):
        assert not isinstance(side.source, TableRef)
        assert side.window is not None
        below = build(side.source)
        if below not in inputs:
            inputs.append(below)
        where = conjunction([own(part) for part in placed.sides[place]])
        sides.append(JoinSide(inputs.index(below), side.alias, side.window, side.kind, where))
        equal, others = equalities(placed.steps[place], place, join)
        found_equalities += equal
        found_bands += bands(others, place, join)
        conditions += [Condition(place, part) for part in others]
    emission = Emission(
        select.outputs, select.having, select.distinct, select.order_by, select.limit, select.emit, select.drain
    )
    schema = Schema(WINDOW_COLUMNS + select.schema.fields)
    given, given_schema = (_raw(select, join), _raw_schema(select, join)) if select.aggregating else (emission, schema)
    node = JoinNode(
        tuple(inputs),
        tuple(sides),
        tuple(found_equalities),
        tuple(found_bands),
        narrowings(conditions, found_equalities, join),
        tuple(conditions),
        conjunction(placed.after),
        join.schema,
        given,
        given_schema,
        select.aggregating,
    )
    if not select.aggregating:
        return node
    states, answers = assign_states(select.aggregates, given_schema)
    return AggregateNode(
        node, _tumbling(sides[0].window), None, True, (), select.group_by, states, answers, emission, schema
    )


def _tumbling(window: WindowSpec) -> WindowSpec:
    slide = window.time_slide
    assert slide is not None, "the binder refuses aggregates over joins per event"
    return WindowSpec(Range(slide.micros), slide)


def _read(select: Select, join: Join) -> Schema:
    """The columns of the join that its aggregates read."""
    expressions = [*select.group_by]
    for call in select.aggregates:
        expressions += call.args
        if call.filter is not None:
            expressions.append(call.filter)
    read = set().union(*(columns(expression) for expression in expressions))
    return Schema(tuple(field for field in join.schema if field.name in read))


def _raw(select: Select, join: Join) -> Emission:
    """R(k) as it is, for aggregates over the join."""
    outputs = tuple(Output(field.name, Column(field.name, field.type)) for field in _read(select, join))
    return Emission(outputs, None, False, (), None, Emit.RSTREAM, select.drain)


def _raw_schema(select: Select, join: Join) -> Schema:
    return Schema(WINDOW_COLUMNS + _read(select, join).fields)
