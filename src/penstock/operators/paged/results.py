"""Evaluations of a window whose groups are beyond memory.

    rows ─▶ log, by shard ────────────────┐
                                          ▼
    an evaluation is due: for each shard  load ─▶ rows enter and leave its states ─▶ its groups are shown ─▶ save
                                                                                          │
                              results in the order of the keys ◀── runs of all shards ◀──┘

Rows wait in the log until an evaluation is due, so a shard is read and written once for all of them: the cost of a row
does not grow with the number of groups. What is in memory at a time is one shard, the rows that are staged, and a batch
of each run.

Where times alone do not say which rows are in at an evaluation, in windows of rows, slides by rows and slides by the
local clock, positions in the stream take the place of times in the log: `by_position`.

No row leaves a window that begins once and for all (`[SINCE t]`). Its rows are forgotten once they have entered. They
enter without an evaluation, too, when those that wait would take more than the groups: what is on the device follows
the groups.

Invariants:
1. The states of a shard hold its rows that are before `_played`, a time or a position, and have not left it.
2. Answers are those of `operators.results`, to the bit, and in the same order.

`operators.shared_aggregation` goes over to it when memory is short, and never back.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import component
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation, Shown
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.feed import feed
from penstock.operators.paged.log import LoggedRows, joined, times_of
from penstock.operators.paged.merged import ShownGroups
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.shard import EnteringRows, LoggedColumns, Shard
from penstock.operators.paged.shards import Shards
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import WindowSpec
from penstock.windows.steps import FOREVER, Steps

_NO_TURN = np.zeros(1, np.int64)


class Due(NamedTuple):
    """Evaluations: rows before `leaves` have left, and rows before `upto` are in, which are times or positions, also
    where the window starts later than the stream."""

    leaves: Int64s
    upto: Int64s
    starts: Int64s
    ends: Int64s


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
        self._shards = Shards(name, node, own, resources, columns, rows_leave=node.window.extent.since is None)
        self._log = self._shards.log
        self._shown = ShownGroups(node, shows)
        self._by_position = by_position(node.window)
        self._played = self._last = -FOREVER

    @property
    def oldest(self) -> int:
        """A time that no row of the window is older than, where the log is in the order of times."""
        return self._log.oldest

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
        which = np.flatnonzero(steps.evaluates)
        if len(which):
            ends = steps.window_end[which]
            upto = first + steps.add_upto[which] if self._by_position else ends
            self._evaluate(Due(steps.leave_before[which], upto, steps.window_start[which], ends))
        if steps.complete and self._shards.has_many:
            self._enter_waiting()

    def _evaluate(self, due: Due) -> None:
        shards = self._shards
        shards.flush()
        runs = OrderedRuns(shards.device, shards.account, self._node.key_types, len(due.ends), self._log.shards)
        for number in range(self._log.shards):
            shards.visit(number, lambda part: self._play_shard(part, due, runs), runs)
        self._played = int(due.upto[-1])
        shards.release_played(self._played)
        evaluations = map(runs.merged, range(len(due.ends)))
        feed(self._shown, evaluations, due.starts, due.ends, shards.account)

    def _play_shard(self, number: int, due: Due, runs: OrderedRuns) -> None:
        left = self._shards.left[number]
        moved = self._log.count(number, self._played, int(due.upto[-1]))
        moved += self._log.count(number, left, int(due.leaves[-1]))
        is_saved = self._shards.is_saved(number)
        if not (moved or is_saved or self._log.has_rows(number)):
            return
        shard = self._shards.load(number, self._log.between(number, left, self._played))
        try:
            portions = [(0, len(due.ends))]
            if moved > EMITTED_AT_ONCE:
                portions = [(k, k + 1) for k in range(len(due.ends))]
            for begin, end in portions:
                for shown in self._turn(number, shard, due, begin, end):
                    self._keep(shard, shown, begin, runs)
            if moved or not is_saved:
                self._shards.save(number, shard)
            self._shards.left[number] = max(left, int(due.leaves[-1]))
        finally:
            shard.close()

    def _enter_waiting(self) -> None:
        """The rows that wait enter, but for the last ones: others of the same time may come. The next evaluation is at
        a time that these have not reached."""
        upto, shards = self._last, self._shards
        shards.flush()
        runs = OrderedRuns(shards.device, shards.account, self._node.key_types, 0, self._log.shards)
        for number in range(self._log.shards):
            shards.visit(number, lambda part: self._enter_shard(part, upto), runs)
        self._played = max(self._played, upto)
        shards.release_played(self._played)

    def _enter_shard(self, number: int, upto: int) -> None:
        if not self._log.count(number, self._played, upto):
            return
        shard = self._shards.load(number, ())
        try:
            self._shards.enter(number, shard, self._log.between(number, self._played, upto))
            self._shards.save(number, shard)
        finally:
            shard.close()

    def _turn(self, number: int, shard: Shard, due: Due, begin: int, end: int) -> Iterator[Shown]:
        """Plays some of the evaluations."""
        played = self._played if begin == 0 else int(due.upto[begin - 1])
        left = self._shards.left[number]
        left = left if begin == 0 else max(left, int(due.leaves[begin - 1]))
        entering = self._log.between(number, played, int(due.upto[end - 1]))
        leaving = self._log.between(number, left, int(due.leaves[end - 1]))
        evaluates = np.ones(end - begin, np.bool_)
        if end - begin == 1:
            self._shards.enter(number, shard, entering)
            gone = shard.leave(leaving)
            nothing = shard.nothing
            yield from shard.aggregation.evaluations(nothing, nothing, _NO_TURN, _NO_TURN, evaluates)
        else:
            added, removed = joined(list(entering)), joined(list(leaving))
            upto = _upto(added, due.upto[begin:end]), _upto(removed, due.leaves[begin:end])
            entered = shard.nothing if added is None else shard.reading.enter(added)
            left_rows = shard.nothing if removed is None else shard.reading.leave(removed)
            yield from shard.aggregation.evaluations(entered, left_rows, *upto, evaluates)
            shard.reading.forget(left_rows)
            gone = len(left_rows.slots)
        self._shards.check(number, shard.aggregation.nbytes)
        shard.reading.groups.collect(gone)

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
        return {"shards": self._shards.snapshot(), "played": self._played}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._shards.restore(snapshot["shards"])
        self._played = snapshot["played"]


def _upto(rows: LoggedRows | None, bounds: Int64s) -> Int64s:
    """How many of the rows are before each bound."""
    if rows is None:
        return np.zeros(len(bounds), np.int64)
    upto: Int64s = np.searchsorted(times_of(rows.batch), bounds)
    return upto
