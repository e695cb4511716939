"""Aggregations of a part of the events: they emit partial rows (`partial_rows`) instead of results.

Windows, stores and states are those of the whole; only an evaluation is shown in another form. The rows of one
evaluation come in any order: `merging` sorts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation
from penstock.operators.arguments import Reading
from penstock.operators.chunk import Chunk
from penstock.operators.closing import ClosingAggregate
from penstock.operators.closing_windows import Closed
from penstock.operators.evaluation import Arrivals, RowMoves, Show
from penstock.operators.outgoing import Receive
from penstock.operators.partial_rows import PartialRows
from penstock.operators.resources import Resources
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import AggregateNode, Answer
from penstock.rejects import Reject

_SILENT = np.zeros(1, np.bool_)


@component("PartialShow")
class PartialShow:
    """The partial rows of one query: of the states that it reads."""

    def __init__(self, node: AggregateNode, aggregation: Aggregation, states: list[int]) -> None:
        self.rows = PartialRows(node, aggregation, states)
        self.outgoing = self.rows.outgoing

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        pass


@component("PartialEvaluation")
class PartialEvaluation:
    """The `Evaluation` of a sliding window's part: plays up to an evaluation, then asks the states for partials of the
    groups that have rows."""

    of_events = False

    def __init__(
        self, name: str, node: AggregateNode, reading: Reading, resources: Resources, *, one_group: bool
    ) -> None:
        self._aggregation = Aggregation(name, reading, node.states, resources)
        self._aggregation.one_group = one_group
        self._places = {state_key(state): place for place, state in enumerate(node.states)}
        self._shows: list[PartialShow] = []

    def show(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> Show:
        show = PartialShow(node, self._aggregation, [self._places[state_key(state)] for state in node.states])
        self._shows.append(show)
        return show

    def drop(self, show: Show) -> None:
        assert isinstance(show, PartialShow)
        self._shows.remove(show)

    def play(self, turn: RowMoves, arrivals: Arrivals | None) -> None:
        looks = np.flatnonzero(turn.evaluates)
        last = len(turn.evaluates) - 1
        stops = looks if turn.evaluates[-1] else np.append(looks, last)
        entered = gone = 0
        for stop in stops.tolist():
            adds, leaves = turn.add_upto[stop : stop + 1], turn.left[stop : stop + 1]
            added, removed = turn.added.part(entered, int(adds[0])), turn.removed.part(gone, int(leaves[0]))
            self._aggregation.play(added, removed, adds - entered, leaves - gone, _SILENT)
            entered, gone = int(adds[0]), int(leaves[0])
            if turn.evaluates[stop]:
                self._look(int(turn.starts[stop]), int(turn.ends[stop]))
        for show in self._shows:
            show.rows.flush()

    def _look(self, start: int, end: int) -> None:
        slots = np.flatnonzero(self._aggregation.counts).astype(np.int32)
        for begin in range(0, len(slots), EMITTED_AT_ONCE):
            own = slots[begin : begin + EMITTED_AT_ONCE]
            partials = self._aggregation.export(own)
            for show in self._shows:
                show.rows.look(own, np.full(len(own), start), np.full(len(own), end), partials)

    def snapshot(self) -> dict[str, Any]:
        return {"aggregation": self._aggregation.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._aggregation.restore(snapshot["aggregation"])


class ClosingPart(ClosingAggregate):
    pages = False

    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        super().__init__(name, node, resources)
        self._partial_rows = PartialRows(node, self._aggregation, range(len(node.states)))

    def send_to(self, receive: Receive) -> None:
        self._partial_rows.outgoing.receiver = receive

    def _take(self) -> list[Chunk]:
        return self._partial_rows.chunks()

    def _show_groups(self, slots: Slots, upto: Int64s, closed: Closed) -> None:
        window = np.searchsorted(upto, np.arange(len(slots)), "right")
        for begin in range(0, len(slots), EMITTED_AT_ONCE):
            own = slice(begin, begin + EMITTED_AT_ONCE)
            partials = self._aggregation.export(slots[own])
            self._partial_rows.look(slots[own], closed.starts[window[own]], closed.ends[window[own]], partials)
        self._partial_rows.flush()
