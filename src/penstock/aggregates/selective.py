"""MIN, MAX, FIRST, LAST, ARG_MIN and ARG_MAX: the aggregates whose answer is one of the rows in the window.

All six are one algorithm, a monotonic deque per slot (`deques`); they differ in what a key is. MIN and MAX ignore
NULL and return the value, ARG_* ignore rows whose second argument is NULL, FIRST and LAST take every row. For MIN and
MAX -0.0 is less than 0.0, as it is for percentiles, so that their answer is a matter of the values and not of which
came first, and can be merged; for ARG_* the two are equal, and the earliest event wins.

Invariants:
1. The bytes of the pool of chunks and of the directory are on the account.
2. Without a device the pool grows as far as the budget goes. With one it leaves half of what is free to others; then
   the middle of long deques is moved to the device (`deque_paging`) and comes back when the front or the back of its
   deque reaches it.
3. A `BudgetError` from `advance` leaves every deque whole, but the schedule half played: restore, reset or drop.

Created by the factory; driven by the operator through `AggregateState`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.aggregates import deques
from penstock.aggregates.columns import ALL_VALID, BOOL, INT32, NO_INTEGERS, plain
from penstock.aggregates.deque_paging import DequePager
from penstock.aggregates.images import from_images, images
from penstock.aggregates.pane_fronts import FRONT_WORDS, enter_fronts, leave_fronts, write_fronts
from penstock.aggregates.panes import NO_EXTRAS, Extras, PanedState, PaneRows
from penstock.aggregates.partials import entry_type
from penstock.aggregates.state import Emitted, PartialState, Rows, Schedule, Snapshot, Values
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError, PenstockError
from penstock.store.budget import Account
from penstock.store.charged import SHARE_OF_FREE
from penstock.store.device import BlockDevice
from penstock.types import SqlType

_FIRST_CHUNKS = 32

_BEFORE_ALL = -1
"""The position of rows that are absorbed: they come before all that enter later."""


@component("SelectiveState")
class SelectiveState(PanedState, PartialState):
    """One of the six functions, for every slot.

    `types` are the argument types. Where the key is a STRING, `ranks()` gives the rank in string order of every
    code; ranks may be renumbered between calls as long as the order of codes still in the window stays.
    """

    def __init__(
        self,
        function: str,
        types: tuple[SqlType, ...],
        *,
        account: Account,
        device: BlockDevice | None = None,
        ranks: Callable[[], Int64s] | None = None,
    ) -> None:
        key_type = types[-1]
        self._function = function
        self._storage = types[0].storage
        self._account = account
        self._ranks = ranks
        self._floating = key_type.is_floating
        self.flip = -1 if function in ("MAX", "ARG_MAX") else 0
        self._keyed = function not in ("FIRST", "LAST")
        if not self._keyed:
            self._rule = deques.KEEP_ALL if function == "FIRST" else deques.KEEP_NEWEST
        else:
            by_value = deques.BY_TOTAL_KEY if function in ("MIN", "MAX") else deques.BY_KEY
            self._rule = deques.BY_RANK if key_type is SqlType.STRING else by_value
        self._directory: Int64s = np.zeros((0, 2), dtype=np.int64)
        self._pool: Int64s = np.zeros(0, dtype=np.int64)
        self._control: Int64s = np.zeros(deques.CONTROL_WORDS, dtype=np.int64)
        self._control[deques.FREE_CHAIN] = deques.NONE
        self._pager = DequePager(device) if device is not None else None

    def ensure(self, slots: int) -> None:
        held = len(self._directory)
        if slots > held:
            room = max(16, slots)
            self._account.resize(self._pool.nbytes + 16 * room)
            grown = np.full((room, 2), deques.NONE, dtype=np.int64)
            grown[:held] = self._directory
            self._directory = grown

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        payload, key = added.arguments[0], added.arguments[-1]
        payloads = images(payload.values)
        keys = payloads if key is payload else images(key.values)
        payloads_valid = ALL_VALID if payload.valid is None else plain(payload.valid, BOOL)
        keys_valid = ALL_VALID if key.valid is None or not self._keyed else plain(key.valid, BOOL)
        ranks = NO_INTEGERS if self._ranks is None or self._rule != deques.BY_RANK else self._ranks()
        emits = len(schedule.emit_slots)
        out = np.empty(emits, np.int64)
        out_valid = np.empty(emits, np.bool_)
        while True:
            need = deques.play(
                self._pool,
                self._directory,
                self._control,
                ranks,
                self._rule,
                self.flip,
                self._floating,
                added.positions,
                added.slots,
                keys,
                keys_valid,
                payloads,
                payloads_valid,
                removed.positions,
                removed.slots,
                *schedule,
                out,
                out_valid,
            )
            if need == deques.DONE:
                return (Emitted(self.of_images(out), out_valid),)
            self.supply(need)

    def of_images(self, found: Int64s) -> Values:
        """Answers from their images."""
        return from_images(found, self._storage)

    def supply(self, need: int) -> None:
        """Gives the stopped kernel what it needs; if that fails, the schedule ends here."""
        try:
            if need == deques.NEEDS_CHUNK:
                self._make_room(1)
                return
            assert self._pager is not None, "only a pager spills"
            slot, at_front = int(self._control[deques.STUCK_SLOT]), need == deques.NEEDS_FRONT
            self._make_room(self._pager.next_size(slot, at_front))
            self._pager.load(slot, at_front, self.chains)
        except PenstockError:
            self._control[deques.STEP :] = 0
            raise

    def _make_room(self, chunks: int) -> None:
        """At least so many free chunks: by growing, or else by spilling."""
        if self._control[deques.FREE_COUNT] >= chunks:
            return
        held = len(self._pool) // deques.CHUNK_WORDS
        least = held + chunks
        for wanted in (max(_FIRST_CHUNKS, 2 * held, least), max(held + held // 32, least)):
            if self._is_granted(wanted):
                self._grow(wanted)
                return
        if self._pager is None or not self._pager.spill(self.chains, chunks):
            self._grow(least)

    @property
    def chains(self) -> deques.Chains:
        """The arrays of all deques, for loops that work on them in place."""
        return deques.Chains(self._pool, self._directory, self._control)

    def _is_granted(self, chunks: int) -> bool:
        """Whether the pool may have so many chunks: most of the free budget is left to others."""
        return 8 * (chunks * deques.CHUNK_WORDS - len(self._pool)) <= self._account.free // SHARE_OF_FREE

    def _grow(self, chunks: int) -> None:
        words = chunks * deques.CHUNK_WORDS
        try:
            self._account.resize(8 * words + self._directory.nbytes)
        except BudgetError as refusal:
            raise BudgetError(
                f"{self._function} has no room for the rows that may still become its answer: {refusal}"
            ) from refusal
        grown = np.empty(words, dtype=np.int64)
        grown[: len(self._pool)] = self._pool
        self._control[deques.FREE_COUNT] += (len(grown) - len(self._pool)) // deques.CHUNK_WORDS
        self._pool = grown

    def reset(self, slots: Slots) -> None:
        deques.clear(self._pool, self._directory, self._control, slots)
        if self._pager is not None:
            self._pager.forget(slots)

    def export(self, slots: Slots) -> pa.Array:
        """The front of each deque: what is behind it answers only when rows leave."""
        words = np.empty((len(slots), FRONT_WORDS), np.int64)
        write_fronts(self._pool, self._directory, plain(slots, INT32), words, 0)
        fields = [pa.array(words[:, 0].astype(np.int8)), pa.array(words[:, 1]), pa.array(words[:, 2])]
        return pa.StructArray.from_arrays(fields, fields=list(entry_type(pa.int64(), pa.int64())))

    def absorb(self, slots: Slots, partials: pa.Array) -> None:
        words = np.empty((len(slots), FRONT_WORDS), np.int64)
        for at, field in enumerate(partials.flatten()):
            words[:, at] = field.to_numpy(zero_copy_only=False)
        before = np.full(len(slots), _BEFORE_ALL, np.int64)
        self._play_panes(enter_fronts, before, words, 0, plain(slots, INT32), 1, self._rule)

    @property
    def pane_words(self) -> int:
        return FRONT_WORDS

    def take_units(self, panes: SelectiveState) -> None:
        """A value has no units."""

    def to_panes(self, slots: Slots, words: Words, at: int) -> Extras:
        write_fronts(self._pool, self._directory, slots, words.view(np.int64), at)
        return NO_EXTRAS

    def enter(self, rows: PaneRows, groups: Slots, windows: int) -> None:
        self._play_panes(enter_fronts, rows.positions, rows.words.view(np.int64), rows.at, groups, windows, self._rule)

    def leave(self, rows: PaneRows, slots: Slots) -> None:
        self._play_panes(leave_fronts, rows.positions, slots)

    def _play_panes(self, play: Callable[..., int], *rows: object) -> None:
        while (need := play(self._pool, self._directory, self._control, *rows)) != deques.DONE:
            self.supply(need)

    def rearrange(self, kept: Slots) -> None:
        self._directory = self._directory[kept]
        self._account.resize(self.nbytes)
        if self._pager is not None:
            self._pager.rearrange(kept)

    @property
    def nbytes(self) -> int:
        return self._pool.nbytes + self._directory.nbytes

    def snapshot(self) -> Snapshot:
        untouched = int(self._control[deques.UNTOUCHED])
        return {
            "pool": self._pool[:untouched],
            "directory": self._directory,
            "free_chain": int(self._control[deques.FREE_CHAIN]),
            "free_in_chain": int(self._control[deques.FREE_COUNT])
            - (len(self._pool) - untouched) // deques.CHUNK_WORDS,
            "spilled": self._pager.snapshot() if self._pager is not None else None,
        }

    def restore(self, snapshot: Snapshot) -> None:
        pool, directory = snapshot["pool"], snapshot["directory"]
        self._account.resize(pool.nbytes + directory.nbytes)
        self._pool = np.array(pool, dtype=np.int64)
        self._directory = np.array(directory, dtype=np.int64)
        self._control[deques.UNTOUCHED] = len(self._pool)
        self._control[deques.FREE_CHAIN] = snapshot["free_chain"]
        self._control[deques.FREE_COUNT] = snapshot["free_in_chain"]
        if self._pager is not None and snapshot["spilled"] is not None:
            self._pager.restore(snapshot["spilled"])
