"""Sessions per key with aggregates, more of them than memory.

    rows ─▶ log, by shard of the session's key ─┐
                                                ▼
    a sweep: for each shard  which session is each row in, and which are over ─▶ rows of those enter new states
                                                                                         │
                            results in the order of (window_end, keys) ◀── runs of all shards

Nothing is saved of a session but its rows: those of sessions that go on stay in the log, and are read again in the next
sweep. A sweep reads all of the log, so it waits until the watermark has passed the end of some session by a part of the
gap. So the results of sessions beyond memory come later than those of sessions in memory, and are the same.

Invariants:
1. A session is in memory (`held_sessions`) if it was open when rows began to go to the log, and otherwise in its rows.
   The rows of both that have come since then are in the log.
2. Sessions that end up to `_swept` have been shown. What is left of their rows is found again, and passed over.
3. The log has all rows of the sessions that go on. Rows that fail WHERE are among them: they are in a session, and in
   none of its groups.
4. Answers are those of `operators.closing`, to the bit, and in the same order: the rows of a group enter its state in
   their order, those in the log behind the others.
5. `_least_end` is not above the end of any session that is still to be shown, so the time that is handed on stays
   before the results that are to come.

Why: docs/decisions/sessions-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Slots
from penstock.components import component
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.operators.aggregation import Aggregation, RowRun
from penstock.operators.arguments import OwnColumns
from penstock.operators.groups import GroupTable
from penstock.operators.paged.held import keys_of
from penstock.operators.paged.held_sessions import HeldSessions
from penstock.operators.paged.log import LoggedRows
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.session_results import SessionResults
from penstock.operators.paged.shard import KEPT, EnteringRows, LoggedColumns
from penstock.operators.paged.shard_sessions import ShardSessions
from penstock.operators.paged.shards import Shards
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow
from penstock.operators.session_windows import SessionWindows
from penstock.plan.nodes import AggregateNode
from penstock.types import SqlType
from penstock.windows.spec import Session
from penstock.windows.steps import FOREVER

_AT_ONCE = 1 << 14
"""So many keys are brought into a table together."""

_DELAY = 2
"""A sweep waits until the watermark has passed the end of a session by such a part of the gap."""


@component("PagedSessions")
class PagedSessions:
    """`own` are the columns that the states read. The sessions that are in memory, and their groups, are those of
    `windows` and `aggregation`."""

    def __init__(
        self,
        name: str,
        node: AggregateNode,
        own: OwnColumns,
        show: ResultShow,
        resources: Resources,
        windows: SessionWindows,
        aggregation: Aggregation,
    ) -> None:
        assert isinstance(node.window.extent, Session), "other windows close elsewhere"
        self._name = name
        self._gap = node.window.extent.gap
        self._partition_by = node.partition_by
        self._windows, self._aggregation = windows, aggregation
        self._partition_types = tuple(key.type for key in node.partition_by)
        owners = [node.group_by.index(key) for key in node.partition_by]
        self._logged = owners + [i for i in range(len(node.group_by)) if i not in owners]
        """The keys as they are logged: those of the partition come first."""
        types = tuple(node.key_types[i] for i in self._logged)
        columns = LoggedColumns(types, node.states, KEPT, hashed=len(owners))
        self._shards = Shards(name, node.states, own, resources, columns)
        self._log = self._shards.log
        self._columns = LoggedColumns((SqlType.BIGINT, *node.key_types), node.states)
        """Those of rows that enter states: the rank of the session is their first key."""
        self._results = SessionResults(node, show, self._logged, self._shards.account)
        self._with_held: list[int] = []
        """Shards that were found to have held sessions that are over."""
        self._left: dict[int, int] = {}
        """Times that rows of sessions that go on are not older than, by the shard."""
        self._swept = -FOREVER
        """Sessions that end up to this time have been shown."""
        self._least_end = FOREVER
        self._last_time = -FOREVER
        """That of the last row."""

    def begin(self, *, with_last_rows: bool) -> None:
        """Rows go to the log from here on, also those that came last if it is `with_last_rows`. Open sessions are in
        memory, one of a partition at most."""
        if with_last_rows:
            self._windows.take_back()
        lasts = self._windows.open.lasts
        self._least_end = self._windows.least_end
        self._last_time = int(lasts.max()) if len(lasts) else -FOREVER

    def add(self, rows: EnteringRows) -> None:
        """Rows behind all others."""
        self._shards.add(rows._replace(keys=[rows.keys[i] for i in self._logged]))
        self._least_end = min(self._least_end, int(rows.times[0]) + self._gap)
        self._last_time = int(rows.times[-1])

    # When sessions are shown

    def is_due(self, watermark: int) -> bool:
        """Whether there is to be a sweep at this watermark."""
        return watermark >= self._least_end + self._gap // _DELAY

    def reached(self, watermark: int) -> int:
        """A time that no result which is still to come precedes; a result's time is just before the session's end."""
        return min(watermark, self._least_end - 1)

    @property
    def end(self) -> int:
        """All sessions have closed then."""
        return max(self._last_time + self._gap, self._swept)

    @property
    def is_empty(self) -> bool:
        """Whether no session is open."""
        return self._least_end == FOREVER

    def sweep(self, watermark: int, position: int) -> int:
        """Shows the sessions that end up to the watermark. Rows of those in memory have positions from one on; returns
        that behind them."""
        self._log.flush()
        shards, log = self._shards, self._log
        runs = OrderedRuns(shards.device, shards.account, self._results.key_types, 1, 2 * log.shards)
        held = HeldSessions(self._windows, self._aggregation, self._partition_types, shards.account)
        self._with_held.clear()
        self._left.clear()
        self._least_end = FOREVER
        try:
            for number in range(log.shards):
                shards.visit(number, lambda part: self._play_shard(part, watermark, held, runs), runs)
            for number in self._with_held:
                position = self._play_held(number, watermark, held, runs, position)
            held.forget_over()
        finally:
            held.close()
            shards.divide_again()
        self._swept = watermark
        for number, left in self._left.items():
            shards.left[number] = left
            log.release(number, left)
        self._results.show(runs)
        return position

    # A shard is played

    def _find(self, number: int, watermark: int, held: HeldSessions) -> ShardSessions:
        """The sessions of a shard; to be closed."""
        left = self._shards.left[number]
        sessions = ShardSessions(
            self._name,
            self._gap,
            self._partition_by,
            self._shards.apart(),
            self._shards.device,
            held,
            held.of(*self._log.prefix(number)),
        )
        try:
            for rows in self._log.between(number, left, FOREVER):
                sessions.enter(rows.batch)
                self._shards.check(number, sessions.nbytes)
            sessions.find_over(self._swept, watermark)
        except BaseException:
            sessions.close()
            raise
        return sessions

    def _rows_over(self, number: int, sessions: ShardSessions) -> Iterator[LoggedRows]:
        """The rows of sessions that are over, with the columns of rows that enter states."""
        logged = self._log.between(number, self._shards.left[number], FOREVER)
        for rows, ranks in zip(logged, sessions.ranks(), strict=True):
            batch = rows.batch
            chosen = np.flatnonzero((ranks >= 0) & batch.column(KEPT).to_numpy(zero_copy_only=False))
            if len(chosen):
                batch, count = batch.take(pa.array(chosen)), len(self._logged)
                keys = [batch.column(1 + self._logged.index(i)) for i in range(count)]
                reads = batch.columns[1 + count : -1]
                columns = [batch.column(0), pa.array(ranks[chosen].astype(np.int64)), *keys, *reads]
                names = [str(i) for i in range(len(columns))]
                yield LoggedRows(rows.first, pa.RecordBatch.from_arrays(columns, names=names))

    def _play_shard(self, number: int, watermark: int, held: HeldSessions, runs: OrderedRuns) -> None:
        """Shows the groups of a shard that are not in memory."""
        if not self._log.has_rows(number) and not len(held.of(*self._log.prefix(number))):
            return
        sessions = self._find(number, watermark, held)
        try:
            if len(sessions.ends):
                self._play_own(number, sessions, held, runs)
            if len(sessions.held_over[0]):
                self._with_held.append(number)
            self._least_end = min(self._least_end, sessions.least_end)
            if not sessions.holds:
                first = sessions.first_time
                self._left[number] = watermark if first is None else min(first, watermark)
        finally:
            sessions.close()

    def _play_own(self, number: int, sessions: ShardSessions, held: HeldSessions, runs: OrderedRuns) -> None:
        shard = self._shards.empty(self._columns)
        try:
            groups = shard.reading.groups
            slots = self._begin_held(groups, sessions, held)
            for rows in self._rows_over(number, sessions):
                run = shard.reading.enter(rows)
                if len(slots):
                    run = run._replace(slots=np.where(run.slots < len(slots), np.int32(-1), run.slots))
                shard.aggregation.add(run)
                self._shards.check(number, shard.aggregation.nbytes + sessions.nbytes)
            own = groups.sorted(np.flatnonzero(groups.counts).astype(np.int32))
            extents = sessions.starts, sessions.ends
            self._results.keep(number, shard.aggregation, own, groups.words(own), extents, runs)
        finally:
            shard.close()

    def _play_held(self, number: int, watermark: int, held: HeldSessions, runs: OrderedRuns, position: int) -> int:
        """Shows the groups in memory of a shard's sessions that are over, and forgets what they hold: the next ones may
        take it."""
        aggregation = held.aggregation
        sessions = self._find(number, watermark, held)
        try:
            partitions, ranks = sessions.held_over
            slots, which = held.groups(partitions)
            if len(slots):
                position = self._enter_held(number, sessions, held, slots, position)
                rank_of = np.zeros(aggregation.groups.capacity, np.int64)
                rank_of[slots] = ranks[which]
                slots = aggregation.groups.sorted(slots)
                slots = slots[np.argsort(rank_of[slots], kind="stable")]
                runs.begin_shard()
                extents = sessions.starts, sessions.ends
                self._results.keep(number, aggregation, slots, rank_of[slots], extents, runs)
                aggregation.reset(slots)
            held.note_over(partitions)
        finally:
            sessions.close()
        return position

    def _enter_held(self, number: int, sessions: ShardSessions, held: HeldSessions, slots: Slots, position: int) -> int:
        """The rows in the log of groups in memory, which have these slots, enter their states."""
        reading = self._shards.reading(self._columns)
        try:
            self._begin_held(reading.groups, sessions, held)
            for rows in self._rows_over(number, sessions):
                run = reading.enter(rows)
                is_held = run.slots < len(slots)
                own = np.where(is_held, slots[np.where(is_held, run.slots, 0)], np.int32(-1))
                held.aggregation.add(RowRun(position, own, run.columns))
                position += len(own)
        finally:
            reading.groups.close()
        return position

    def _begin_held(self, groups: GroupTable, sessions: ShardSessions, held: HeldSessions) -> Slots:
        """The groups in memory of sessions that are over. They come first in a new table: what has a slot there below
        their number is one of them."""
        partitions, ranks = sessions.held_over
        slots, which = held.groups(partitions)
        for begin in range(0, len(slots), _AT_ONCE):
            own, rank = slots[begin : begin + _AT_ONCE], ranks[which[begin : begin + _AT_ONCE]]
            types = groups.types
            keys = [pa.array(rank), *keys_of(held.aggregation.groups, own, types[1:])]
            views: list[Evaluated] = [ColumnView(key, kind) for key, kind in zip(keys, types, strict=True)]
            groups.assign(views, len(own), None)
        return slots

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "shards": self._shards.snapshot(),
            "swept": self._swept,
            "least_end": self._least_end,
            "last_time": self._last_time,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._shards.restore(snapshot["shards"])
        self._swept, self._least_end = snapshot["swept"], snapshot["least_end"]
        self._last_time = snapshot["last_time"]
