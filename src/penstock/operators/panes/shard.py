"""A shard of a family in memory: its groups, and what all windows hold of them.

It is made each time the shard is looked at, of what was saved of it, and closed when it has been saved. What was saved
may have more windows than there are now: those that no query reads any more are left out.

Driven by `panes.paged`.

Why: docs/decisions/families-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.components import component, read_as
from penstock.expressions.batch import Data
from penstock.operators.aggregation import EMITTED_AT_ONCE, EvaluatedGroups
from penstock.operators.groups import GroupTable
from penstock.operators.paged.log import LoggedRows
from penstock.operators.panes.logged import PaneColumns
from penstock.operators.panes.totals import PaneTotals
from penstock.operators.resources import Resources
from penstock.plan.nodes import StateSpec


@component("PaneShard")
class PaneShard:
    """`numbers` are those of the windows there are; pane rows have the words of this `layout`."""

    def __init__(
        self,
        name: str,
        columns: PaneColumns,
        states: tuple[StateSpec, ...],
        layout: Sequence[tuple[str, int]],
        numbers: Int64s,
        resources: Resources,
        saved: dict[str, Any] | None,
    ) -> None:
        self._columns = columns
        self._numbers = numbers
        self._resources = resources
        self._left = 0
        known = numbers if saved is None else read_as(PaneShard, saved)["numbers"]
        self._windows = len(numbers)
        try:
            self._groups = GroupTable(columns.key_types, resources.account(f"{name}: groups and strings of a shard"))
            self._totals = PaneTotals(name, states, len(known), resources, layout, pages=False)
            if saved is not None:
                self.restore(saved)
        except BaseException:
            self.close()
            raise

    def enter(self, rows: LoggedRows, units: PaneTotals) -> None:
        """Pane rows enter all windows; they count in these units."""
        slots = self._slots(rows)
        self._totals.fit(self._groups.capacity)
        words, extras = self._columns.words(rows), self._columns.extras(rows)
        self._totals.enter(units.states, rows.first, slots, words, extras)

    def leave(self, window: int, leaving: Iterable[LoggedRows]) -> None:
        """Pane rows leave the window in this place."""
        for rows in leaving:
            slots = self._slots(rows) * np.int32(self._windows) + np.int32(window)
            words, extras = self._columns.words(rows), self._columns.extras(rows)
            self._totals.leave(self._columns.positions(rows), slots, words, extras)
            self._left += len(slots)

    def _slots(self, rows: LoggedRows) -> Slots:
        return self._groups.assign(self._columns.keys(rows), rows.batch.num_rows, None)

    def shown(self, window: int) -> Iterator[tuple[list[Data], EvaluatedGroups]]:
        """The groups that have rows in the window in this place, some at a time, in the order of their keys."""
        order = self._groups.order()
        counts = self._totals.counts[order * np.int32(self._windows) + np.int32(window)]
        shown = np.flatnonzero(counts)
        for begin in range(0, len(shown), EMITTED_AT_ONCE):
            chosen = shown[begin : begin + EMITTED_AT_ONCE]
            groups = order[chosen]
            emitted = self._totals.evaluate(groups * np.int32(self._windows) + np.int32(window))
            upto = np.full(1, len(groups))
            played = EvaluatedGroups(groups, upto, counts[chosen], emitted, [None] * len(emitted))
            yield self._groups.keys(groups), played

    def collect(self) -> None:
        """Frees groups that no window has rows of, if rows have left."""
        if self._left:
            in_use = self._totals.in_use()
            self._groups.counts[: len(in_use)] = in_use
            self._groups.collect(self._groups.capacity)
            self._left = 0

    @property
    def nbytes(self) -> int:
        return self._groups.nbytes + self._totals.nbytes

    @property
    def is_empty(self) -> bool:
        return not self._totals.counts.any()

    def close(self) -> None:
        self._resources.close()

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {"numbers": self._numbers, "groups": self._groups.snapshot(), "totals": self._totals.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._groups.restore(snapshot["groups"])
        self._totals.restore(snapshot["totals"])
        kept = np.flatnonzero(np.isin(snapshot["numbers"], self._numbers))
        if len(kept) < len(snapshot["numbers"]):
            self._totals.keep(kept)
