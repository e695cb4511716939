"""From aggregate calls to states.

    COUNT(*), SUM(x), AVG(x), COUNT(x)   ->  the group's row count, and one SUM state with three results
    MEDIAN(x), PERCENTILE_CONT(x, 0.9)   ->  one ORDER state with two results
    COUNT(y) where y is never NULL       ->  the group's row count

Calls over the same argument and filter share the state that answers them all.
"""

from __future__ import annotations

from penstock.aggregates import kinds
from penstock.aggregates.kinds import Kind
from penstock.aggregates.signatures import AggregateCall, Want, kind_of, want_of
from penstock.expressions.tree import Expression
from penstock.plan.nodes import Answer, StateSpec
from penstock.plan.nullability import can_be_null
from penstock.types import Schema

_Key = tuple[Kind, tuple[Expression, ...], Expression | None, str | None]
"""What states share: kind, arguments, filter and the name of a user-defined function."""


def assign_states(calls: tuple[AggregateCall, ...], schema: Schema) -> tuple[tuple[StateSpec, ...], tuple[Answer, ...]]:
    """The states that answer all calls, and for each call where its answer is."""
    wants: dict[_Key, list[Want]] = {}
    counting = {(c.args, c.filter): kind_of(c.function) for c in calls if kind_of(c.function).counts_values}
    found: list[tuple[_Key, int] | None] = []
    for call in calls:
        kind = kind_of(call.function)
        args = call.args
        if kind is kinds.COUNT:
            if args and not can_be_null(args[0], schema):
                args = ()
            if not args and call.filter is None:
                found.append(None)
                continue
            kind = counting.get((args, call.filter), kind)
        want = want_of(call)
        key = (kind, args, call.filter, call.function if kind is kinds.USER else None)
        served = wants.setdefault(key, [])
        if want not in served:
            served.append(want)
        found.append((key, served.index(want)))
    index = {key: i for i, key in enumerate(wants)}
    states = tuple(
        StateSpec(kind.name, args, where, tuple(ws), user) for (kind, args, where, user), ws in wants.items()
    )
    answers = tuple(
        Answer(-1, 0, call.type) if place is None else Answer(index[place[0]], place[1], call.type)
        for call, place in zip(calls, found, strict=True)
    )
    return states, answers
