"""What becomes of the rows and evaluations of a sliding window: its aggregates, shown as results.

A window hands on *turns*: rows that enter, rows that leave, and the steps in between at which it is looked at.
`Results` plays them on an aggregation and emits what HAVING and the select list make of it. Whoever wants something
else of an evaluation, say the states of the groups themselves, gives the window another `Evaluation`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Bools, Int64s, Slots
from penstock.expressions.batch import Data
from penstock.expressions.vector import Evaluated, Vector
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, Run
from penstock.operators.arguments import Reading
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.resources import Resources
from penstock.operators.shown import Shown
from penstock.plan.nodes import AggregateNode

_NONE = np.int32(-1)


class Turn(NamedTuple):
    """By step k the rows `added[:add_upto[k]]` are in and the rows `removed[:left[k]]` are out; if `evaluates[k]`, the
    window `[starts[k], ends[k])` is evaluated. Rows are added before others are removed."""

    added: Run
    removed: Run
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


class Evaluation(Protocol):
    def play(self, turn: Turn, arrivals: Arrivals | None) -> list[Chunk]:
        """Plays all steps of a turn; returns what comes out, in order. Arrivals are given where `of_events`."""

    @property
    def of_events(self) -> bool:
        """Whether an evaluation shows the group of the arriving event alone."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The groups have been restored before."""


class Results:
    """`one_group`: every row that is ever played is of the one group there is."""

    def __init__(
        self, name: str, node: AggregateNode, reading: Reading, resources: Resources, *, one_group: bool
    ) -> None:
        self._aggregation = Aggregation(name, reading, node.states, node.answers, resources)
        self._aggregation.one_group = one_group
        self._emitter = Emitter(node.emission, node.schema, resources.reject)
        self._shown = Shown(node)
        self._groups = reading.groups
        self.of_events = node.emission.emit is Emit.EVENT_GROUP

    def play(self, turn: Turn, arrivals: Arrivals | None) -> list[Chunk]:
        results: list[Chunk] = []
        if arrivals is not None:
            self._play_events(turn, arrivals, results)
        else:
            self._play_all(turn, results)
        return results

    def _play_events(self, turn: Turn, arrivals: Arrivals, results: list[Chunk]) -> None:
        """One result per event: its own keys, and its group's aggregates."""
        first, starts, ends = arrivals.first, turn.starts, turn.ends
        events = arrivals.slots[first : first + len(turn.add_upto)]
        if not turn.evaluates.all():
            events = np.where(turn.evaluates, events, _NONE)
        _, played = self._aggregation.play(turn.added, turn.removed, turn.add_upto, turn.left, turn.evaluates, events)
        if len(played.slots) == 0:
            return
        if len(played.slots) == len(events):
            keys = [_slice(key, first, len(events)) for key in arrivals.keys]
        else:
            shown = np.flatnonzero(events >= 0)
            starts, ends = starts[shown], ends[shown]
            keys = [key.values.take(pa.array(first + shown)) for key in arrivals.keys]
        self._emit(Evaluations(self._shown.rows(keys, played), None, starts, ends, None, played.failed), results)

    def _play_all(self, turn: Turn, results: list[Chunk]) -> None:
        """Every group that has rows, in the order of the keys, in as many goes as the results take."""
        added, removed, add_upto, left, evaluates, starts, ends = turn
        done = entered = gone = 0
        while done < len(add_upto):
            count, played = self._aggregation.play(
                added, removed, add_upto[done:] - entered, left[done:] - gone, evaluates[done:]
            )
            shown = done + np.flatnonzero(evaluates[done : done + count])
            if len(shown):
                rows = self._shown.rows(self._groups.keys(played.slots), played)
                upto = played.upto[shown - done]
                self._emit(Evaluations(rows, upto, starts[shown], ends[shown], None, played.failed), results)
            done += count
            if done < len(add_upto):
                added = added.part(int(add_upto[done - 1]) - entered, len(added.slots))
                removed = removed.part(int(left[done - 1]) - gone, len(removed.slots))
                entered, gone = int(add_upto[done - 1]), int(left[done - 1])

    def _emit(self, evaluations: Evaluations, results: list[Chunk]) -> None:
        chunk = self._emitter.emit(evaluations)
        if chunk.rows:
            results.append(chunk)

    def snapshot(self) -> dict[str, Any]:
        return {"aggregation": self._aggregation.snapshot(), "emitter": self._emitter.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._aggregation.restore(snapshot["aggregation"])
        self._emitter.restore(snapshot["emitter"])


def _slice(column: Evaluated, first: int, count: int) -> Data:
    """So many rows of a key column, without a copy."""
    held: Data = column.held
    if isinstance(held, list):
        return held[first : first + count]
    if isinstance(held, Vector):
        values, valid = column.columns
        return Vector(values[first : first + count], None if valid is None else valid[first : first + count])
    return held.slice(first, count)
