"""ISTREAM, DSTREAM and the edges of rules from the groups that have changed, without the relation before.

Only a group that a row has entered or left since the last evaluation can differ from what it was then, so only such
groups are looked at (`touched`). `Changes` serves the queries for which the planner says so
(`plan.aggregations.look_of`); the others compare whole relations (`emitter`).

Invariants:
1. Between two calls `_held` are the groups touched since the last evaluation (with PARTITION BY that of their
   partition), with their rows as they were then; the slots of these groups are not given to others.
2. A group on which an aggregate overflowed is looked at in every evaluation: it is rejected in each (contract, rule 6).

The answers that are held are saved by the names of what they are of, like states: after a restart with other queries
those that are left find theirs.

Why: docs/decisions/changed-groups.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.aggregates.columns import BOOL, FLOAT64, INT64, plain
from penstock.aggregates.state import Values
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column
from penstock.expressions.vector import Evaluated, Vector, to_arrow
from penstock.jit import kernel
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.arguments import Reading
from penstock.operators.chunk import Chunk
from penstock.operators.columns import image
from penstock.operators.emitted_rows import EmittedRows
from penstock.operators.emitter import OVERFLOW, as_row, timestamps
from penstock.operators.evaluation import Arrivals, RowMoves, Show
from penstock.operators.held_rows import GroupRows, HeldRows
from penstock.operators.interner import Interner
from penstock.operators.outgoing import Outgoing
from penstock.operators.resources import Resources
from penstock.operators.touched import NO_ROW, PartitionSegments, Touched, TouchFinder, segments_of_all
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import AggregateNode, Answer, StateSpec
from penstock.rejects import Reject
from penstock.types import SqlType

_NO_SLOTS, _NO_NUMBERS, _NO_MASK = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.bool_)

_NOT_SHOWN, _EQUAL, _DIFFERS = 0, 1, 2
"""What is known of a row that may be shown: it is not there; so far it equals the other one; it is shown."""


class Owners(NamedTuple):
    """With PARTITION BY: the partition of each group, by its slot, and the partition of each evaluation."""

    of_slots: Slots
    of_evaluations: Slots


class _ChosenRows:
    """Rows that are shown. The queries of one play mostly show the same rows: a column that several of them have, and
    the windows of the rows, are made once."""

    def __init__(self, touched: Touched, starts: Int64s, ends: Int64s) -> None:
        self.touched = touched
        self._starts, self._ends = starts, ends
        self._places = self._remain = _NO_NUMBERS
        self._columns: dict[int, tuple[object, pa.Array]] = {}

    def pick(self, chosen: Int64s, remain: Int64s) -> None:
        """From now on it is about the rows `chosen[remain]`, of the evaluations of these touched groups."""
        places = chosen[remain]
        if np.array_equal(places, self._places) and np.array_equal(remain, self._remain):
            return
        self._places, self._remain, self._columns = places, remain, {}
        evaluation = self.touched.segments[remain]
        starts, ends = self._starts[evaluation], self._ends[evaluation]
        self._windows, self._times = [timestamps(starts), timestamps(ends)], ends - 1

    def column(self, value: Evaluated, kind: SqlType) -> pa.Array:
        held = value.held  # the same object for all that refer to the same column
        found = self._columns.get(id(held))
        if found is None:
            found = self._columns[id(held)] = held, _taken(value, kind, self._places)
        return found[1]

    def chunk(self, names: Sequence[str], columns: list[pa.Array]) -> Chunk:
        return Chunk(self._times, pa.RecordBatch.from_arrays([*self._windows, *columns], names=names))


@component("ChangeShow")
class ChangeShow:
    """HAVING and the select list of one query, computed for groups as they were and as they are."""

    def __init__(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> None:
        emission = node.emission
        self._shown = EmittedRows(node, answers)
        self._reject = reject
        self._having = None if emission.having is None else compile_expression(emission.having)
        self._outputs = [(compile_expression(o.expression), o.expression.type) for o in emission.outputs]
        self._is_key = [isinstance(o.expression, Column) and o.expression.name[0] == "#" for o in emission.outputs]
        self._inserts = emission.emit is not Emit.DSTREAM
        self._by_group = emission.emit is Emit.EDGE
        self._names = node.schema.names
        self.outgoing = Outgoing()
        self.failing = _NO_SLOTS

    def see(
        self,
        keys: list[Data],
        played: EvaluatedGroups,
        picked: _ChosenRows,
        evaluations: int,
        owners: Owners | None,
    ) -> None:
        """The groups touched before each evaluation; `played` has their rows."""
        touched = picked.touched
        rows = self._shown.rows(keys, played)
        keep: Bools | None = None
        failed = played.failed(self._shown.answers)
        if len(self.failing) or (failed is not None and failed.any()):
            keep = np.ones(rows.num_rows, np.bool_) if failed is None else ~failed
            self._reject_failed(rows, ~keep, touched, evaluations, owners)
        if self._having is not None:
            passed = self._having(rows).true
            keep = passed if keep is None else keep & passed
        values = [compiled(rows) for compiled, _ in self._outputs]
        was, now = touched.before, touched.after
        chosen, other = (now, was) if self._inserts else (was, now)
        marks = np.empty(len(chosen), np.int8)
        _mark(chosen, other, _NO_MASK if keep is None else keep, marks)
        for value, (_, kind), is_key in zip(values, self._outputs, self._is_key, strict=True):
            if not is_key and not self._by_group:
                _compare(*_comparable(value, kind), chosen, other, marks)
        remain = np.flatnonzero(marks == _DIFFERS)
        if len(remain):
            picked.pick(chosen, remain)
            columns = [picked.column(value, kind) for value, (_, kind) in zip(values, self._outputs, strict=True)]
            self.outgoing.put(picked.chunk(self._names, columns))

    def _reject_failed(
        self, rows: Batch, failed: Bools, touched: Touched, evaluations: int, owners: Owners | None
    ) -> None:
        """What has failed fails in every evaluation, of its partition, until a row touches it. What fails already is
        among the groups touched, unless its partition has no evaluation here."""
        failing: dict[int, dict[int, int]] = {}
        upto = np.searchsorted(touched.segments, np.arange(evaluations), "right")
        begin = 0
        for evaluation, end in enumerate(upto.tolist()):
            own = failing.setdefault(0 if owners is None else int(owners.of_evaluations[evaluation]), {})
            for slot, row in zip(touched.slots[begin:end].tolist(), touched.after[begin:end].tolist(), strict=True):
                own.pop(slot, None)
                if row != NO_ROW and failed[row]:
                    own[slot] = row
            for row in own.values():
                self._reject(OVERFLOW, as_row(rows, row))
            begin = end
        others = self.failing[~np.isin(self.failing, touched.slots)]
        found = [slot for own in failing.values() for slot in own]
        self.failing = np.concatenate([others, np.array(found, np.int32)])

    def snapshot(self) -> dict[str, Any]:
        return {"failing": self.failing}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.failing = snapshot["failing"]


@component("Changes")
class Changes:
    """The `Evaluation` of queries that show changes.

    With PARTITION BY, `owners` gives the partition of each group, by its slot, and `shown_keys` are the places of the
    node's keys among those of the groups, which have the keys of the partitions, too."""

    of_events = False

    def __init__(
        self,
        name: str,
        node: AggregateNode,
        reading: Reading,
        resources: Resources,
        *,
        one_group: bool = False,
        owners: Callable[[], Slots] | None = None,
        shown_keys: Sequence[int] | None = None,
    ) -> None:
        self._aggregation = Aggregation(name, reading, node.states, resources)
        self._groups = reading.groups
        self._owners = owners
        self._shown_keys = range(len(node.group_by)) if shown_keys is None else shown_keys
        account = resources.account(f"{name}: groups that rows have touched")
        self._toucher = TouchFinder(self._groups, account)
        self._partition_segments = PartitionSegments(account)
        self._answer_names = list(map(_answer_names, node.states))
        self._shows: list[ChangeShow] = []
        tally = self._groups.tally()
        self._held = HeldRows(tally, resources.account(f"{name}: groups before they changed"))
        resources.at_end(lambda: self._groups.forget(tally))

    def show(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> Show:
        show = ChangeShow(node, answers, reject)
        self._shows.append(show)
        return show

    def drop(self, show: Show) -> None:
        assert isinstance(show, ChangeShow)
        self._shows.remove(show)

    def play(self, turn: RowMoves, arrivals: Arrivals | None) -> None:
        domains = np.zeros(1 if turn.evaluates.any() else 0, np.int32)
        self._play(turn, segments_of_all(turn.evaluates), domains, None)

    def play_partitions(self, turn: RowMoves, partitions: Slots) -> None:
        """Plays a turn whose step k is of `partitions[k]`, and so are the rows that enter and leave by it."""
        assert self._owners is not None
        evaluated = partitions[turn.evaluates]
        segments = self._partition_segments.find(partitions, turn.evaluates)
        self._play(turn, segments, evaluated, Owners(self._owners(), evaluated))

    def changed(self, partitions: Slots) -> Bools:
        """Which of these partitions have groups that their next evaluation looks at."""
        assert self._owners is not None
        owners = self._owners()[self._failing()]
        return self._held.has(partitions) | np.isin(partitions, owners)

    def _failing(self) -> Slots:
        return np.concatenate([_NO_SLOTS, *(show.failing for show in self._shows)])

    def _failing_in(self, owners: Owners | None) -> tuple[Slots, Int64s]:
        """The failing groups of the domains that are evaluated, each with its first evaluation."""
        slots = self._failing()
        if owners is None or len(slots) == 0:
            return slots, np.zeros(len(slots), np.int64)
        domains, first = np.unique(owners.of_evaluations, return_index=True)
        own = owners.of_slots[slots]
        evaluated = np.isin(own, domains)
        return slots[evaluated], first[np.searchsorted(domains, own[evaluated])]

    def _play(self, turn: RowMoves, segments: Int64s, domains: Slots, owners: Owners | None) -> None:
        taken = self._held.take(domains)
        failing = self._failing_in(owners) if len(domains) else (_NO_SLOTS, _NO_NUMBERS)
        schedule, counts, touched = self._toucher.play(
            turn, segments, taken, failing, self._held.flags, self._aggregation.counts
        )
        last = turn.add_upto[-1], turn.left[-1]
        added, removed = turn.added.part(0, int(last[0])), turn.removed.part(0, int(last[1]))
        emitted = self._aggregation.advance(added, removed, schedule)
        rows = GroupRows(schedule.emit_slots, counts, [answer for answers in emitted for answer in answers])
        if taken.had_row.any():
            rows = self._held.rows(taken.slots[taken.had_row]).followed_by(rows)
        looks = np.flatnonzero(turn.evaluates)
        open_from = int(np.searchsorted(touched.segments, len(looks)))
        if open_from:
            self._show(rows, touched.part(slice(0, open_from)), turn.starts[looks], turn.ends[looks], owners)
        if open_from < len(touched.slots):
            before, slots = touched.before[open_from:], touched.slots[open_from:]
            had_row = before != NO_ROW
            of_slots = None if owners is None else owners.of_slots
            self._held.hold(rows.taken(before[had_row]), slots[~had_row], of_slots)

    def _show(self, rows: GroupRows, touched: Touched, starts: Int64s, ends: Int64s, owners: Owners | None) -> None:
        answers = iter(rows.answers)
        emitted = [tuple(next(answers) for _ in names) for names in self._answer_names]
        upto = np.empty(0, np.int64)
        played = EvaluatedGroups(rows.slots, upto, rows.counts, emitted, self._aggregation.first_interners)
        keys = self._groups.keys(rows.slots)
        shown_keys = [keys[place] for place in self._shown_keys]
        picked = _ChosenRows(touched, starts, ends)
        for show in self._shows:
            show.see(shown_keys, played, picked, len(ends), owners)

    @property
    def _names(self) -> list[str]:
        return [name for own in self._answer_names for name in own]

    def snapshot(self) -> dict[str, Any]:
        return {"aggregation": self._aggregation.snapshot(), "held": self._held.snapshot(self._names)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """With PARTITION BY the owners of groups have been restored before."""
        self._aggregation.restore(snapshot["aggregation"])
        self._held.restore(snapshot["held"], self._names, None if self._owners is None else self._owners())


def _answer_names(state: StateSpec) -> list[str]:
    """Names of a state's answers, that of what they compute."""
    own = fingerprint(state_key(state))
    return [f"{own} {want.function} {want.parameter}" for want in state.wants]


@kernel
def _mark(chosen: Int64s, other: Int64s, keep: Bools, marks: NDArray[np.int8]) -> None:
    """Which of the rows `chosen` are in their relation, and whether `other` are in theirs. The places of rows that are
    not there are `NO_ROW`; those that `keep` does not have are not there either."""
    masked = len(keep) > 0
    for i in range(len(chosen)):
        if chosen[i] == NO_ROW or (masked and not keep[chosen[i]]):
            marks[i] = _NOT_SHOWN
        elif other[i] == NO_ROW or (masked and not keep[other[i]]):
            marks[i] = _DIFFERS
        else:
            marks[i] = _EQUAL


@kernel
def _compare(values: Values, valid: Bools, some: Int64s, others: Int64s, marks: NDArray[np.int8]) -> None:
    """Marks the pairs of rows whose values differ. A NULL is equal to a NULL, and NaN to NaN."""
    masked = len(valid) > 0
    for i in range(len(marks)):
        if marks[i] == _EQUAL:
            one, other = values[some[i]], values[others[i]]
            differs = one != other and (one == one or other == other)
            if masked:
                known = valid[some[i]]
                differs = known != valid[others[i]] or (known and differs)
            if differs:
                marks[i] = _DIFFERS


def _comparable(column: Evaluated, kind: SqlType) -> tuple[Values, Bools]:
    """A column as `_compare` takes it: doubles, or integers that are equal where values are."""
    values, valid = image(column, kind, Interner()) if kind is SqlType.STRING else column.columns
    values = plain(values, FLOAT64 if kind.is_floating else INT64)
    return values, _NO_MASK if valid is None else plain(valid, BOOL)


def _taken(column: Evaluated, kind: SqlType, rows: Int64s) -> pa.Array:
    if kind in (SqlType.STRING, SqlType.NULL):
        return column.values.take(pa.array(rows))
    values, valid = column.columns
    return to_arrow(Vector(values[rows], None if valid is None else valid[rows]), kind, len(rows))
