"""Aggregates over windows of several lengths: one aggregation for each length, put together row by row.

    SELECT k, AVG(x) OVER [RANGE 1 HOUR], AVG(x) FROM s [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY k

        combine ─┬─ k, AVG(x) over [RANGE 24 HOURS SLIDE 10 SECONDS]     says which groups there are
                 └─ k, AVG(x) over [RANGE 1 HOUR SLIDE 10 SECONDS]

The parts are ordinary windowed aggregations, so they share stored rows and all else with those of other queries.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.aggregates.signatures import AggregateCall, of_nothing
from penstock.expressions.tree import Column
from penstock.lang.query import Emit, Output
from penstock.plan.nodes import WINDOW_COLUMNS, AggregateNode, CombineNode, Emission, Looked, Node
from penstock.plan.states import assign_states
from penstock.types import Field, Schema
from penstock.windows.spec import Range


def combined(node: AggregateNode, calls: tuple[AggregateCall, ...]) -> Node:
    """The node of a SELECT whose calls may look at shorter windows than its own."""
    own = node.window.extent.length
    lengths = [call.over or own for call in calls]
    shorter = sorted({length for length in lengths if length != own and length is not None})
    if not shorter:
        return node
    parts: list[AggregateNode] = []
    witnesses: list[int] = []
    looked: dict[int, Looked] = {}
    for length in [own, *shorter]:
        assert length is not None, "the binder lets OVER stand with RANGE windows alone"
        chosen = [i for i, mine in enumerate(lengths) if mine == length]
        for column, i in enumerate(chosen):
            looked[i] = Looked(len(parts), column, of_nothing(calls[i].function))
        part = _part(node, tuple(replace(calls[i], over=None) for i in chosen), length)
        needs_witness = bool(parts) and _can_fail(part)
        witnesses.append(len(parts) + needs_witness)
        parts.append(part)
        if needs_witness:
            witnesses.append(len(parts))
            parts.append(_part(node, (), length))
    found = tuple(looked[i] for i in range(len(calls)))
    return CombineNode(tuple(parts), tuple(witnesses), found, node.emission, node.schema)


def _can_fail(part: AggregateNode) -> bool:
    """Whether a row of the part may be missing because an aggregate cannot be computed."""
    return any(state.traits.can_fail(tuple(arg.type for arg in state.args)) for state in part.states)


def _part(node: AggregateNode, calls: tuple[AggregateCall, ...], length: int) -> AggregateNode:
    """The same rows and groups in a window of another length: all its keys and aggregates, at every evaluation."""
    states, answers = assign_states(calls, node.input.schema)
    columns = [Column(f"#{i}", key.type) for i, key in enumerate(node.group_by)]
    columns += [Column(f"${i}", call.type) for i, call in enumerate(calls)]
    is_longest = node.window.extent == Range(length)
    return replace(
        node,
        window=replace(node.window, extent=Range(length), when_full=node.window.when_full and is_longest),
        states=states,
        answers=answers,
        emission=Emission(
            outputs=tuple(Output(column.name, column) for column in columns),
            having=None,
            distinct=False,
            order_by=(),
            limit=None,
            emit=Emit.RSTREAM,
            drain=node.emission.drain,
        ),
        schema=Schema(WINDOW_COLUMNS + tuple(Field(column.name, column.type, True) for column in columns)),
    )
