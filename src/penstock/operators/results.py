"""Evaluations of whole windows, or of the arriving event's group, shown as results: what most queries want."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.vector import Evaluated, Vector
from penstock.lane.eligibility import why_not
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.arguments import Reading
from penstock.operators.emitted_rows import EmittedRows
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.evaluation import Arrivals, RowMoves, Show
from penstock.operators.outgoing import Outgoing
from penstock.operators.paged.texts import PagedTexts
from penstock.operators.resources import Resources
from penstock.operators.window_lane import WindowLane
from penstock.operators.window_member import Entered, WindowMember
from penstock.plan.aggregations import Look, look_of
from penstock.plan.nodes import AggregateNode, Answer
from penstock.rejects import Reject
from penstock.store.budget import Account
from penstock.types import SqlType

_NONE = np.int32(-1)


@component("ResultShow")
class ResultShow:
    """HAVING, the select list and the emission of one query, or of several that are the same. Rules compare the groups
    of an evaluation with those before by the keys of these types."""

    def __init__(
        self,
        node: AggregateNode,
        answers: tuple[Answer, ...],
        reject: Reject,
        compared: Account,
        keys: tuple[SqlType, ...] | None = None,
    ) -> None:
        self._shown = EmittedRows(node, answers)
        self._emitter = Emitter(node.emission, node.schema, reject, node.key_types if keys is None else keys, compared)
        self.outgoing = Outgoing()

    def see(
        self,
        keys: list[Data],
        played: EvaluatedGroups,
        upto: Int64s | None,
        starts: Int64s,
        ends: Int64s,
        partitions: Int64s | None = None,
    ) -> None:
        rows = self._shown.rows(keys, played)
        failed = played.failed(self._shown.answers)
        self.outgoing.put(self._emitter.emit(Evaluations(rows, upto, starts, ends, partitions, failed)))

    def put(self, columns: list[pa.Array], starts: Int64s, ends: Int64s) -> None:
        """Rows that a lane has computed, one per evaluation."""
        self.outgoing.put(self._emitter.chunk(columns, starts, ends))

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The aggregates that it shows or asks for."""
        return self._shown.answers

    def remembers(self, partitions: int) -> Bools:
        """Which of the first so many partitions have an evaluation that the next one is compared with."""
        return self._emitter.remembers(partitions)

    @property
    def needs_whole_evaluations(self) -> bool:
        return self._emitter.needs_whole_evaluations

    def may_show(self, keys: list[Data], played: EvaluatedGroups, upto: Int64s | None) -> Bools | None:
        """The groups that may have results, of evaluations that end at `upto`, or are not known; None for all."""
        if not self._emitter.leaves_rows_out:
            return None
        return self._emitter.may_show(self._shown.rows(keys, played), played.failed(self._shown.answers), upto)

    @property
    def shows_counts(self) -> bool:
        """Whether it shows how many rows groups have."""
        return any(answer.state < 0 for answer in self._shown.answers)

    def close(self) -> None:
        self._emitter.close()

    def snapshot(self) -> dict[str, Any]:
        return {"emitter": self._emitter.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._emitter.restore(snapshot["emitter"])


@component("Results")
class Results:
    """`one_group`: every row that is ever played is of the one group there is."""

    def __init__(
        self, name: str, node: AggregateNode, reading: Reading, resources: Resources, *, one_group: bool
    ) -> None:
        self._name = name
        self._reading = reading
        self._states = node.states
        self._held = resources.apart()
        resources.at_end(self._held.close)
        self.aggregation = Aggregation(name, reading, node.states, self._held)
        self.aggregation.one_group = one_group
        self.shows: list[ResultShow] = []
        self._compared = resources.account(f"{name}: rows that the next are compared with")
        self.of_events = look_of(node) is Look.EVENT
        self._counts_shown = False
        self.texts: PagedTexts | None = None
        """What counts texts that are in shards."""

    def show(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> Show:
        show = ResultShow(node, answers, reject, self._compared)
        self.shows.append(show)
        self._counts_shown = any(one.shows_counts for one in self.shows)
        return show

    def empty(self) -> None:
        """The groups are elsewhere from now on, and the states with them; those of the reading are gone."""
        self._held.close()
        self.aggregation = Aggregation(self._name, self._reading, self._states, self._held)

    def drop(self, show: Show) -> None:
        assert isinstance(show, ResultShow)
        self.shows.remove(show)
        self._counts_shown = any(one.shows_counts for one in self.shows)
        show.close()

    def lane(self, node: AggregateNode, member: WindowMember) -> WindowLane | None:
        """A lane for windows that have one."""
        if member.tail is None or why_not(node) is not None:
            return None
        return WindowLane(node, member, member.tail, self.aggregation)

    def enter(self, lane: WindowLane, entered: Entered, keys: list[Evaluated]) -> tuple[int, int]:
        """Plays and shows rows that have entered, as far as the lane goes. Returns how many are in, and how many have
        left."""
        done, left, played, starts = lane.enter(entered, with_counts=self._counts_shown)
        if played is not None and len(played.slots):
            slots = entered.slots[lane.slots_name]
            self._show_events(played, slots[:done], keys, 0, starts, entered.times[:done])
        return done, left

    def play(self, turn: RowMoves, arrivals: Arrivals | None) -> None:
        if arrivals is not None:
            self._play_events(turn, arrivals)
        else:
            self._play_all(turn)
        if self.texts is not None:
            self.texts.end_turn(turn.evaluates)

    def _give_counts(self, played: EvaluatedGroups, steps: Int64s, evaluates: Bools) -> None:
        """Each row that was played is of one of these steps."""
        if self.texts is not None:
            self.texts.give(played, [answer for show in self.shows for answer in show.answers], steps, evaluates)

    def _play_events(self, turn: RowMoves, arrivals: Arrivals) -> None:
        """One result per event: its own keys, and its group's aggregates."""
        first, starts, ends = arrivals.first, turn.starts, turn.ends
        events = arrivals.slots[first : first + len(turn.add_upto)]
        if not turn.evaluates.all():
            events = np.where(turn.evaluates, events, _NONE)
        _, played = self.aggregation.play(turn.added, turn.removed, turn.add_upto, turn.left, turn.evaluates, events)
        if len(played.slots):
            if self.texts is not None:
                self._give_counts(played, np.flatnonzero(events >= 0), turn.evaluates)
            self._show_events(played, events, arrivals.keys, first, starts, ends)

    def _show_events(
        self, played: EvaluatedGroups, events: Slots, keys: list[Evaluated], first: int, starts: Int64s, ends: Int64s
    ) -> None:
        """`first` is the place of the first event among the keys."""
        shown_keys: list[Data]
        if len(played.slots) == len(events):
            shown_keys = [slice_of(key, first, len(events)) for key in keys]
        else:
            shown = np.flatnonzero(events >= 0)
            starts, ends = starts[shown], ends[shown]
            shown_keys = [key.values.take(pa.array(first + shown)) for key in keys]
        for show in self.shows:
            show.see(shown_keys, played, None, starts, ends)

    def _play_all(self, turn: RowMoves) -> None:
        """Every group that has rows, in the order of the keys, in as many goes as the results take."""
        added, removed, add_upto, left, evaluates, starts, ends = turn
        for shown, upto, played in self.aggregation.evaluations(added, removed, add_upto, left, evaluates):
            keys = self.aggregation.groups.keys(played.slots)
            self._give_counts(played, np.repeat(shown, np.diff(upto, prepend=0)), evaluates)
            for show in self.shows:
                show.see(keys, played, upto, starts[shown], ends[shown])

    def snapshot(self) -> dict[str, Any]:
        return {"aggregation": self.aggregation.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.aggregation.restore(snapshot["aggregation"])


def slice_of(column: Evaluated, first: int, count: int) -> Data:
    """So many rows of a key column, without a copy."""
    held: Data = column.held
    if isinstance(held, list):
        return held[first : first + count]
    if isinstance(held, Vector):
        if column.type is SqlType.STRING:  # one text for all rows, or an array
            return column.values.slice(first, count)
        values, valid = column.columns
        return Vector(values[first : first + count], None if valid is None else valid[first : first + count])
    return held.slice(first, count)
