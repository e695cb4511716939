"""ISTREAM, DSTREAM and the edges of rules from the groups that have changed, without the relation before.

Only a group that a row has entered or left since the last evaluation can differ from what it was then, so only such
groups are looked at, once before their rows enter and once at the evaluation. It serves the queries for which the
planner says so (`plan.aggregations.look_of`); the others compare whole relations (`emitter`).

Invariants:
1. Between two calls `_held` are the groups touched since the last evaluation, with their rows as they were then; the
   slots of these groups are not given to others.
2. A group on which an aggregate overflowed is looked at in every evaluation: it is rejected in each (contract, rule 6).

The answers that are held are saved by the names of what they are of, like states: after a restart with other queries
those that are left find theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Emitted
from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column
from penstock.expressions.vector import Evaluated, Vector, to_arrow
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, Played
from penstock.operators.arguments import Reading
from penstock.operators.columns import image
from penstock.operators.emitter import OVERFLOW, as_chunk, as_row
from penstock.operators.evaluation import Arrivals, Show, Turn
from penstock.operators.interner import Interner
from penstock.operators.outgoing import Outgoing
from penstock.operators.resources import Resources
from penstock.operators.shown import Shown
from penstock.operators.touched import NO_ROW, NOT_HELD, Touched, Toucher
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import AggregateNode, Answer, StateSpec
from penstock.rejects import Reject
from penstock.types import SqlType

_NO_SLOTS = np.empty(0, np.int32)


class _Held(NamedTuple):
    """Rows of groups as they were: slots, row counts, and what the states said, in the order of all their wants."""

    slots: Slots
    counts: Int64s
    answers: list[Emitted]


class ChangeShow:
    """HAVING and the select list of one query, computed for groups as they were and as they are."""

    def __init__(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> None:
        emission = node.emission
        self._shown = Shown(node, answers)
        self._reject = reject
        self._having = None if emission.having is None else compile_expression(emission.having)
        self._outputs = [(compile_expression(o.expression), o.expression.type) for o in emission.outputs]
        self._is_key = [isinstance(o.expression, Column) and o.expression.name[0] == "#" for o in emission.outputs]
        self._inserts = emission.emit is not Emit.DSTREAM
        self._by_group = emission.emit is Emit.EDGE
        self._names = node.schema.names
        self.outgoing = Outgoing()
        self.failing = _NO_SLOTS

    def see(self, keys: list[Data], played: Played, touched: Touched, starts: Int64s, ends: Int64s) -> None:
        """The groups touched before each evaluation; `played` has their rows."""
        rows = self._shown.rows(keys, played)
        keep: Bools | None = None
        failed = played.failed(self._shown.answers)
        if len(self.failing) or (failed is not None and failed.any()):
            keep = np.ones(rows.num_rows, np.bool_) if failed is None else ~failed
            self._reject_failed(rows, ~keep, touched, len(ends))
        if self._having is not None:
            passed = self._having(rows).true
            keep = passed if keep is None else keep & passed
        values = [compiled(rows) for compiled, _ in self._outputs]
        was, now = touched.before, touched.after
        chosen, other = (now, was) if self._inserts else (was, now)
        same = _there(other, keep)
        for value, (_, kind), is_key in zip(values, self._outputs, self._is_key, strict=True):
            if not is_key and not self._by_group:
                same &= _equal(value, kind, chosen, other)
        remain = np.flatnonzero(_there(chosen, keep) & ~same)
        if len(remain):
            evaluation, places = touched.segments[remain], chosen[remain]
            columns = [_taken(value, kind, places) for value, (_, kind) in zip(values, self._outputs, strict=True)]
            self.outgoing.put(as_chunk(self._names, columns, starts[evaluation], ends[evaluation]))

    def _reject_failed(self, rows: Batch, failed: Bools, touched: Touched, evaluations: int) -> None:
        """What has failed fails in every evaluation until a row touches it."""
        failing: dict[int, int] = {}
        upto = np.searchsorted(touched.segments, np.arange(evaluations), "right")
        begin = 0
        for end in upto.tolist():
            for slot, row in zip(touched.slots[begin:end].tolist(), touched.after[begin:end].tolist(), strict=True):
                failing.pop(slot, None)
                if row != NO_ROW and failed[row]:
                    failing[slot] = row
            for row in failing.values():
                self._reject(OVERFLOW, as_row(rows, row))
            begin = end
        self.failing = np.array(list(failing), np.int32)

    def snapshot(self) -> dict[str, Any]:
        return {"failing": self.failing}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.failing = snapshot["failing"]


class Changes:
    """The `Evaluation` of queries that show changes."""

    of_events = False

    def __init__(
        self, name: str, node: AggregateNode, reading: Reading, resources: Resources, *, one_group: bool
    ) -> None:
        self._aggregation = Aggregation(name, reading, node.states, resources)
        self._groups = reading.groups
        self._toucher = Toucher(self._groups, resources.account(f"{name}: groups that rows have touched"))
        self._answer_names = list(map(_answer_names, node.states))
        self._shows: list[ChangeShow] = []
        self._held = _Held(_NO_SLOTS, np.empty(0, np.int64), [])
        self._no_row = _NO_SLOTS
        self._account = resources.account(f"{name}: groups before they changed")
        self._in_use = tally = self._groups.tally()
        resources.at_end(lambda: self._groups.forget(tally))

    def show(self, node: AggregateNode, answers: tuple[Answer, ...], reject: Reject) -> Show:
        show = ChangeShow(node, answers, reject)
        self._shows.append(show)
        return show

    def drop(self, show: Show) -> None:
        assert isinstance(show, ChangeShow)
        self._shows.remove(show)

    def play(self, turn: Turn, arrivals: Arrivals | None) -> None:
        first_row = len(self._held.slots)
        schedule, counts, touched = self._toucher.play(turn, self._also(), first_row, self._aggregation.counts)
        last = turn.add_upto[-1], turn.left[-1]
        added, removed = turn.added.part(0, int(last[0])), turn.removed.part(0, int(last[1]))
        emitted = self._aggregation.advance(added, removed, schedule)
        rows = self._rows(_Held(schedule.emit_slots, counts, [answer for answers in emitted for answer in answers]))
        looks = np.flatnonzero(turn.evaluates)
        open_from = int(np.searchsorted(touched.segments, len(looks)))
        if len(looks):
            self._show(rows, touched.part(slice(0, open_from)), turn.starts[looks], turn.ends[looks])
        self._hold(rows, touched.part(slice(open_from, None)))

    def _also(self) -> Slots:
        """Groups to look at whether rows touch them or not."""
        return np.concatenate([self._held.slots, self._no_row, *(show.failing for show in self._shows)])

    def _rows(self, shown: _Held) -> _Held:
        """The rows held, and behind them those shown."""
        held = self._held
        if len(held.slots) == 0:
            return shown
        answers = [_joined(one, other) for one, other in zip(held.answers, shown.answers, strict=True)]
        slots = np.concatenate([held.slots, shown.slots])
        return _Held(slots, np.concatenate([held.counts, shown.counts]), answers)

    def _show(self, rows: _Held, touched: Touched, starts: Int64s, ends: Int64s) -> None:
        if len(touched.slots) == 0:
            return
        answers = iter(rows.answers)
        emitted = [tuple(next(answers) for _ in names) for names in self._answer_names]
        upto = np.empty(0, np.int64)
        played = Played(rows.slots, upto, rows.counts, emitted, self._aggregation.first_interners)
        keys = self._groups.keys(rows.slots)
        for show in self._shows:
            show.see(keys, played, touched, starts, ends)

    def _hold(self, rows: _Held, touched: Touched) -> None:
        """Keeps what the groups of the open segment were before."""
        held = self._toucher.held
        for slots in (self._held.slots, self._no_row):
            held[slots] = NOT_HELD
            self._in_use.rows[slots] = 0
        had = touched.before != NO_ROW
        chosen = touched.before[had]
        self._keep(
            _Held(rows.slots[chosen], rows.counts[chosen], [_chosen(a, chosen) for a in rows.answers]),
            touched.slots[~had],
        )

    def _keep(self, held: _Held, no_row: Slots) -> None:
        answers = sum(answer.values.nbytes + 2 * len(answer.values) for answer in held.answers)
        self._account.resize(held.slots.nbytes + held.counts.nbytes + no_row.nbytes + answers)
        self._held, self._no_row = held, no_row
        self._mark()

    def _mark(self) -> None:
        held = self._toucher.held
        held[self._held.slots] = np.arange(len(self._held.slots))
        held[self._no_row] = NO_ROW
        for slots in (self._held.slots, self._no_row):
            self._in_use.rows[slots] = 1

    def snapshot(self) -> dict[str, Any]:
        names = [name for own in self._answer_names for name in own]
        answers = {
            name: [answer.values, answer.valid, answer.failed]
            for name, answer in zip(names, self._held.answers, strict=False)
        }
        return {
            "aggregation": self._aggregation.snapshot(),
            "held": {"slots": self._held.slots, "counts": self._held.counts, "answers": answers},
            "no_row": self._no_row,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._aggregation.restore(snapshot["aggregation"])
        saved = snapshot["held"]
        names = [name for own in self._answer_names for name in own] if len(saved["slots"]) else []
        self._toucher.fit()
        held = _Held(saved["slots"], saved["counts"], [Emitted(*saved["answers"][name]) for name in names])
        self._keep(held, snapshot["no_row"])


def _answer_names(state: StateSpec) -> list[str]:
    """Names of a state's answers, that of what they compute."""
    own = fingerprint(state_key(state))
    return [f"{own} {want.function} {want.parameter}" for want in state.wants]


