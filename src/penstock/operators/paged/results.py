"""Evaluations of a window whose groups are beyond memory.

    rows ─▶ log, by shard ────────────────┐
                                          ▼
    an evaluation is due: for each shard  load ─▶ rows enter and leave its states ─▶ its groups are shown ─▶ save
                                                                                          │
                              results in the order of the keys ◀── runs of all shards ◀──┘

Rows wait in the log until an evaluation is due, so a shard is read and written once for all of them: the cost of a row
does not grow with the number of groups. What is in memory at a time is one shard, the rows that are staged, and a batch
of each run.

Invariants:
1. The states of a shard hold its rows that are older than `_played` and not older than `_left`. A shard without saved
   states gets them from its log.
2. A shard is divided when it takes more than `_SHARD` of the memory. Its states are then made anew from its rows.
3. Answers are those of `operators.results`, to the bit, and in the same order.

`operators.shared_aggregation` goes over to it when memory is short, and never back.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.errors import BudgetError
from penstock.expressions.batch import Data
from penstock.operators.aggregation import EMITTED_AT_ONCE, EvaluatedGroups, RowRun, Shown
from penstock.operators.arguments import OwnColumns
from penstock.operators.interner import Interner
from penstock.operators.paged.log import LoggedRows, RowLog
from penstock.operators.paged.merged import MergedGroups, shown_rows, shown_schema
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.paged.shard import LoggedColumns, Shard
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode, Answer
from penstock.store.batches import kept_bytes
from penstock.store.blobs import Blob, free_blob, read_blob, write_blob
from penstock.store.state import decode, encode
from penstock.windows.steps import FOREVER, Steps

_BITS = 5
"""There are so many upper bits of the hash by which rows are divided at first."""

_SHARD = 10
"""A shard takes at most such a part of the memory."""

_NO_TURN = np.zeros(1, np.int64)


class Due(NamedTuple):
    """Evaluations: rows that are older than `leaves` have left, and rows that are older than the end of the window are
    in, also where it starts later than the stream."""

    leaves: Int64s
    starts: Int64s
    ends: Int64s


class _TooLarge(Exception):
    """A shard takes more memory than it should."""


@component("PagedResults")
class PagedResults:
    """`own` are the columns that the states read, `shows` the queries."""

    def __init__(
        self, name: str, node: AggregateNode, own: OwnColumns, shows: list[ResultShow], resources: Resources
    ) -> None:
        self._name = name
        self._node = node
        self._own = own
        self._shows = shows
        self._resources = resources.apart()
        resources.at_end(self._resources.close)
        self._columns = LoggedColumns(node)
        self._account = self._resources.account(f"{name}: rows and results of shards")
        staged = self._resources.account(f"{name}: rows on their way to shards", is_spare=True)
        self._device = self._resources.device(f"{name}-shards")
        self._log = RowLog(self._device, self._account, staged, self._columns.schema, node.key_types, _BITS)
        self._saved: list[Blob | None] = [None] * self._log.shards
        self._indivisible: set[int] = set()
        """Shards whose rows all have the same next bit of the hash: most likely one group has most of them."""
        self._played = -FOREVER
        self._left = -FOREVER

    @property
    def oldest(self) -> int:
        """A time that no row of the window is older than."""
        return self._log.oldest

    # Rows come

    def add(
        self,
        times: Int64s,
        keys: Sequence[Data],
        columns: Sequence[Argument],
        interners: Sequence[Interner | None],
        keep: Bools | None = None,
    ) -> None:
        """Rows behind all others; those that `keep` leaves out are in no group."""
        logged = self._columns.of(keys, columns, interners, len(times))
        if keep is not None and not keep.all():
            chosen = pa.array(keep)
            times, logged = times[keep], [column.filter(chosen) for column in logged]
        self._log.add(times, logged)

    # Evaluations

    def play(self, steps: Steps) -> None:
        """The steps of rows that have been added."""
        which = np.flatnonzero(steps.evaluates)
        if len(which) == 0:
            return
        due = Due(steps.leave_before[which], steps.window_start[which], steps.window_end[which])
        self._log.flush()
        runs = OrderedRuns(self._device, self._account, self._node.key_types, len(which), self._log.shards)
        for number in range(self._log.shards):
            self._look_at(number, due, runs)
        self._played, self._left = int(due.ends[-1]), max(self._left, int(due.leaves[-1]))
        for number in range(self._log.shards):
            self._log.release(number, self._left)
        self._show(due, runs)

    def _look_at(self, number: int, due: Due, runs: OrderedRuns) -> None:
        """Plays the evaluations on a shard. If it is too large for the memory, it is divided, and both parts are."""
        runs.begin_shard()
        try:
            self._play_shard(number, due, runs)
            return
        except (BudgetError, _TooLarge):
            runs.undo_shard()
            if number in self._indivisible:
                raise
            other = self._divide(number)
        for part in (number,) if other is None else (number, other):
            self._look_at(part, due, runs)

    def _divide(self, number: int) -> int | None:
        """The number of the shard that gets a part of the rows; None if it got none, and for then on no part."""
        other = self._log.divide(number)
        blob, self._saved[number] = self._saved[number], None
        if blob is not None:
            free_blob(self._device, blob.addresses.tolist())
        if other is None:
            self._indivisible.add(number)
            return None
        self._saved.append(None)
        for part, whole in ((number, other), (other, number)):
            if not self._log.has_rows(part):
                self._indivisible.add(whole)
        return other

    def _play_shard(self, number: int, due: Due, runs: OrderedRuns) -> None:
        moved = self._log.count(number, self._played, int(due.ends[-1]))
        moved += self._log.count(number, self._left, int(due.leaves[-1]))
        is_saved = self._saved[number] is not None
        if not (moved or is_saved or self._log.has_rows(number)):
            return
        shard = self._load(number)
        try:
            portions = [(0, len(due.ends))]
            if moved > EMITTED_AT_ONCE:
                portions = [(k, k + 1) for k in range(len(due.ends))]
            for begin, end in portions:
                for numbers, upto, played in self._turn(number, shard, due, begin, end):
                    self._keep(shard, begin + numbers, upto, played, runs)
            if moved or not is_saved:
                self._save(number, shard)
        finally:
            shard.close()

    def _turn(self, number: int, shard: Shard, due: Due, begin: int, end: int) -> Iterator[Shown]:
        """Plays some of the evaluations."""
        reading, aggregation = shard.reading, shard.aggregation
        played = self._played if begin == 0 else int(due.ends[begin - 1])
        left = self._left if begin == 0 else max(self._left, int(due.leaves[begin - 1]))
        entering = self._log.between(number, played, int(due.ends[end - 1]))
        leaving = self._log.between(number, left, int(due.leaves[end - 1]))
        nothing = RowRun(0, np.empty(0, np.int32), reading.no_columns())
        evaluates = np.ones(end - begin, np.bool_)
        if end - begin == 1:
            self._enter(number, shard, entering)
            gone = self._leave(shard, leaving, nothing)
            yield from aggregation.evaluations(nothing, nothing, _NO_TURN, _NO_TURN, evaluates)
        else:
            added, removed = _joined(list(entering)), _joined(list(leaving))
            upto = _upto(added, due.ends[begin:end]), _upto(removed, due.leaves[begin:end])
            entered = nothing if added is None else reading.enter(added)
            left_rows = nothing if removed is None else reading.leave(removed)
            yield from aggregation.evaluations(entered, left_rows, *upto, evaluates)
            reading.forget(left_rows)
            gone = len(left_rows.slots)
        self._check(number, shard)
        reading.groups.collect(gone)

    def _enter(self, number: int, shard: Shard, entering: Iterator[LoggedRows]) -> None:
        """Rows enter, and nothing is looked at."""
        for rows in entering:
            shard.aggregation.add(shard.reading.enter(rows))
            self._check(number, shard)

    def _leave(self, shard: Shard, leaving: Iterator[LoggedRows], nothing: RowRun) -> int:
        """Rows leave, and nothing is looked at; returns how many."""
        gone = 0
        for rows in leaving:
            run = shard.reading.leave(rows)
            count = np.full(1, len(run.slots), np.int64)
            shard.aggregation.play(nothing, run, _NO_TURN, count, np.zeros(1, np.bool_))
            shard.reading.forget(run)
            gone += len(run.slots)
        return gone

    def _check(self, number: int, shard: Shard) -> None:
        if shard.aggregation.nbytes > self._account.total // _SHARD and number not in self._indivisible:
            raise _TooLarge

    # Shards in memory and on the device

    def _load(self, number: int) -> Shard:
        shard = Shard.make(self._name, self._columns, self._own, self._node.states, self._resources)
        try:
            blob = self._saved[number]
            if blob is not None:
                with self._account.borrowed(blob.nbytes):
                    shard.aggregation.restore(decode(read_blob(self._device, blob)))
            else:
                self._enter(number, shard, self._log.between(number, self._left, self._played))
        except BaseException:
            shard.close()
            raise
        return shard

    def _save(self, number: int, shard: Shard) -> None:
        before, blob = self._saved[number], None
        if not shard.is_empty:
            with self._account.borrowed(shard.aggregation.nbytes):
                blob = write_blob(self._device, encode(shard.aggregation.snapshot()))
        self._saved[number] = blob
        if before is not None:
            free_blob(self._device, before.addresses.tolist())

    # Results

    def _answers(self) -> list[Answer]:
        """What the queries ask for, each once."""
        return list(dict.fromkeys(answer for show in self._shows for answer in show.answers))

    def _keep(self, shard: Shard, numbers: Int64s, upto: Int64s, played: EvaluatedGroups, runs: OrderedRuns) -> None:
        """Keeps the groups that a shard shows at some evaluations, as far as queries may have results of them."""
        if len(played.slots) == 0:
            return
        keys = shard.reading.groups.keys(played.slots)
        rows = shown_rows(self._node, self._answers(), keys, played)
        keep = self._may_show(keys, played)
        if keep is not None:
            upto = np.append(0, np.cumsum(keep))[upto]
            rows = rows.filter(pa.array(keep))
        begin = 0
        for number, end in zip(numbers.tolist(), upto.tolist(), strict=True):
            runs.add(number, rows.slice(begin, end - begin))
            begin = end

    def _may_show(self, keys: list[Data], played: EvaluatedGroups) -> Bools | None:
        """The groups that some query may have results of; None for all."""
        found: Bools = np.zeros(len(played.slots), np.bool_)
        for show in self._shows:
            some = show.may_show(keys, played)
            if some is None:
                return None
            found |= some
        return found

    def _show(self, due: Due, runs: OrderedRuns) -> None:
        """Evaluations with few rows are shown together; one with many in parts, unless a query needs all of it."""
        is_whole = any(show.needs_whole_evaluations for show in self._shows)
        waiting: list[pa.RecordBatch] = []
        shown: list[int] = []
        upto: list[int] = []
        rows = 0
        for number in range(len(due.ends)):
            shown.append(number)
            upto.append(rows)
            for batch in runs.merged(number):
                waiting.append(batch)
                rows += batch.num_rows
                upto[-1] = rows
                if rows >= EMITTED_AT_ONCE and not is_whole:
                    self._see(waiting, shown, upto, due)
                    waiting, shown, upto, rows = [], [number], [0], 0
            if rows >= EMITTED_AT_ONCE:
                self._see(waiting, shown, upto, due)
                waiting, shown, upto, rows = [], [], [], 0
        if shown:
            self._see(waiting, shown, upto, due)

    def _see(self, batches: list[pa.RecordBatch], numbers: list[int], upto: list[int], due: Due) -> None:
        """Shows rows of these evaluations to the queries."""
        schema = shown_schema(self._node, self._answers())
        whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
        batch = whole[0] if whole else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
        with self._account.borrowed(kept_bytes(batch)):
            keys = batch.columns[: len(self._node.group_by)]
            groups = MergedGroups(batch, self._answers(), np.array(upto, np.int64))
            for show in self._shows:
                show.see(keys, groups, groups.upto, due.starts[numbers], due.ends[numbers])

    # Durability

    def snapshot(self) -> dict[str, Any]:
        log = self._log.snapshot()
        saved = [(0, 0) if blob is None else (len(blob.addresses), blob.nbytes) for blob in self._saved]
        addresses = [blob.addresses for blob in self._saved if blob is not None]
        return {
            "log": log,
            "saved": np.array(saved, np.int64),
            "addresses": np.concatenate([np.empty(0, np.int64), *addresses]),
            "indivisible": np.array(sorted(self._indivisible), np.int64),
            "played": self._played,
            "left": self._left,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._log.restore(snapshot["log"])
        self._saved, end = [], 0
        for blocks, nbytes in snapshot["saved"].tolist():
            addresses = snapshot["addresses"][end : end + blocks].copy()
            self._saved.append(Blob(addresses, nbytes) if blocks else None)
            end += blocks
        self._indivisible = set(snapshot["indivisible"].tolist())
        self._played, self._left = snapshot["played"], snapshot["left"]


def _joined(rows: list[LoggedRows]) -> LoggedRows | None:
    """Rows that follow each other, together."""
    if len(rows) < 2:
        return rows[0] if rows else None
    return LoggedRows(rows[0].first, pa.concat_batches([part.batch for part in rows]))


def _upto(rows: LoggedRows | None, bounds: Int64s) -> Int64s:
    """How many of the rows are older than each bound."""
    if rows is None:
        return np.zeros(len(bounds), np.int64)
    upto: Int64s = np.searchsorted(rows.batch.column(0).to_numpy(), bounds)
    return upto
