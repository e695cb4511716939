"""The windows of a family whose groups are in memory.

    rows ─▶ the open pane: added only
                │ closes: one pane row per group
                ├─────────────────▶ store ──▶ tails: rows that are too old for a window
                ▼ enter all windows              │ leave it
      totals: a slot for each window and group ◀─┘
                │ evaluated at the windows' boundaries
                ▼
      what `results` gathers

Invariants:
1. `_positions[w]` is the oldest pane row in window w: a pane row is in the totals of the windows whose position is
   not beyond it.
2. A group has its slot as long as the open pane or some window has rows of it.
3. If a window cannot enter or leave for want of memory, the open pane and the store are whole: `write_to` gives all
   that shards need. The totals are not whole then.

Driven by `panes.family`.

Why: docs/decisions/families-in-one-sweep.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation, RowRun
from penstock.operators.intake import Intake, ReadRows, Taken
from penstock.operators.panes.clock import Due
from penstock.operators.panes.paged import PagedPanes
from penstock.operators.panes.results import Gathered, PaneResults
from penstock.operators.panes.store import PaneStore
from penstock.operators.panes.totals import PaneTotals
from penstock.operators.resources import Resources
from penstock.plan.nodes import StateSpec

_COLLECT_AFTER = 1024
"""Pane rows that leave windows, at least, between two looks for groups that are gone."""

_LEAST_TOGETHER = 64
"""So many rows are added together, however little memory there is."""

_ROW_BYTES = {"COUNT": 0, "MOMENTS": 4096, "COMOMENTS": 4096}
_OTHER_ROW_BYTES = 512
"""More than a row ever takes in a state, besides what the state has for its group: where values are far apart."""


@component("HeldPanes")
class HeldPanes:
    """For windows of these `numbers`, which are settled from time to time. `layout` and `has_extras` are those of saved
    rows; `resources` are its own. `groups_in_pane` is how many groups the last panes had, on average; 0 before the
    first has closed."""

    def __init__(
        self,
        name: str,
        intake: Intake,
        states: tuple[StateSpec, ...],
        numbers: Int64s,
        resources: Resources,
        layout: Sequence[tuple[str, int]] | None,
        *,
        has_extras: bool,
    ) -> None:
        self._intake = intake
        self._groups = intake.groups
        self._held = self._groups.tally()
        self._numbers = numbers
        self._resources = resources
        self._of_totals = resources.apart()
        resources.at_end(self._of_totals.close)
        self._pane = Aggregation(f"{name}-pane", intake, states, resources)
        self._totals = PaneTotals(name, states, len(numbers), self._of_totals, layout)
        words = self._totals.row_words
        self._store = PaneStore(
            f"{name}-panes", words, len(self._totals.layout), len(numbers), resources, has_extras=has_extras
        )
        self._positions = np.zeros(len(numbers), np.int64)
        self._account = resources.account(f"{name}: panes")
        self._row_bytes = sum(map(_most_bytes, states))
        self._pane_ends: int | None = None
        self._left = 0
        self.groups_in_pane = 0

    @property
    def layout(self) -> list[tuple[str, int]]:
        return self._totals.layout

    @property
    def has_extras(self) -> bool:
        return self._store.has_extras

    @property
    def nbytes(self) -> int:
        """What only shards relieve memory of."""
        return self._pane.nbytes - self._pane.pageable_nbytes + self._totals.nbytes

    # Rows enter the open pane, panes enter the windows

    def take(self, read: ReadRows, rows: int) -> Taken:
        """Rows that have been read get slots. Windows that are looked at before a pane closes know them, too."""
        taken = self._intake.enter(read, rows)
        self._totals.fit(self._groups.capacity)
        self._pane.fit()
        return taken

    def add(self, rows: RowRun, ends: int) -> int:
        """Rows of the pane that ends then, as many as there surely is memory for; returns how many."""
        count = len(rows.slots)
        if self._row_bytes:
            count = min(count, max(_LEAST_TOGETHER, self._account.free // 2 // self._row_bytes))
        self._pane.add(rows if count == len(rows.slots) else rows.part(0, count))
        self._pane_ends = ends
        return count

    def close_pane(self, upto: int) -> None:
        """Closes the pane if it ends up to this time."""
        end = self._pane_ends
        if end is None or end > upto:
            return
        self._pane_ends = None
        groups = np.flatnonzero(self._pane.counts).astype(np.int32)
        self.groups_in_pane = (7 * self.groups_in_pane + len(groups)) // 8 if self.groups_in_pane else len(groups)
        if len(groups) == 0:
            return
        words, extras = self._totals.rows_of(self._pane.states, self._pane.counts, groups)
        first = self._store.head
        self._store.append(end, groups, words, extras)
        self._pane.reset(groups)
        self._totals.enter(self._pane.states, first, groups, words, extras)
        if self._store.nbytes > self._account.nbytes:
            self._account.resize(self._store.nbytes)

    # Windows come to boundaries

    def leave(self, due: Due, extents: Int64s) -> Slots:
        """What is too old leaves the windows; returns all groups in the order of their keys."""
        before = self._positions[due.windows]
        self._positions[due.windows] = after = self._store.after(due.boundary - extents[due.windows])
        many = np.int32(len(self._numbers))
        for rows in self._store.read(before, after):
            slots = rows.slots * many + due.windows[rows.windows].astype(np.int32)
            self._totals.leave(rows.positions, slots, rows.words, rows.extras)
            self._left += len(slots)
        self._store.release(int(self._positions.min()))
        return self._groups.order()

    def evaluate(self, due: Due, extents: Int64s, order: Slots, results: PaneResults) -> None:
        at_once = max(1, EMITTED_AT_ONCE // max(1, len(order)))
        for begin in range(0, len(due.evaluated), at_once):
            windows = due.evaluated[begin : begin + at_once]
            results.gather(self._gathered(due.boundary, windows, extents[windows], order))
            if results.rows >= EMITTED_AT_ONCE:
                results.show()

    def _gathered(self, boundary: int, windows: Int64s, extents: Int64s, order: Slots) -> Gathered:
        """All groups that have rows in these windows, in the order of the keys."""
        slots = order[None, :] * np.int32(len(self._numbers)) + windows[:, None].astype(np.int32)
        counts = self._totals.counts[slots]
        shown = counts > 0
        chosen = slots[shown]
        return Gathered(
            self._numbers[windows],
            boundary - extents,
            np.full(len(windows), boundary),
            shown.sum(axis=1),
            np.broadcast_to(order, slots.shape)[shown],
            counts[shown],
            self._totals.evaluate(chosen),
        )

    def collect_if_many(self) -> None:
        """Forgets groups that are gone."""
        if self._left >= max(_COLLECT_AFTER, len(self._totals.counts)):
            self.collect()

    def collect(self) -> None:
        """Frees groups that neither the open pane nor a window has rows of."""
        in_use = self._totals.in_use()
        self._held.rows[: len(in_use)] = in_use
        self._groups.collect(self._groups.capacity)
        self._left = 0
        self._account.resize(self._store.nbytes)

    def keep(self, kept: Int64s) -> None:
        """Only the windows in these places are left."""
        self._totals.keep(kept)
        self._positions, self._numbers = self._positions[kept], self._numbers[kept]
        self._store.release(int(self._positions.min()))
        self.collect()

    # Groups go to shards

    def write_to(self, paged: PagedPanes, pane_micros: int) -> None:
        """All of it goes to shards, and its memory is given back. The totals are made again there."""
        self._of_totals.close()
        head = self._store.head
        last = self._store.last_end
        played = last if self._pane_ends is None else self._pane_ends - pane_micros
        paged.begin(self._pane.states, played, self._times_left(head))
        for rows in self._store.read(self._positions.min(keepdims=True), np.full(1, head)):
            times = self._store.ends_of(rows.positions) - 1
            paged.add_panes(times, self._groups, rows.slots, rows.words, rows.extras)
        if self._pane_ends is not None:
            paged.add_open(self._pane, self._pane_ends - 1)
        self.close()

    def close(self) -> None:
        """Gives the memory of panes and windows back, and the store."""
        self._resources.close()

    def _times_left(self, head: int) -> list[int | None]:
        """For each window the time of the oldest pane row in it; None if there is none."""
        if self._store.last_end is None:
            return [None] * len(self._positions)
        ends = self._store.ends_of(self._positions)
        return [end - 1 if at < head else None for end, at in zip(ends.tolist(), self._positions.tolist(), strict=True)]

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "store": self._store.snapshot(),
            "pane": self._pane.snapshot(),
            "totals": self._totals.snapshot(),
            "positions": self._positions,
            "pane_ends": self._pane_ends,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._store.restore(snapshot["store"])
        self._pane.restore(snapshot["pane"])
        self._totals.restore(snapshot["totals"])
        self._positions, self._pane_ends = snapshot["positions"], snapshot["pane_ends"]
        self.collect()


def _most_bytes(state: StateSpec) -> int:
    return _ROW_BYTES.get(state.kind, _OTHER_ROW_BYTES)
