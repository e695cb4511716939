"""Evaluations of a window whose groups are beyond memory.

    rows ─▶ log, by shard ────────────────┐
                                          ▼
    an evaluation is due: for each shard  load ─▶ rows enter and leave its states ─▶ its groups are shown ─▶ save
                                                                                          │
                              results in the order of the keys ◀── runs of all shards ◀──┘

What is in memory at a time is one shard, the rows that are staged, and a batch of each run.

Where times alone do not say which rows are in at an evaluation, in windows of rows, slides by rows and slides by the
local clock, positions in the stream take the place of times in the log: `by_position`.

No row leaves a window that begins once and for all (`[SINCE t]`). Its rows are forgotten once they have entered. They
enter without an evaluation, too, when those that wait would take more than the groups: what is on the device follows
the groups.

Invariant: answers are those of `operators.results`, to the bit, and in the same order.

`operators.shared_aggregation` goes over to it when memory is short, and never back.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.components import component
from penstock.operators.aggregation import Aggregation, Shown
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.feed import feed
from penstock.operators.paged.merged import ShownGroups
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.shard import EnteringRows, LoggedColumns, Shard
from penstock.operators.paged.shards import Shards
from penstock.operators.paged.sweeps import Sweeps, Turn, due_at
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import WindowSpec
from penstock.windows.steps import FOREVER, Steps


def by_position(window: WindowSpec) -> bool:
    """Whether a row's position says when it is in the window, and not its time alone."""
    return window.extent.counts_rows or window.counts_events or window.wall_clock_slide is not None


@component("PagedResults")
class PagedResults:
    """`own` are the columns that the states read, `shows` the queries."""

    def __init__(
        self, name: str, node: AggregateNode, own: OwnColumns, shows: list[ResultShow], resources: Resources
    ) -> None:
        self._node = node
        columns = LoggedColumns(node.key_types, node.states)
        rows_leave = node.window.extent.since is None
        self._shards = Shards(name, node.states, own, resources, columns, rows_leave=rows_leave)
        self._sweeps = Sweeps(self._shards)
        self._shown = ShownGroups(node, shows)
        self._by_position = by_position(node.window)
        self._last = -FOREVER

    @property
    def oldest(self) -> int:
        """A time that no row of the window is older than, where the log is in the order of times."""
        return self._shards.log.oldest

    def add(self, rows: EnteringRows) -> None:
        """Rows behind all others."""
        if self._by_position:
            rows = rows._replace(times=rows.positions)
        self._shards.add(rows)
        self._last = int(rows.times[-1])

    def take(self, aggregation: Aggregation) -> None:
        """The groups that are in memory, where rows never leave. Their rows are behind them."""
        self._shards.take(aggregation)

    # Evaluations

    def play(self, steps: Steps, first: int) -> None:
        """The steps of rows that have been added from a position on. Rows leave by position, too, if they come so."""
        due = due_at(steps)
        if due is not None:
            shards, count = self._shards, len(due.ends)
            runs = OrderedRuns(shards.device, shards.account, self._node.key_types, count, shards.log.shards)
            placed = due._replace(ends=first + steps.add_upto[steps.evaluates]) if self._by_position else due
            self._sweeps.sweep(placed, runs, lambda turn: self._show(turn, runs))
            feed(self._shown, map(runs.merged, range(count)), due.starts, due.ends, shards.account)
        if steps.complete and self._shards.has_many:
            # Others of the last time may come. The next evaluation is at a time that these have not reached.
            self._sweeps.enter(self._last)

    def _show(self, turn: Turn, runs: OrderedRuns) -> None:
        evaluates = np.ones(len(turn.add_upto), np.bool_)
        for shown in turn.shard.aggregation.evaluations(*turn[3:], evaluates):
            self._keep(turn.shard, shown, turn.first, runs)

    # Results

    def _keep(self, shard: Shard, shown: Shown, first: int, runs: OrderedRuns) -> None:
        """Keeps the groups that a shard shows at some evaluations, as far as queries may have results of them."""
        played = shown.played
        if len(played.slots) == 0:
            return
        rows, keep = self._shown.rows(shard.reading.groups.keys(played.slots), played, shown.upto)
        upto = shown.upto
        if keep is not None:
            upto = np.append(0, np.cumsum(keep))[upto]
            rows = rows.filter(pa.array(keep))
        begin = 0
        for number, end in zip((first + shown.steps).tolist(), upto.tolist(), strict=True):
            runs.add(number, rows.slice(begin, end - begin))
            begin = end

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return self._sweeps.saved

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._sweeps.take_saved(snapshot)
