"""Windows that close as a whole, whose groups are beyond memory.

    rows ─▶ log, by shard ─────────────────┐
                                           ▼
    a window closes: for each shard        its rows enter new states ─▶ its groups are shown
                     for each shard        its rows of groups in memory enter their states ─▶ these are shown
                                                                                               │
                                   results in the order of the keys ◀── runs of all shards ◀──┘

A row is written and read once, and once more if groups of its window are in memory. Nothing leaves a window, and no
state outlives it: what is saved of a shard are its rows alone.

Invariants:
1. Rows of a window come to groups in memory first. From the first one that is logged on, all of them are.
2. Answers are those of `operators.closing`, to the bit, and in the same order: the rows of a group enter its state in
   their order, those in the log behind the others.
3. Groups in memory do not grow while rows are logged. What their rows take comes shard by shard, when the window
   closes.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Slots
from penstock.components import component
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation, RowRun
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.feed import feed
from penstock.operators.paged.held import HeldGroups
from penstock.operators.paged.merged import ShownGroups
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.shard import EnteringRows, LoggedColumns
from penstock.operators.paged.shards import Shards
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode
from penstock.windows.steps import FOREVER


@component("PagedWindows")
class PagedWindows:
    """`own` are the columns that the states read."""

    def __init__(self, name: str, node: AggregateNode, own: OwnColumns, show: ResultShow, resources: Resources) -> None:
        self._node = node
        columns = LoggedColumns(node.key_types, node.states)
        self._shards = Shards(name, node.states, own, resources, columns)
        self._log = self._shards.log
        self._show = show
        self._shown = ShownGroups(node, [show])
        self.played_bytes = 0
        """What the groups of the window took that closed last, but for those in memory."""

    @property
    def oldest(self) -> int:
        """A time that no row in the log is older than; `FOREVER` if there is none."""
        return self._log.oldest

    @property
    def is_empty(self) -> bool:
        return self.oldest == FOREVER

    def add(self, rows: EnteringRows) -> None:
        """Rows behind all others."""
        self._shards.add(rows)

    def release(self, before_time: int) -> None:
        """The windows of older rows have closed."""
        for number in range(self._log.shards):
            self._log.release(number, before_time)

    # A window closes

    def play(
        self, start: int, end: int, aggregation: Aggregation, slots: Slots, position: int
    ) -> tuple[OrderedRuns, int]:
        """What the groups of a window show. Those of the `aggregation` that have these slots are among them, and hold
        nothing then. Their rows in the log have positions from one on; returns that behind them, too."""
        self._log.flush()
        shards, log = self._shards, self._log
        runs = OrderedRuns(shards.device, shards.account, self._node.key_types, 1, 2 * log.shards)
        self.played_bytes = 0
        held = HeldGroups(aggregation.groups, slots, self._node.key_types, shards.account)
        try:
            for number in range(log.shards):
                if log.count(number, start, end):
                    shards.visit(number, lambda part: self._play_shard(part, start, end, held, runs), runs)
            for number in range(log.shards if len(held) else 0):
                position = self._play_held(number, start, end, aggregation, held, runs, position)
        finally:
            held.close()
            shards.divide_again()
        return runs, position

    def _play_shard(self, number: int, start: int, end: int, held: HeldGroups, runs: OrderedRuns) -> None:
        """Shows the groups of a shard that are not in memory."""
        shard = self._shards.load(number, ())
        try:
            slots = held.of(*self._log.prefix(number))
            held.begin(shard.reading.groups, slots)
            for rows in self._log.between(number, start, end):
                run = shard.reading.enter(rows)
                if len(slots):
                    run = run._replace(slots=np.where(run.slots < len(slots), np.int32(-1), run.slots))
                shard.aggregation.add(run)
                self._shards.check(number, shard.aggregation.nbytes)
            groups = shard.reading.groups
            self._keep(shard.aggregation, groups.sorted(np.flatnonzero(groups.counts).astype(np.int32)), 0, runs)
            self.played_bytes += shard.aggregation.nbytes
        finally:
            shard.close()

    def _play_held(
        self,
        number: int,
        start: int,
        end: int,
        aggregation: Aggregation,
        held: HeldGroups,
        runs: OrderedRuns,
        position: int,
    ) -> int:
        """Shows the groups in memory that belong to a shard, and forgets what they hold: the next ones may take it."""
        slots = held.of(*self._log.prefix(number))
        if len(slots) == 0:
            return position
        if self._log.count(number, start, end):
            reading = self._shards.reading()
            try:
                held.begin(reading.groups, slots)
                for rows in self._log.between(number, start, end):
                    run = reading.enter(rows)
                    is_held = run.slots < len(slots)
                    own = np.where(is_held, slots[np.where(is_held, run.slots, 0)], np.int32(-1))
                    aggregation.add(RowRun(position, own, run.columns))
                    position += len(own)
            finally:
                reading.groups.close()
        runs.begin_shard()
        self._keep(aggregation, aggregation.groups.sorted(slots), 1, runs)
        aggregation.reset(slots)
        return position

    # Results

    def _keep(self, aggregation: Aggregation, slots: Slots, first_key: int, runs: OrderedRuns) -> None:
        """Keeps what the query may have of groups, which are in order; the keys begin with a certain one."""
        for begin in range(0, len(slots), EMITTED_AT_ONCE):
            own = slots[begin : begin + EMITTED_AT_ONCE]
            upto = np.full(1, len(own), np.int64)
            played = aggregation.evaluate(own, upto)
            rows, keep = self._shown.rows(aggregation.groups.keys(own)[first_key:], played, upto)
            runs.add(0, rows if keep is None else rows.filter(pa.array(keep)))

    def show(self, runs: OrderedRuns, start: int, end: int) -> None:
        """Hands on what was shown of a window."""
        extent = np.full(1, start, np.int64), np.full(1, end, np.int64)
        feed(self._shown, [runs.merged(0)], *extent, self._shards.account)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {"shards": self._shards.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._shards.restore(snapshot["shards"])
