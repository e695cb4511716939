"""The states of one aggregation, driven together: rows in, rows out, evaluations in between.

Invariants:
1. `counts` and every state have seen the same rows.
2. Slots in flight between the intake of a chunk and the last `advance` of an aggregation over it are not freed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.factory import create_state
from penstock.aggregates.state import AggregateState, Argument, Emitted, PartialState, Rows, Schedule
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.vector import Vector
from penstock.jit import kernel
from penstock.lang.fingerprint import fingerprint
from penstock.operators.arguments import Reading
from penstock.operators.columns import to_data
from penstock.operators.interner import Interner
from penstock.operators.resources import Resources
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import Answer, StateSpec
from penstock.store.changes import Changing
from penstock.types import SqlType

EMITTED_AT_ONCE = 1 << 16
"""About how many result rows are made in one go."""


@kernel
def _count_events(
    added: Slots, removed: Slots, add_upto: Int64s, remove_upto: Int64s, events: Slots, counts: Int64s
) -> tuple[Slots, Int64s, Int64s]:
    """Plays the counts; each step emits the group of its event, unless that is -1."""
    steps = len(add_upto)
    slots = np.empty(steps, np.int32)
    upto = np.empty(steps, np.int64)
    values = np.empty(steps, np.int64)
    emitted = a = r = 0
    for k in range(steps):
        while a < add_upto[k]:
            if added[a] >= 0:
                counts[added[a]] += 1
            a += 1
        while r < remove_upto[k]:
            if removed[r] >= 0:
                counts[removed[r]] -= 1
            r += 1
        slot = events[k]
        if slot >= 0:
            slots[emitted] = slot
            values[emitted] = counts[slot]
            emitted += 1
        upto[k] = emitted
    return slots[:emitted], upto, values[:emitted]


@kernel
def _count_all(
    added: Slots,
    removed: Slots,
    add_upto: Int64s,
    remove_upto: Int64s,
    evaluates: Bools,
    counts: Int64s,
    order: Slots,
    begins: Int64s,
    ends: Int64s,
    room: int,
) -> tuple[int, Slots, Int64s, Int64s]:
    """Plays the counts; evaluation k emits those groups of order[begins[k]:ends[k]] that have rows.

    Stops when there is no room left.
    """
    steps = len(add_upto)
    slots = np.empty(room, np.int32)
    values = np.empty(room, np.int64)
    upto = np.empty(steps, np.int64)
    emitted = a = r = done = 0
    for k in range(steps):
        if evaluates[k] and emitted + ends[k] - begins[k] > room:
            break
        while a < add_upto[k]:
            if added[a] >= 0:
                counts[added[a]] += 1
            a += 1
        while r < remove_upto[k]:
            if removed[r] >= 0:
                counts[removed[r]] -= 1
            r += 1
        if evaluates[k]:
            for slot in order[begins[k] : ends[k]]:
                if counts[slot] > 0:
                    slots[emitted] = slot
                    values[emitted] = counts[slot]
                    emitted += 1
        upto[k] = emitted
        done += 1
    return done, slots[:emitted], upto[:done], values[:emitted]


@kernel
def _count_rows(added: Slots, counts: Int64s) -> None:
    for slot in added:
        if slot >= 0:
            counts[slot] += 1


_NO_SLOTS = np.empty(0, np.int32)
_NO_POSITIONS = np.empty(0, np.int64)


class RowRun(NamedTuple):
    """Rows as they enter or leave, with the columns of the intake; positions are consecutive unless given."""

    first: int
    slots: Slots
    columns: tuple[Argument, ...]
    given_positions: Int64s | None = None

    @property
    def positions(self) -> Int64s:
        if self.given_positions is not None:
            return self.given_positions
        return np.arange(self.first, self.first + len(self.slots))

    def part(self, start: int, stop: int) -> RowRun:
        columns = tuple(column.at(slice(start, stop)) for column in self.columns)
        positions = None if self.given_positions is None else self.given_positions[start:stop]
        return RowRun(self.first + start, self.slots[start:stop], columns, positions)


class EvaluatedGroups:
    """The evaluations of a schedule: evaluation k has the rows [upto[k-1], upto[k]), and row i the group `slots[i]`.

    `counts` are the numbers of rows of the groups shown, `emitted` what the states answered, `interners` those of the
    states' first arguments. A column that several queries ask for is made once.
    """

    def __init__(
        self,
        slots: Slots,
        upto: Int64s,
        counts: Int64s,
        emitted: Sequence[tuple[Emitted, ...]],
        interners: Sequence[Interner | None],
    ) -> None:
        self.slots = slots
        self.upto = upto
        self._counts = counts
        self._emitted = emitted
        self._interners = interners
        self._columns: dict[Answer, Data] = {}

    def give(self, answer: Answer, column: Data) -> None:
        """An answer that no state has."""
        self._columns[answer] = column

    def column(self, answer: Answer) -> Data:
        column = self._columns.get(answer)
        if column is None:
            column = self._columns[answer] = self._made(answer)
        return column

    def _made(self, answer: Answer) -> Data:
        if answer.state < 0:
            return Vector(self._counts, None)
        result = self._emitted[answer.state][answer.want]
        interner = self._interners[answer.state] if answer.type is SqlType.STRING else None
        valid = result.valid
        if valid is not None and len(valid) > 1 and valid.all():
            # Without a mask of NULLs, expressions over this column have less to do.
            valid = None
        return to_data(result.values, valid, answer.type, interner)

    def failed(self, answers: tuple[Answer, ...]) -> Bools | None:
        """The rows on which one of these overflowed; None for none."""
        failed: Bools | None = None
        for answer in answers:
            own = self._emitted[answer.state][answer.want].failed if answer.state >= 0 else None
            if own is not None:
                failed = own if failed is None else failed | own
        return failed


class Shown(NamedTuple):
    """The steps that were shown, how many rows there are up to each, and the rows."""

    steps: Int64s
    upto: Int64s
    played: EvaluatedGroups


@component("Aggregation")
class Aggregation:
    def __init__(
        self,
        name: str,
        intake: Reading,
        states: tuple[StateSpec, ...],
        resources: Resources,
        *,
        pages: bool = True,
    ) -> None:
        """`pages`: states that can page have devices of their own."""
        self.intake = intake
        self.groups = intake.groups
        self.one_group = False
        """True if every row played belongs to one and the same group; `play` then counts without a loop."""
        self._keys = [fingerprint(state_key(spec)) for spec in states]
        self._apart = {i: resources.apart() for i, spec in enumerate(states) if _may_be_replaced(spec)}
        """The resources of states that may be replaced."""
        for apart in self._apart.values():
            resources.at_end(apart.close)
        self._states: list[AggregateState] = [
            self._make(name, spec, key, i, self._apart.get(i, resources), pages=pages)
            for i, (spec, key) in enumerate(zip(states, self._keys, strict=True))
        ]
        self._driven = list(zip(self._states, intake.state_columns, strict=True))
        self._positioned = any(spec.traits.needs_positions for spec in states)
        self._capacity = 0
        self.first_interners = [
            intake.interners[columns.arguments[0]] if columns.arguments else None for columns in intake.state_columns
        ]
        """Of each state's first argument."""

    def _make(
        self, name: str, spec: StateSpec, key: str, number: int, resources: Resources, *, pages: bool
    ) -> AggregateState:
        return create_state(
            spec.kind,
            tuple(arg.type for arg in spec.args),
            spec.wants,
            account=resources.account(f"{name}: {spec.kind} state {number}"),
            device=resources.device(f"{name}-{key[:12]}") if spec.has_device and pages else None,
            ranks=_ranks(self.intake, number),
            user=None if spec.user is None else resources.user_aggregates[spec.user],
        )

    def replace(self, number: int, state: AggregateState) -> None:
        """Another state is in the place of one over texts, which gives back what it has."""
        self._apart.pop(number).close()
        self._states[number] = state
        self._driven[number] = (state, self._driven[number][1])

    @property
    def counts(self) -> Int64s:
        """How many rows each group has in the window."""
        return self.intake.counts

    @property
    def states(self) -> Sequence[AggregateState]:
        return self._states

    def play(
        self,
        added: RowRun,
        removed: RowRun,
        add_upto: Int64s,
        remove_upto: Int64s,
        evaluates: Bools,
        events: Slots | None = None,
        ranges: tuple[Int64s, Int64s] | None = None,
    ) -> tuple[int, EvaluatedGroups]:
        """Plays as many steps as fit; returns how many that were, and their evaluations.

        An evaluation shows every group; with `events`, the one group that is named for its step (or none, -1);
        with `ranges`, the groups from one place of `groups.order()` to another.
        """
        if events is not None:
            done = len(add_upto)
            if self.one_group and evaluates.all():
                # One event enters at each step, unless it did at the end of the turn before.
                slots, upto = events, add_upto if add_upto[-1] == done else np.arange(1, done + 1)
                counts = self.counts[0] + add_upto - remove_upto
                self.counts[0] += add_upto[-1] - remove_upto[-1]
            else:
                slots, upto, counts = _count_events(
                    added.slots, removed.slots, add_upto, remove_upto, events, self.counts
                )
        else:
            evaluated = bool(evaluates.any())
            order = self.groups.order() if evaluated else _NO_SLOTS
            room = max(EMITTED_AT_ONCE, len(order)) if evaluated else 0
            if ranges is None:
                begins = np.zeros(len(add_upto), np.int64)
                ranges = (begins, begins + len(order))
            done, slots, upto, counts = _count_all(
                added.slots, removed.slots, add_upto, remove_upto, evaluates, self.counts, order, *ranges, room
            )
            if done < len(add_upto):
                add_upto, remove_upto = add_upto[:done], remove_upto[:done]
        schedule = Schedule(add_upto, remove_upto, upto, slots)
        adds, removes = (int(add_upto[-1]), int(remove_upto[-1])) if done else (0, 0)
        if adds < len(added.slots):
            added = added.part(0, adds)
        if removes < len(removed.slots):
            removed = removed.part(0, removes)
        emitted = self._advance(added, removed, schedule)
        if events is None and not evaluated:
            return done, EvaluatedGroups(slots, upto, counts, (), ())
        return done, self._played(schedule, counts, emitted)

    def evaluations(
        self, added: RowRun, removed: RowRun, add_upto: Int64s, remove_upto: Int64s, evaluates: Bools
    ) -> Iterator[Shown]:
        """Plays all steps in as many goes as the results take; an evaluation shows every group that has rows, in the
        order of the keys."""
        done = entered = gone = 0
        while done < len(add_upto):
            count, played = self.play(
                added, removed, add_upto[done:] - entered, remove_upto[done:] - gone, evaluates[done:]
            )
            shown = done + np.flatnonzero(evaluates[done : done + count])
            if len(shown):
                yield Shown(shown, played.upto[shown - done], played)
            done += count
            if done < len(add_upto):
                added = added.part(int(add_upto[done - 1]) - entered, len(added.slots))
                removed = removed.part(int(remove_upto[done - 1]) - gone, len(removed.slots))
                entered, gone = int(add_upto[done - 1]), int(remove_upto[done - 1])

    def advance(self, added: RowRun, removed: RowRun, schedule: Schedule) -> list[tuple[Emitted, ...]]:
        """Plays a schedule on the states; the caller, which made the schedule, counts the rows of groups itself."""
        return self._advance(added, removed, schedule)

    def add(self, added: RowRun) -> None:
        """Rows enter; nothing leaves and nothing is evaluated."""
        nothing = np.zeros(1, np.int64)
        _count_rows(added.slots, self.counts)
        self._advance(added, added.part(0, 0), Schedule(nothing + len(added.slots), nothing, nothing, _NO_SLOTS))

    def evaluate(self, slots: Slots, upto: Int64s) -> EvaluatedGroups:
        """Evaluates slots as they are, as the rows of several evaluations."""
        none = RowRun(0, _NO_SLOTS, self.intake.no_columns())
        nothing = np.zeros(len(upto), np.int64)
        schedule = Schedule(nothing, nothing, upto, slots)
        return self._played(schedule, self.counts[slots], self._advance(none, none, schedule))

    def _advance(self, added: RowRun, removed: RowRun, schedule: Schedule) -> list[tuple[Emitted, ...]]:
        self.groups.changes.mark(added.slots)
        self.groups.changes.mark(removed.slots)
        if not self._states:
            return []
        entering = leaving = _NO_POSITIONS
        if self._positioned:
            entering, leaving = added.positions, removed.positions
        self.fit()
        return [
            state.advance(_rows(added, columns, entering), _rows(removed, columns, leaving), schedule)
            for state, columns in self._driven
        ]

    def fit(self) -> None:
        """Room in the states for all groups there are."""
        if self.groups.capacity > self._capacity:
            for state in self._states:
                state.ensure(self.groups.capacity)
            self._capacity = self.groups.capacity

    def _played(self, schedule: Schedule, counts: Int64s, emitted: list[tuple[Emitted, ...]]) -> EvaluatedGroups:
        return EvaluatedGroups(schedule.emit_slots, schedule.emit_upto, counts, emitted, self.first_interners)

    def export(self, slots: Slots) -> list[pa.Array]:
        """What these groups hold, as one column of partials per state (see `aggregates.partials`)."""
        partials = []
        for state in self._states:
            assert isinstance(state, PartialState), "it was asked first whether all states have partials"
            partials.append(state.export(slots))
        return partials

    def absorb(self, slots: Slots, partials: Sequence[pa.Array]) -> None:
        """The inverse of `export`, for groups that are new."""
        self.groups.changes.mark(slots)
        self.fit()
        for state, own in zip(self._states, partials, strict=True):
            assert isinstance(state, PartialState), "it was asked first whether all states have partials"
            state.absorb(slots, own)

    @property
    def nbytes(self) -> int:
        """What the groups and their states take."""
        return self.groups.nbytes + sum(state.nbytes for state in self._states)

    @property
    def pageable_nbytes(self) -> int:
        """How much of it states give up by themselves where memory is short."""
        return sum(state.pageable_nbytes for state in self._states)

    def reset(self, slots: Slots) -> None:
        """Forgets what these groups hold: their window has closed."""
        self.counts[slots] = 0
        self.groups.changes.mark(slots)
        for state in self._states:
            state.reset(slots)

    def snapshot(self) -> dict[str, Any]:
        """States are saved by the names of what they compute: a restart may have other queries and fewer states."""
        states = {key: state.snapshot() for key, state in zip(self._keys, self._states, strict=True)}
        return Changing(self.groups.changes, {"intake": self.intake.snapshot(), "states": states})

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.intake.restore(snapshot["intake"])
        for key, state in zip(self._keys, self._states, strict=True):
            state.restore(snapshot["states"][key])
            state.ensure(self.groups.capacity)
        self._capacity = self.groups.capacity


def _may_be_replaced(spec: StateSpec) -> bool:
    return spec.kind == "DISTINCT" and spec.args[0].type is SqlType.STRING


def _rows(run: RowRun, columns: Any, positions: Int64s) -> Rows:
    slots = run.slots
    if columns.filter >= 0:
        slots = np.where(run.columns[columns.filter].values != 0, slots, np.int32(-1))
    return Rows(positions, slots, tuple(run.columns[i] for i in columns.arguments))


def _ranks(intake: Reading, state: int) -> Any:
    """The order of strings that a state compares: those of its last argument (ARG_MIN compares its second)."""
    arguments = intake.state_columns[state].arguments
    interner = intake.interners[arguments[-1]] if arguments else None
    return None if interner is None else interner.ranks
