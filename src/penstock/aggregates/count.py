"""COUNT: how many rows of each slot are in the window, or how many of them have a value.

Created by the factory for COUNT(*) (no argument) and for COUNT(x) (one argument of any type, of which only the
validity matters).

Invariant: `counts[s]` is the number of rows of slot s now in the window whose argument is not NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.aggregates.columns import ALL_VALID, BOOL, INT32, plain
from penstock.aggregates.panes import NO_EXTRAS, Extras, PanedState, PaneRows, enter_words, leave_words
from penstock.aggregates.rounding import U0, U1
from penstock.aggregates.state import Emitted, MergeableState, Rows, Schedule, Snapshot
from penstock.aggregates.wide import Words
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.jit import kernel
from penstock.store.budget import Account
from penstock.store.changes import by_slot
from penstock.store.charged import UNLIMITED, ChargedArray

_ONE_WORD = np.ones(1, dtype=np.int64)


@component("CountState")
class CountState(MergeableState, PanedState):
    """COUNT(*) or COUNT(x) per slot."""

    def __init__(self, account: Account = UNLIMITED) -> None:
        self._held = ChargedArray(account, np.int64)

    @property
    def counts(self) -> Int64s:
        """The counts of all slots, for loops that work on them in place."""
        return self._held.array

    def ensure(self, slots: int) -> None:
        if slots > len(self._held):
            self._held.resize(max(16, slots))

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        out = np.empty(len(schedule.emit_slots), dtype=np.int64)
        add_valid, add_masked = _validity(added)
        remove_valid, remove_masked = _validity(removed)
        _play(
            self.counts,
            plain(added.slots, INT32),
            add_valid,
            add_masked,
            plain(removed.slots, INT32),
            remove_valid,
            remove_masked,
            *schedule,
            out,
        )
        return (Emitted(out, None),)

    def reset(self, slots: Slots) -> None:
        self.counts[slots] = 0

    def export(self, slots: Slots) -> pa.Array:
        return pa.array(self.counts[slots])

    def absorb(self, slots: Slots, partials: pa.Array) -> None:
        np.add.at(self.counts, slots, partials.to_numpy())

    @property
    def pane_words(self) -> int:
        return 1

    def take_units(self, panes: CountState) -> None:
        """Counts have no unit."""

    def to_panes(self, slots: Slots, words: Words, at: int) -> Extras:
        words[:, at] = self.counts[slots].view(np.uint64)
        return NO_EXTRAS

    def enter(self, rows: PaneRows, groups: Slots, windows: int) -> None:
        enter_words(self.counts.view(np.uint64), 1, _ONE_WORD, rows.words, rows.at, groups, windows)

    def leave(self, rows: PaneRows, slots: Slots) -> None:
        leave_words(self.counts.view(np.uint64), 1, _ONE_WORD, rows.words, rows.at, slots)

    def rearrange(self, kept: Slots) -> None:
        self._held.set(self.counts[kept])

    @property
    def nbytes(self) -> int:
        return self._held.nbytes

    def snapshot(self) -> Snapshot:
        return {"counts": by_slot(self.counts)}

    def restore(self, snapshot: Snapshot) -> None:
        self._held.set(snapshot["counts"])


def _validity(rows: Rows) -> tuple[Bools, bool]:
    valid = rows.arguments[0].valid if rows.arguments else None
    return (ALL_VALID, False) if valid is None else (plain(valid, BOOL), True)


@kernel
def _play(
    counts: Int64s,
    add_slots: Slots,
    add_valid: Bools,
    add_masked: bool,
    remove_slots: Slots,
    remove_valid: Bools,
    remove_masked: bool,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    out: Int64s,
) -> None:
    step = entered = left = emitted = U0
    steps = np.uint64(len(add_upto))
    while step < steps:
        stop = np.uint64(add_upto[step])
        while entered < stop:
            slot = add_slots[entered]
            if slot >= 0 and (not add_masked or add_valid[entered]):
                counts[np.uint64(slot)] += 1
            entered += U1
        stop = np.uint64(remove_upto[step])
        while left < stop:
            slot = remove_slots[left]
            if slot >= 0 and (not remove_masked or remove_valid[left]):
                counts[np.uint64(slot)] -= 1
            left += U1
        stop = np.uint64(emit_upto[step])
        while emitted < stop:
            out[emitted] = counts[np.uint64(emit_slots[emitted])]
            emitted += U1
        step += U1
