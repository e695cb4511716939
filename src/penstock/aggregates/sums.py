"""SUM, AVG and COUNT of one argument, exact whatever has passed through the window.

Created by the factory; driven by the aggregate operator. Integers are summed in 128 bits: the SUM of the rows now in
the window is exact, and marked as failed where it does not fit a BIGINT. Floats are summed as integers too: see
`exact_sum` for the narrow accumulator and `wide` for what does not fit it. SUM of floats is, to the bit, what
`math.fsum` gives for the values now in the window, except that a sum beyond the range of a double is an infinity
where `fsum` raises. AVG is the correctly rounded sum divided by the count.

Partials (see `partials`) are the same integers, so merging them loses nothing either.

Invariants:
1. The words of slot s are [count, low, middle, high] for floats, [count, low, high] for integers, and depend only on
   the rows of s now in the window (and, for floats, on the base exponent).
2. `_base` is chosen once, from the first call that adds a finite value other than zero or absorbs such, and kept for
   good, because a value must leave the accumulator it entered. Results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.aggregates.columns import FLOAT64, INT32, INT64, NO_FLOATS, NO_INTEGERS, column, plain
from penstock.aggregates.exact_merge import FLOAT_PARTIAL_WORDS, absorb_floats, absorb_integers, common_base
from penstock.aggregates.exact_sum import FAILURES, LEAST_BASE, NO_ROOM, NULLS, choose_base, play_floats, play_integers
from penstock.aggregates.panes import NO_EXTRAS, Extras, PanedState, PaneRows, enter_words, leave_words
from penstock.aggregates.partials import pack, unpack
from penstock.aggregates.state import Emitted, MergeableState, Rows, Schedule, Snapshot, Values, Want
from penstock.aggregates.wide import WideSums, Words
from penstock.arrays import Bools, Slots
from penstock.components import component
from penstock.store.budget import Account
from penstock.store.changes import by_slot
from penstock.store.charged import UNLIMITED, ChargedArray

_FLOAT_WORDS = 4
_INTEGER_WORDS = 3
_FLOAT_INTEGERS, _INTEGER_INTEGERS = np.array([1, 3]), np.array([1, 2])
"""The lengths of the integers in the words of a slot."""


@component("SumState")
class SumState(MergeableState, PanedState):
    """Serves any of SUM, AVG and COUNT of one argument, in the order wanted.

    >>> from penstock.aggregates.state import Argument
    >>> state = SumState(integer=False, wants=[Want("SUM")])
    >>> state.ensure(1)
    >>> values = np.array([1e16, 1.0, 1e-16, -1e16, -1.0])
    >>> rows = Rows(np.arange(5), np.zeros(5, dtype=np.int32), (Argument(values, None),))
    >>> none = Rows(np.arange(0), np.zeros(0, dtype=np.int32), (Argument(values[:0], None),))
    >>> once = Schedule(np.array([5]), np.array([0]), np.array([1]), np.zeros(1, dtype=np.int32))
    >>> state.advance(rows, none, once)[0].values
    array([1.e-16])
    """

    def __init__(self, integer: bool, wants: Sequence[Want], account: Account = UNLIMITED) -> None:
        self._integer = integer
        self._functions = tuple(want.function for want in wants)
        self._wants_average = "AVG" in self._functions
        self._wants_count = "COUNT" in self._functions
        self._width = _INTEGER_WORDS if integer else _FLOAT_WORDS
        self._lengths = _INTEGER_INTEGERS if integer else _FLOAT_INTEGERS
        self._slots = 0
        self._held = ChargedArray(account, np.uint64)
        self._base = 0
        self._wide = WideSums(account)
        self._cursor = np.zeros(4, dtype=np.int64)

    @property
    def words(self) -> Words:
        """The words of all slots, for loops that work on them in place."""
        return self._held.array

    @property
    def base(self) -> int:
        """The base exponent of doubles; 0 while there is none."""
        return self._base

    @property
    def is_narrow(self) -> bool:
        """Whether no value now in the window is in the wide table."""
        return not self._wide.in_use

    def ensure(self, slots: int) -> None:
        if slots > self._slots:
            slots = max(16, slots)
            self._held.resize(slots * self._width)
            if not self._integer:
                self._wide.ensure(slots)
            self._slots = slots

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        return (self._advance_integers if self._integer else self._advance_floats)(added, removed, schedule)

    def _advance_integers(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        count = len(schedule.emit_slots)
        sums = np.empty(count, dtype=np.int64)
        averages = np.empty(count) if self._wants_average else NO_FLOATS
        counts = np.empty(count, dtype=np.int64) if self._wants_count else NO_INTEGERS
        present, failed = np.empty((2, count), dtype=np.bool_)
        met = play_integers(
            self.words,
            plain(added.slots, INT32),
            *column(added, 0, INT64),
            plain(removed.slots, INT32),
            *column(removed, 0, INT64),
            schedule.add_upto,
            schedule.remove_upto,
            schedule.emit_upto,
            plain(schedule.emit_slots, INT32),
            sums,
            averages,
            counts,
            present,
            failed,
        )
        return self._serve(sums, averages, counts, present if met & NULLS else None, failed if met & FAILURES else None)

    def _advance_floats(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        count = len(schedule.emit_slots)
        sums = np.empty(count)
        averages = np.empty(count) if self._wants_average else NO_FLOATS
        counts = np.empty(count, dtype=np.int64) if self._wants_count else NO_INTEGERS
        present = np.empty(count, dtype=np.bool_)
        add_slots, remove_slots = plain(added.slots, INT32), plain(removed.slots, INT32)
        emit_slots = plain(schedule.emit_slots, INT32)
        add_column, remove_column = column(added, 0, FLOAT64), column(removed, 0, FLOAT64)
        if self._base == 0:
            self._base = choose_base(add_slots, *add_column)
        met = 0
        stopped = NO_ROOM
        while stopped:
            found = play_floats(
                self.words,
                self._base or LEAST_BASE,
                self._wide.table,
                self._wide.row_of,
                self._wide.links,
                add_slots,
                *add_column,
                remove_slots,
                *remove_column,
                schedule.add_upto,
                schedule.remove_upto,
                schedule.emit_upto,
                emit_slots,
                self._cursor,
                sums,
                averages,
                counts,
                present,
            )
            met |= found
            stopped = found & NO_ROOM
            if stopped:
                self._wide.add_rows()
        if len(self._wide.table):
            self._wide.trim()
        return self._serve(sums, averages, counts, present if met & NULLS else None, None)

    def _serve(
        self, sums: Values, averages: Values, counts: Values, valid: Bools | None, failed: Bools | None
    ) -> tuple[Emitted, ...]:
        results = []
        for function in self._functions:
            if function == "SUM":
                results.append(Emitted(sums, valid, failed))
            elif function == "AVG":
                results.append(Emitted(averages, valid))
            else:
                results.append(Emitted(counts, None))
        return tuple(results)

    def reset(self, slots: Slots) -> None:
        self.words.reshape(-1, self._width)[slots] = 0
        if not self._integer:
            self._wide.reset(slots)

    def export(self, slots: Slots) -> pa.Array:
        words = self.words.reshape(-1, self._width)[slots]
        if self._integer:
            return pack(words, NO_INTEGERS, words[:0])
        based = np.empty((len(slots), FLOAT_PARTIAL_WORDS), np.uint64)
        based[:, 0], based[:, 1], based[:, 2:] = words[:, 0], self._base, words[:, 1:]
        rows = self._wide.row_of[slots] if self._wide.in_use else NO_INTEGERS
        which = np.flatnonzero(rows)
        return pack(based, which, self._wide.table[rows[which] - 1])

    def absorb(self, slots: Slots, partials: pa.Array) -> None:
        slots = plain(slots, INT32)
        packed = unpack(partials)
        if self._integer:
            absorb_integers(self.words, slots, packed.words)
            return
        if self._base == 0:
            self._base = common_base(packed.words[packed.starts + 1])
        done = 0
        while done < len(slots):
            done = absorb_floats(
                self.words,
                self._base or LEAST_BASE,
                self._wide.table,
                self._wide.row_of,
                self._wide.links,
                slots,
                *packed,
                done,
            )
            if done < len(slots):
                self._wide.add_rows()

    @property
    def pane_words(self) -> int:
        return self._width

    def take_units(self, panes: SumState) -> None:
        self._base = panes._base

    def to_panes(self, slots: Slots, words: Words, at: int) -> Extras:
        words[:, at : at + self._width] = self.words.reshape(-1, self._width)[slots]
        return self._wide.rows(slots) if self._wide.in_use else NO_EXTRAS

    def enter(self, rows: PaneRows, groups: Slots, windows: int) -> None:
        enter_words(self.words, self._width, self._lengths, rows.words, rows.at, groups, windows)
        for row, extra in rows.extras.items():
            first = int(groups[row]) * windows
            self._wide.enter(extra, np.arange(first, first + windows, dtype=np.int32))

    def leave(self, rows: PaneRows, slots: Slots) -> None:
        leave_words(self.words, self._width, self._lengths, rows.words, rows.at, slots)
        for row, extra in rows.extras.items():
            self._wide.leave(extra, int(slots[row]))

    def rearrange(self, kept: Slots) -> None:
        self._held.set(self.words.reshape(-1, self._width)[kept].reshape(-1))
        self._slots = len(kept)
        if not self._integer:
            self._wide.rearrange(kept)

    @property
    def nbytes(self) -> int:
        return self._held.nbytes + self._wide.nbytes

    def snapshot(self) -> Snapshot:
        return {"words": by_slot(self.words, self._width), "base": self._base, "wide": self._wide.snapshot()}

    def restore(self, snapshot: Snapshot) -> None:
        self._held.set(snapshot["words"])
        self._slots = len(self.words) // self._width
        self._base = snapshot["base"]
        self._wide.restore(snapshot["wide"])
