"""Which queries are one aggregation: those whose windows hold the same rows in the same groups.

    SELECT k, COUNT(*), SUM(x), AVG(x) FROM s [RANGE 1 DAY SLIDE 10 SECONDS] GROUP BY k   ┐ one aggregation: the row
    SELECT k, COUNT(*), SUM(y), AVG(y) FROM s [RANGE 1 DAY SLIDE 10 SECONDS] GROUP BY k   ┘ count, SUM of x, SUM of y
    SELECT j, COUNT(*), SUM(x)         FROM s [RANGE 1 DAY SLIDE 10 SECONDS] GROUP BY j     another one

Six KPIs of the first two queries are five aggregates, since both ask for the same COUNT(*), and three states. Each
query keeps its own HAVING, select list, ORDER BY and R/I/DSTREAM. Decided when queries are started together: one that
comes later begins with an empty window, so its sums are others.

Why: docs/decisions/one-aggregation.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.aggregates.signatures import Want
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Column, Expression
from penstock.lang.query import Emit
from penstock.plan.nodes import AggregateNode, Answer, Node, RelationNode, StateSpec, walk
from penstock.plan.reads import GroupingKey, grouping_of
from penstock.types import SqlType
from penstock.windows.spec import WindowSpec

MOST_FLOATS = 63
"""Plain rows with more DOUBLE and FLOAT columns are compared as whole evaluations: the signs of zeros of a row are the
bits of one word."""


class Look(Enum):
    """What an aggregation shows of an evaluation."""

    EVENT = "the group of the arriving event"
    WHOLE = "all groups"
    CHANGES = "the groups that rows have entered or left since the evaluation before"


@dataclass(frozen=True)
class AggregationKey:
    """Queries for which all this is equal add and remove the same rows at the same moments."""

    input: Node
    window: WindowSpec
    filter_first: bool
    grouping: GroupingKey
    look: Look
    drain: bool


@dataclass(frozen=True)
class United:
    """The states that answer several queries, and where each query, in their order, finds its answers."""

    states: tuple[StateSpec, ...]
    answers: tuple[tuple[Answer, ...], ...]


def key_of(node: AggregateNode) -> AggregationKey:
    return AggregationKey(
        node.input, node.window, node.filter_first, grouping_of(node), look_of(node), node.emission.drain
    )


def look_of(node: AggregateNode) -> Look:
    """ISTREAM and DSTREAM need only the groups that changed where no two groups can give equal rows, and where the
    rows of the others need not be looked at: they cannot fail anew, and nothing is chosen among all rows. Rules compare
    groups and not rows, so for them it does not matter what is shown."""
    emission = node.emission
    if emission.emit is Emit.EVENT_GROUP:
        return Look.EVENT
    if not emission.emit.compares:
        return Look.WHOLE
    if emission.distinct or emission.order_by or emission.limit is not None:
        return Look.WHOLE
    shown = [output.expression for output in emission.outputs]
    keys = {Column(f"#{i}", key.type) for i, key in enumerate(node.group_by)}
    checked: list[Expression] = shown if emission.having is None else [*shown, emission.having]
    if (emission.emit is not Emit.EDGE and not keys <= set(shown)) or not all(map(is_total, checked)):
        return Look.WHOLE
    # A string that only rows of the past had may be forgotten before it is compared.
    return Look.WHOLE if any(answer.type is SqlType.STRING for answer in node.answers) else Look.CHANGES


def shows_row_changes(node: RelationNode) -> bool:
    """Whether the output of plain rows follows from the rows that enter and leave: ISTREAM and DSTREAM, where nothing
    is chosen among all rows."""
    emission = node.emission
    chooses = emission.distinct or bool(emission.order_by) or emission.limit is not None
    return emission.emit in (Emit.ISTREAM, Emit.DSTREAM) and not chooses


def changes_by_one_row(node: RelationNode) -> bool:
    """Whether each event makes its partition due, from the first one on, so that an evaluation of the partition differs
    from the one before by the row that enters and the row that leaves."""
    floats = [output for output in node.emission.outputs if output.expression.type.is_floating]
    every_event = node.window.is_per_event and not node.window.when_full
    return shows_row_changes(node) and every_event and len(floats) <= MOST_FLOATS


def state_key(state: StateSpec) -> tuple[Any, ...]:
    """What makes two states one, whatever is asked of them. MODE keeps more than COUNT(DISTINCT) does."""
    return (state.kind, state.args, state.filter, state.user, state.keeps_order)


def unite(nodes: Sequence[AggregateNode]) -> United:
    """The states of one aggregation for all these queries."""
    specs: dict[tuple[Any, ...], StateSpec] = {}
    wants: dict[tuple[Any, ...], list[Want]] = {}
    for node in nodes:
        for state in node.states:
            key = state_key(state)
            specs.setdefault(key, state)
            served = wants.setdefault(key, [])
            served += [want for want in state.wants if want not in served]
    places = {key: place for place, key in enumerate(specs)}
    states = tuple(
        StateSpec(spec.kind, spec.args, spec.filter, tuple(wants[key]), spec.user) for key, spec in specs.items()
    )

    def moved(node: AggregateNode, answer: Answer) -> Answer:
        if answer.state < 0:
            return answer
        own = node.states[answer.state]
        key = state_key(own)
        return Answer(places[key], wants[key].index(own.wants[answer.want]), answer.type)

    return United(states, tuple(tuple(moved(node, answer) for answer in node.answers) for node in nodes))


Aggregations = Sequence[Sequence[tuple[str, AggregateNode]]]
"""Aggregations, each with its queries: their names, and their nodes in it."""


def aggregate_nodes(node: Node) -> list[AggregateNode]:
    """Those of a query, from the streams upwards."""
    return [below for below in walk(node) if isinstance(below, AggregateNode)]


@dataclass(frozen=True)
class Counts:
    """What queries ask for (in the call centre: KPIs), how many different aggregates these are, and the states that
    answer them; a group's row count is a state, too."""

    asked: int
    aggregates: int
    states: int


def count(groups: Iterable[Sequence[tuple[str, AggregateNode]]]) -> Counts:
    asked = aggregates = states = 0
    for group in groups:
        united = unite([node for _, node in group])
        answers = [answer for own in united.answers for answer in own]
        asked += len(answers)
        aggregates += len({(answer.state, answer.want) for answer in answers})
        states += len(united.states) + any(answer.state < 0 for answer in answers)
    return Counts(asked, aggregates, states)
