"""The rows that groups had at the last evaluation, of those groups that rows have touched since.

Rows lie by the slots of their groups, and the slots of a domain (a partition, or all groups) are linked. So the cost of
a turn follows what it takes and holds, however many groups are held.

Invariants:
1. `tally.rows[slot]` is `NOT_HELD`, or says whether the group had a row. A slot that is held is not given to others.
2. What grows with groups is on the account. Nothing is allocated before the first group is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Emitted
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.jit import kernel
from penstock.operators.groups import Tally
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray

NOT_HELD, HELD, HELD_WITHOUT_ROW = 0, 1, 2

_END = -1


class GroupRows(NamedTuple):
    """Rows of groups: slots, row counts, and what the states said, in the order of all their wants."""

    slots: Slots
    counts: Int64s
    answers: list[Emitted]

    def taken(self, rows: Int64s) -> GroupRows:
        return GroupRows(self.slots[rows], self.counts[rows], [_some(answer, rows) for answer in self.answers])

    def followed_by(self, other: GroupRows) -> GroupRows:
        """These rows, and others behind them."""
        answers = [_joined(one, another) for one, another in zip(self.answers, other.answers, strict=True)]
        slots = np.concatenate([self.slots, other.slots])
        return GroupRows(slots, np.concatenate([self.counts, other.counts]), answers)


class TakenSlots(NamedTuple):
    """Slots that were held, whether each had a row, and the number of the first evaluation of its domain."""

    slots: Slots
    had_row: Bools
    evaluations: Int64s


@kernel
def _take(domains: Slots, heads: Slots, nexts: Slots, flags: Int64s, room: int) -> tuple[Slots, Bools, Int64s]:
    slots = np.empty(room, np.int32)
    had_row = np.empty(room, np.bool_)
    evaluations = np.empty(room, np.int64)
    count = 0
    for evaluation in range(len(domains)):
        slot = heads[domains[evaluation]]
        heads[domains[evaluation]] = _END
        while slot != _END:
            slots[count], had_row[count], evaluations[count] = slot, flags[slot] == HELD, evaluation
            flags[slot] = NOT_HELD
            count += 1
            slot = nexts[slot]
    return slots[:count], had_row[:count], evaluations[:count]


@kernel
def _link(slots: Slots, domains: Slots, heads: Slots, nexts: Slots) -> None:
    for i in range(len(slots)):
        nexts[slots[i]] = heads[domains[i]]
        heads[domains[i]] = slots[i]


class _AnswerColumn:
    """One answer of each group that is held. Marks of NULLs and failures are there from the first one on."""

    def __init__(self, account: Account, like: Emitted) -> None:
        self._values = ChargedArray(account, like.values.dtype)
        self._null, self._failed = ChargedArray(account, np.bool_), ChargedArray(account, np.bool_)

    def put(self, slots: Int64s, answer: Emitted, capacity: int) -> None:
        if capacity > len(self._values):
            self._values.resize(capacity)
        assert answer.values.dtype == self._values.array.dtype
        self._values.array[slots] = answer.values
        _put_marks(self._null, slots, None if answer.valid is None else ~answer.valid, capacity)
        _put_marks(self._failed, slots, answer.failed, capacity)

    def of(self, slots: Int64s) -> Emitted:
        null, failed = _marks_of(self._null, slots), _marks_of(self._failed, slots)
        return Emitted(self._values.array[slots], None if null is None else ~null, failed)


def _put_marks(marks: ChargedArray, slots: Int64s, new: Bools | None, capacity: int) -> None:
    if new is None and len(marks) == 0:
        return
    if capacity > len(marks):
        marks.resize(capacity)
    marks.array[slots] = False if new is None else new


def _marks_of(marks: ChargedArray, slots: Int64s) -> Bools | None:
    """None if none of these slots is marked."""
    if len(marks) == 0:
        return None
    found: Bools = marks.array[slots]
    return found if found.any() else None


@component("HeldRows")
class HeldRows:
    """`tally` is one of the groups' table, for these rows alone."""

    def __init__(self, tally: Tally, account: Account) -> None:
        self._tally = tally
        self._account = account
        self._heads = ChargedArray(account, np.int32, fill=_END)
        self._nexts = ChargedArray(account, np.int32)
        self._counts = ChargedArray(account, np.int64)
        self._answers: list[_AnswerColumn] = []
        self._size = 0

    @property
    def flags(self) -> Int64s:
        return self._tally.rows

    def take(self, domains: Slots) -> TakenSlots:
        """The slots of domains, by the numbers of these domains' evaluations; they are held no more."""
        if self._size == 0 or len(domains) == 0:
            return TakenSlots(np.empty(0, np.int32), np.empty(0, np.bool_), np.empty(0, np.int64))
        heads = self._heads.fit(int(domains.max()) + 1)
        taken = TakenSlots(*_take(domains, heads, self._nexts.array, self.flags, self._size))
        self._size -= len(taken.slots)
        return taken

    def has(self, domains: Slots) -> Bools:
        """Which of these domains have groups that are held."""
        heads: Slots = self._heads.fit(int(domains.max(initial=0)) + 1)
        has: Bools = heads[domains] != _END
        return has

    def rows(self, slots: Slots) -> GroupRows:
        """The rows of slots that had one, also right after they were taken."""
        places = slots.astype(np.intp)  # numpy takes many columns by such places, which it need not convert, sooner
        return GroupRows(slots, self._counts.array[places], [column.of(places) for column in self._answers])

    def hold(self, rows: GroupRows, without_row: Slots, owners: Slots | None) -> None:
        """From now on these are held. `owners` are the domains of slots; None if there is only one."""
        capacity = len(self.flags)
        for slots, flag in ((rows.slots, HELD), (without_row, HELD_WITHOUT_ROW)):
            if len(slots) == 0:
                continue
            domains = np.zeros(len(slots), np.int32) if owners is None else owners[slots]
            self._fit(capacity, int(domains.max()) + 1)
            self.flags[slots] = flag
            _link(slots, domains, self._heads.array, self._nexts.array)
            self._size += len(slots)
        if len(rows.slots):
            if capacity > len(self._counts):
                self._counts.resize(capacity)
            places = rows.slots.astype(np.intp)
            self._counts.array[places] = rows.counts
            if not self._answers:
                self._answers = [_AnswerColumn(self._account, answer) for answer in rows.answers]
            for column, answer in zip(self._answers, rows.answers, strict=True):
                column.put(places, answer, capacity)

    def _fit(self, capacity: int, domains: int) -> None:
        self._heads.fit(domains)
        if capacity > len(self._nexts):
            self._nexts.resize(capacity)

    @property
    def slots(self) -> Slots:
        """All that are held."""
        return np.flatnonzero(self.flags).astype(np.int32) if self._size else np.empty(0, np.int32)

    def snapshot(self, names: Sequence[str]) -> dict[str, Any]:
        """Answers go by the names that are given."""
        slots = self.slots
        had_row = self.flags[slots] == HELD
        rows = self.rows(slots[had_row]) if had_row.any() else None
        return {
            "slots": slots[had_row],
            "without_row": slots[~had_row],
            "counts": None if rows is None else rows.counts,
            "answers": {} if rows is None else {n: list(a) for n, a in zip(names, rows.answers, strict=True)},
        }

    def restore(self, snapshot: dict[str, Any], names: Sequence[str], owners: Slots | None) -> None:
        """The groups have been restored before. Of the answers those with the names given are held."""
        slots, counts, saved = snapshot["slots"], snapshot["counts"], snapshot["answers"]
        answers = [Emitted(*saved[name]) for name in names] if len(slots) else []
        rows = GroupRows(slots, np.empty(0, np.int64) if counts is None else counts, answers)
        self.hold(rows, snapshot["without_row"], owners)


def _some(answer: Emitted, rows: Int64s) -> Emitted:
    valid, failed = answer.valid, answer.failed
    return Emitted(
        answer.values[rows], None if valid is None else valid[rows], None if failed is None else failed[rows]
    )


def _joined(one: Emitted, other: Emitted) -> Emitted:
    counts = len(one.values), len(other.values)
    return Emitted(
        np.concatenate([one.values, other.values]),
        _joined_marks(counts, one.valid, other.valid, True),
        _joined_marks(counts, one.failed, other.failed, False),
    )


def _joined_marks(counts: tuple[int, int], one: Bools | None, other: Bools | None, otherwise: bool) -> Bools | None:
    if one is None and other is None:
        return None
    marks = [np.full(n, otherwise) if mark is None else mark for n, mark in zip(counts, (one, other), strict=True)]
    return np.concatenate(marks)
