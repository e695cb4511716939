"""Windows that are looked at with every event, whose groups are beyond memory.

    rows ─▶ log, by shard, until there are many ──▶ for each shard that has got rows:
                                                    load ─▶ rows enter, older ones leave, groups are shown ─▶ save
                                                                                                   │
                                      results in the order of the events ◀── runs of all shards ◀──┘

In the log of a window of rows, positions in the stream take the place of times, and a row has its window with it.

Rows wait until they take a part of the memory, or until the runtime is about to return: a shard is then read and
written once for all of its rows. A shard without new rows is not touched: the rows that have left its groups since then
leave its states when it is loaded next.

Invariants:
1. The states of a shard hold its rows whose position is below `_played_upto` and that have not left it.
2. Answers are those of `operators.results`, to the bit, and in the same order.

`operators.shared_aggregation` goes over to it when memory is short, and never back.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.operators.aggregation import EvaluatedGroups
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.log import LoggedRows, joined, times_of
from penstock.operators.paged.merged import MergedGroups, ShownGroups
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.shard import END, POSITION, START, EnteringRows, LoggedColumns, Shard
from penstock.operators.paged.shards import Shards
from penstock.operators.paged.sweeps import where
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode
from penstock.store.batches import kept_bytes
from penstock.types import SqlType
from penstock.windows.spec import Range, Rows
from penstock.windows.steps import FOREVER, tails_at_events

_LEAVING = 1 << 15
"""So many rows leave between the evaluations of some events at most; else the events are played in two halves."""

_NONE = np.int32(-1)


@component("PagedEvents")
class PagedEvents:
    """`own` are the columns that the states read, `shows` the queries."""

    def __init__(
        self, name: str, node: AggregateNode, own: OwnColumns, shows: list[ResultShow], resources: Resources
    ) -> None:
        assert isinstance(node.window.extent, Range | Rows), "other windows do not page"
        self._node = node
        self._extent = node.window.extent
        self._by_position = isinstance(self._extent, Rows)
        windows = (START, END) if self._by_position else ()
        columns = LoggedColumns(node.key_types, node.states, POSITION, *windows)
        self._shards = Shards(name, node.states, own, resources, columns)
        self._log = self._shards.log
        self._shown = ShownGroups(node, shows)
        self._played_upto = 0
        self._last_played = -FOREVER
        """The time, or position, of the last row that was played."""
        self._seen = 0
        self._last = -FOREVER
        self._bytes = 0
        self.waits_since: int | None = None
        """The time of the first row that has not been played; None if there is none."""

    def add(self, rows: EnteringRows) -> None:
        """Rows behind all others."""
        if self.waits_since is None:
            self.waits_since = int(rows.times[0])
            self._bytes = self._log.bytes_added
        if self._by_position:
            rows = rows._replace(times=rows.positions)
        self._shards.add(rows)
        self._seen, self._last = int(rows.positions[-1]) + 1, int(rows.times[-1])

    def pass_over(self) -> None:
        """The rows that wait are in the states, or will be when their shard is loaded."""
        self._played_upto, self._last_played = self._seen, self._last
        self.waits_since = None

    @property
    def has_many(self) -> bool:
        """Whether so many rows wait that they are to be played."""
        return self.waits_since is not None and self._log.bytes_added - self._bytes >= self._shards.account.total

    # Events are played

    def play(self, first_time: int | None) -> None:
        """Plays the rows that wait and shows their results; `first_time` is that of the stream's first row."""
        if self.waits_since is None:
            return
        self._log.flush()
        shards = self._shards
        runs = OrderedRuns(shards.device, shards.account, (SqlType.BIGINT,), 1, self._log.shards)
        for number in range(self._log.shards):
            if self._log.count(number, self._last_played, FOREVER):
                shards.visit(number, lambda part: self._play_shard(part, first_time, runs), runs)
        self.pass_over()
        for number in range(self._log.shards):
            self._log.release(number, shards.left[number])
        for batch in runs.merged(0):
            self._see(batch)

    def _play_shard(self, number: int, first_time: int | None, runs: OrderedRuns) -> None:
        entering = where(self._log.between(number, self._last_played, FOREVER), self._played_upto, FOREVER)
        rows = next(entering, None)
        if rows is None:
            return
        left = self._shards.left[number]
        held = where(self._log.between(number, left, self._last_played + 1), 0, self._played_upto)
        shard = self._shards.load(number, held)
        try:
            while rows is not None:
                left = self._play_rows(number, shard, rows, left, first_time, runs)
                rows = next(entering, None)
            self._shards.save(number, shard)
            self._shards.left[number] = left
        finally:
            shard.close()

    def _play_rows(
        self, number: int, shard: Shard, rows: LoggedRows, left: int, first_time: int | None, runs: OrderedRuns
    ) -> int:
        """Plays rows of a shard, whose rows before `left` have left it; returns before what they have then."""
        count = rows.batch.num_rows
        leaves, starts, ends = self._windows(rows.batch)
        first, last = max(left, int(leaves[0])), max(left, int(leaves[-1]))
        if count > 1 and self._log.count(number, first, last) > _LEAVING:
            for part in (rows.part(0, count // 2), rows.part(count // 2, count)):
                left = self._play_rows(number, shard, part, left, first_time, runs)
            return left
        shard.leave(self._log.between(number, left, first))
        evaluates = np.ones(count, np.bool_)
        if self._node.window.when_full and first_time is not None:
            evaluates = leaves >= 0 if self._by_position else starts >= first_time
        entered = shard.reading.enter(rows)
        removed, upto = shard.nothing, np.zeros(count, np.int64)
        leaving = joined(list(self._log.between(number, first, last)))
        if leaving is not None:
            removed = shard.reading.leave(leaving)
            upto = np.searchsorted(times_of(leaving.batch), leaves)
        events = np.where(evaluates, entered.slots, _NONE)
        _, played = shard.aggregation.play(entered, removed, np.arange(1, count + 1), upto, evaluates, events)
        if evaluates.any():
            kept = rows.batch.filter(pa.array(evaluates))
            self._keep(kept, starts[evaluates], ends[evaluates], played, runs)
        shard.reading.forget(removed)
        shard.reading.groups.collect(len(removed.slots) + count)
        self._shards.check(number, shard.aggregation.nbytes)
        return last

    def _windows(self, batch: pa.RecordBatch) -> tuple[Int64s, Int64s, Int64s]:
        """Of each event: before what rows have left, and where the window begins and ends."""
        order = times_of(batch)
        if isinstance(self._extent, Range):
            return *tails_at_events(self._extent, order), order
        return order + 1 - self._extent.count, batch.column(START).to_numpy(), batch.column(END).to_numpy()

    # Results

    def _keep(
        self, events: pa.RecordBatch, starts: Int64s, ends: Int64s, played: EvaluatedGroups, runs: OrderedRuns
    ) -> None:
        """Keeps what queries may have of the results of some events."""
        keys: list[Data] = list(events.columns[1 : 1 + len(self._node.group_by)])
        shown, keep = self._shown.rows(keys, played, None)
        columns = [events.column(POSITION), pa.array(starts), pa.array(ends), *shown.columns]
        kept = pa.RecordBatch.from_arrays(columns, names=[POSITION, START, END, *shown.schema.names])
        runs.add(0, kept if keep is None else kept.filter(pa.array(keep)))

    def _see(self, batch: pa.RecordBatch) -> None:
        """Shows results of events, in their order."""
        starts, ends = batch.column(START).to_numpy(), batch.column(END).to_numpy()
        with self._shards.account.borrowed(kept_bytes(batch)):
            shown = self._shown.joined([batch.select(batch.schema.names[3:])])
            groups = MergedGroups(shown, self._shown.answers, np.empty(0, np.int64))
            for show in self._shown.shows:
                show.see(self._shown.keys(shown), groups, None, starts, ends)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """No row waits."""
        return {
            "shards": self._shards.snapshot(),
            "played_upto": self._played_upto,
            "last_played": self._last_played,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._shards.restore(snapshot["shards"])
        self._played_upto, self._last_played = snapshot["played_upto"], snapshot["last_played"]
