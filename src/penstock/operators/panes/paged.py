"""The windows of a family whose groups are beyond memory.

    rows ─▶ log of rows, by shard ──────────────┐
                                                ▼
    boundaries are due: for each shard   rows of closed panes ─▶ pane rows ─▶ log of pane rows ─┐
                                         load ─▶ pane rows enter all windows, and leave those ◀─┘
                                                 that have passed them ─▶ its groups are shown ─▶ save
                                                                                  │
                        results of each window in the order of the keys ◀── runs ◀┘

A row is read once, when its pane is closed. A pane row is in the log once for all windows: it is read when it enters
them together, and by the tail of each. So more windows cost what their results cost, as in memory.

Invariants:
1. Rows that are older than the time `left` of a shard are pane rows of it.
2. The totals of a shard hold its pane rows that are older than `_played`, in each window but for those older than the
   window's time in `_left`. If nothing of the shard is saved, they are made of its pane rows.
3. All pane rows count in the same units: those of `_units`, which the states of all panes take over.
4. Answers are those of `panes.held`, to the bit, and in the same order.

`panes.family` goes over to it when memory is short, and never back.

Why: docs/decisions/families-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.panes import Extras
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.operators.aggregation import Aggregation
from penstock.operators.arguments import OwnColumns
from penstock.operators.groups import GroupTable
from penstock.operators.paged.feed import feed
from penstock.operators.paged.held import keys_of
from penstock.operators.paged.log import LoggedRows, times_of
from penstock.operators.paged.merged import ShownGroups
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.shard import EnteringRows, LoggedColumns, Shard
from penstock.operators.paged.shards import Shards
from penstock.operators.panes.clock import Due
from penstock.operators.panes.logged import PaneColumns
from penstock.operators.panes.results import PaneResults
from penstock.operators.panes.shard import PaneShard
from penstock.operators.panes.totals import PaneTotals
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode
from penstock.plan.panes import Pane
from penstock.windows.steps import FOREVER

_AT_ONCE = 1 << 13
"""So many pane rows are made together."""


class _Look(NamedTuple):
    """An evaluation: a window, by its place, over times from `start` on and before `end`."""

    window: int
    start: int
    end: int


@component("PagedPanes")
class PagedPanes:
    """For windows of these `numbers`. The `node` has the states of all queries, `own` are the columns that these read;
    pane rows have the words of this `layout`."""

    def __init__(
        self,
        name: str,
        node: AggregateNode,
        own: OwnColumns,
        numbers: Int64s,
        pane: Pane,
        layout: Sequence[tuple[str, int]],
        resources: Resources,
    ) -> None:
        self._name = name
        self._node = node
        self._pane = pane
        self._layout = layout
        self._numbers = numbers
        self._shards = Shards(name, node.states, own, resources, LoggedColumns(node.key_types, node.states))
        self._units = PaneTotals(f"{name}-units", node.states, 1, resources, layout)
        self._columns = PaneColumns(node.key_types, self._units.row_words, len(layout))
        self._log = self._shards.add_log("panes", self._columns.schema)
        self._played = -FOREVER
        self._left = np.full(len(numbers), -FOREVER, np.int64)

    # It begins with what was in memory

    def begin(self, panes: Sequence[Any], played: int | None, oldest: Sequence[int | None]) -> None:
        """Rows older than the time `played`, if it is known, are pane rows in the units of `panes`. `oldest` has the
        time of the oldest one in each window; None where there is none."""
        self._units.take_units(panes)
        if played is not None:
            self._played = played
        self._left[:] = [self._played if time is None else time for time in oldest]

    def add_panes(self, times: Int64s, groups: GroupTable, slots: Slots, words: Words, extras: list[Extras]) -> None:
        """Pane rows behind all others, of groups with these slots."""
        keys = keys_of(groups, slots, self._node.key_types)
        self._log.add(times, self._columns.of(keys, words, extras))

    def add_open(self, pane: Aggregation, time: int) -> None:
        """What a pane in memory holds becomes pane rows with this time."""
        slots = np.flatnonzero(pane.counts).astype(np.int32)
        for begin in range(0, len(slots), _AT_ONCE):
            own = slots[begin : begin + _AT_ONCE]
            words, extras = self._units.rows_of(pane.states, pane.counts, own)
            self.add_panes(np.full(len(own), time), pane.groups, own, words, extras)

    # Rows come

    def add(self, rows: EnteringRows) -> None:
        """Rows behind all others."""
        self._shards.add(rows)

    # Evaluations

    def play(self, dues: Sequence[Due], extents: Int64s, results: PaneResults) -> None:
        """Windows come to boundaries. Those of a window rise; all rows that are older have been added."""
        looks = [
            _Look(place, due.boundary - int(extents[place]), due.boundary)
            for due in dues
            for place in due.evaluated.tolist()
        ]
        shows = [results.shows_of(number) for number in self._numbers.tolist()]
        every = [show for own in shows for show in own]
        shown = [ShownGroups(self._node, own, every) for own in shows]
        shards, rows = self._shards, self._shards.log
        rows.flush()
        self._log.flush()
        runs = OrderedRuns(shards.device, shards.account, self._node.key_types, len(looks), rows.shards)
        for number in range(rows.shards):
            shards.visit(number, lambda part: self._play_shard(part, dues, extents, shown, runs), runs)
        for due in dues:
            self._played = max(self._played, due.boundary)
            bounds = due.boundary - extents[due.windows]
            self._left[due.windows] = np.maximum(self._left[due.windows], bounds)
        for number in range(rows.shards):
            rows.release(number, shards.left[number])
            self._log.release(number, int(self._left.min()))
        for window, own in enumerate(shown):
            which = [k for k, look in enumerate(looks) if look.window == window]
            if which:
                starts, ends = (np.array([looks[k][at] for k in which], np.int64) for at in (1, 2))
                feed(own, map(runs.merged, which), starts, ends, shards.account)

    def _play_shard(
        self, number: int, dues: Sequence[Due], extents: Int64s, shown: Sequence[ShownGroups], runs: OrderedRuns
    ) -> None:
        self._close_panes(number, max(due.boundary for due in dues))
        if not (self._shards.is_saved(number) or self._log.has_rows(number)):
            return
        shard = self._load(number)
        try:
            played, left, evaluation = self._played, self._left.copy(), 0
            for due in dues:
                self._enter(number, shard, self._log.between(number, played, due.boundary))
                played = max(played, due.boundary)
                for window in due.windows.tolist():
                    bound = due.boundary - int(extents[window])
                    shard.leave(window, self._log.between(number, int(left[window]), bound))
                    left[window] = max(left[window], bound)
                for window in due.evaluated.tolist():
                    self._keep(shard, window, evaluation, shown[window], runs)
                    evaluation += 1
                shard.collect()
                self._shards.check(number, shard.nbytes)
            self._shards.saved_states.write(number, shard.nbytes, None if shard.is_empty else shard.snapshot)
        finally:
            shard.close()

    def _keep(self, shard: PaneShard, window: int, evaluation: int, shown: ShownGroups, runs: OrderedRuns) -> None:
        """Keeps the groups of a shard that a window shows, as far as queries may have results of them."""
        for keys, played in shard.shown(window):
            rows, keep = shown.rows(keys, played, played.upto)
            runs.add(evaluation, rows if keep is None else rows.filter(pa.array(keep)))

    def _load(self, number: int) -> PaneShard:
        """A shard as it was played last."""
        with self._shards.saved_states.read(number) as saved:
            shard = PaneShard(
                self._name, self._columns, self._node.states, self._layout, self._numbers, self._shards.apart(), saved
            )
        if saved is not None:
            return shard
        try:
            oldest = int(self._left.min())
            self._enter(number, shard, self._log.between(number, oldest, self._played))
            for window, left in enumerate(self._left.tolist()):
                shard.leave(window, self._log.between(number, oldest, left))
        except BaseException:
            shard.close()
            raise
        return shard

    def _enter(self, number: int, shard: PaneShard, entering: Iterator[LoggedRows]) -> None:
        for rows in entering:
            shard.enter(rows, self._units)
            self._shards.check(number, shard.nbytes)

    # Panes are closed

    def _close_panes(self, number: int, upto: int) -> None:
        """Rows of a shard that are older than `upto` become pane rows; no pane goes beyond that."""
        left, closes = self._shards.left, -FOREVER
        shard: Shard | None = None
        try:
            for rows in self._shards.log.between(number, left[number], upto):
                times = times_of(rows.batch)
                begin = 0
                while begin < len(times):
                    if times[begin] >= closes:
                        if shard is not None:
                            self._close_pane(number, shard, closes)
                        closes = self._end_of_pane(int(times[begin]))
                    if shard is None:
                        shard = self._shards.empty()
                        self._units.give_units(shard.aggregation.states)
                    end = int(np.searchsorted(times, closes))
                    shard.aggregation.add(shard.reading.enter(rows.part(begin, end)))
                    self._shards.check(number, shard.aggregation.nbytes)
                    begin = end
            if shard is not None:
                self._close_pane(number, shard, closes)
            left[number] = max(left[number], upto)
        finally:
            if shard is not None:
                shard.close()

    def _end_of_pane(self, time: int) -> int:
        return time - (time - self._pane.offset) % self._pane.micros + self._pane.micros

    def _close_pane(self, number: int, shard: Shard, closes: int) -> None:
        """All rows of a pane of the shard are in its states."""
        aggregation = shard.aggregation
        slots = np.flatnonzero(aggregation.counts).astype(np.int32)
        with self._shards.account.borrowed(2 * 8 * self._units.row_words * len(slots)):
            words, extras = self._units.rows_of(aggregation.states, aggregation.counts, slots)
            keys = keys_of(aggregation.groups, slots, self._node.key_types)
            self._log.put(number, np.full(len(slots), closes - 1), self._columns.of(keys, words, extras))
        self._units.take_units(aggregation.states)
        self._shards.left[number] = closes
        aggregation.reset(slots)
        aggregation.groups.collect(len(slots))

    # Queries go

    def keep(self, kept: Int64s) -> None:
        """Only the windows in these places are left."""
        self._numbers, self._left = self._numbers[kept], self._left[kept]

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "shards": self._shards.snapshot(),
            "panes": self._log.snapshot(),
            "units": self._units.snapshot(),
            "played": self._played,
            "left": self._left,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._shards.restore(snapshot["shards"])
        self._log.restore(snapshot["panes"])
        self._units.restore(snapshot["units"])
        self._played, self._left = snapshot["played"], snapshot["left"]