def _there(rows: Int64s, keep: Bools | None) -> Bools:
    """Which of these rows are in their relation; the places of those that are not are `NO_ROW`."""
    there: Bools = rows != NO_ROW
    if keep is not None and len(keep):
        there &= keep[rows]
    return there


def _equal(column: Evaluated, kind: SqlType, some: Int64s, others: Int64s) -> Bools:
    """Whether the values of rows are equal one by one; a NULL is equal to a NULL."""
    values, valid = image(column, kind, Interner() if kind is SqlType.STRING else None)
    if len(values) == 0:
        return np.ones(len(some), np.bool_)
    equal: Bools = values[some] == values[others]
    if valid is not None:
        equal = np.where(valid[some] & valid[others], equal, valid[some] == valid[others])
    return equal


def _taken(column: Evaluated, kind: SqlType, rows: Int64s) -> pa.Array:
    if kind in (SqlType.STRING, SqlType.NULL):
        return column.values.take(pa.array(rows))
    values, valid = column.columns
    return to_arrow(Vector(values[rows], None if valid is None else valid[rows]), kind, len(rows))


def _chosen(answer: Emitted, rows: Int64s) -> Emitted:
    valid, failed = answer.valid, answer.failed
    return Emitted(
        answer.values[rows], None if valid is None else valid[rows], None if failed is None else failed[rows]
    )


def _joined(one: Emitted, other: Emitted) -> Emitted:
    return Emitted(
        np.concatenate([one.values, other.values]),
        _joined_marks((one, other), (one.valid, other.valid), True),
        _joined_marks((one, other), (one.failed, other.failed), False),
    )


def _joined_marks(parts: Sequence[Emitted], marks: Sequence[Bools | None], otherwise: bool) -> Bools | None:
    if all(mark is None for mark in marks):
        return None
    return np.concatenate(
        [
            np.full(len(part.values), otherwise) if mark is None else mark
            for part, mark in zip(parts, marks, strict=True)
        ]
    )
