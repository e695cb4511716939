"""How the rows and evaluations of a sliding window become results: the seam between a window and its aggregates.

A window hands on *turns*: rows that enter, rows that leave, and the steps in between at which it is looked at. An
`Evaluation` plays them on the one aggregation of its queries, and each `Show` makes of what it sees what a query wants:
results (`results`, `changes`) or partial rows (`parts`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.vector import Evaluated
from penstock.operators.aggregation import RowRun
from penstock.operators.outgoing import Outgoing
from penstock.plan.nodes import AggregateNode, Answer
from penstock.rejects import Reject


class RowMoves(NamedTuple):
    """By step k the rows `added[:add_upto[k]]` are in and the rows `removed[:left[k]]` are out; if `evaluates[k]`, the
    window `[starts[k], ends[k])` is evaluated. Rows are added before others are removed."""

    added: RowRun
    removed: RowRun
    add_upto: Int64s
    left: Int64s
    evaluates: Bools
    starts: Int64s
    ends: Int64s


class Arrivals(NamedTuple):
    """The slots and keys of the rows of a chunk, of which row `first` arrives at the first step, and so on: for windows
    that are looked at with every event."""

    slots: Slots
    keys: list[Evaluated]
    first: int


class Show(Protocol):
    """What is made of evaluations for the queries that want the same, on its way out."""

    outgoing: Outgoing

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


class Evaluation(Protocol):
    def show(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> Show:
        """From now on another query sees what is played; the aggregates of the node are `answers`."""

    def drop(self, show: Show) -> None: ...

    def play(self, turn: RowMoves, arrivals: Arrivals | None) -> None:
        """Plays all steps of a turn. Arrivals are given where `of_events`."""

    @property
    def of_events(self) -> bool:
        """Whether an evaluation shows the group of the arriving event alone."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The groups have been restored before."""
