"""From aggregate calls to states.

    COUNT(*), SUM(x), AVG(x), COUNT(x)   ->  the group's row count, and one SUM state with three results
    MEDIAN(x), PERCENTILE_CONT(x, 0.9)   ->  one ORDER state with two results
    COUNT(y) where y is never NULL       ->  the group's row count

Calls over the same argument and filter share the state that answers them all.
"""

from __future__ import annotations

from penstock.aggregates.signatures import AggregateCall, Want, kind_of
from penstock.expressions.tree import Expression
from penstock.plan.nodes import Answer, StateSpec
from penstock.plan.nullability import can_be_null
from penstock.types import Schema


def assign_states(calls: tuple[AggregateCall, ...], schema: Schema) -> tuple[tuple[StateSpec, ...], tuple[Answer, ...]]:
    """The states that answer all calls, and for each call where its answer is."""
    wants: dict[tuple[str, tuple[Expression, ...], Expression | None, str | None], list[Want]] = {}
    sums = {(c.args, c.filter) for c in calls if kind_of(c.function) == "SUM"}
    found: list[tuple[tuple[str, tuple[Expression, ...], Expression | None, str | None], int] | None] = []
    for call in calls:
        kind = kind_of(call.function)
        args = call.args
        if call.function == "COUNT":
            if args and not can_be_null(args[0], schema):
                args = ()
            if not args and call.filter is None:
                found.append(None)
                continue
            if (args, call.filter) in sums:
                kind = "SUM"  # a sum knows how many values it holds
        want = Want("PERCENTILE_CONT", 0.5) if call.function == "MEDIAN" else Want(call.function, call.parameter)
        key = (kind, args, call.filter, call.function if kind == "USER" else None)
        served = wants.setdefault(key, [])
        if want not in served:
            served.append(want)
        found.append((key, served.index(want)))
    index = {key: i for i, key in enumerate(wants)}
    states = tuple(StateSpec(kind, args, where, tuple(ws), user) for (kind, args, where, user), ws in wants.items())
    answers = tuple(
        Answer(-1, 0, call.type) if place is None else Answer(index[place[0]], place[1], call.type)
        for call, place in zip(calls, found, strict=True)
    )
    return states, answers
