"""The rows of partitions that wait are played, shard by shard, and what is evaluated is put in the order of the events.

    log of a shard   | rows that have been played | rows that wait |
                       those whose partitions      each is evaluated ─▶ rows of evaluations ─▶ run of the shard
                       wait enter in silence

An operator over partitions in memory plays a shard (`Player`). It gets the played rows of partitions that have waiting
ones, and then these. Nothing is kept of it.

Invariants:
1. A shard that takes more than `_SHARD` of the memory is divided, and both parts are played instead.
2. A partition's rows enter in their order, so its evaluations are those of an operator that has all partitions.
3. Evaluations come out in the order of their events, those rows that an evaluation shows in the order of the operator.

Why: docs/decisions/partitions-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import arrow_of
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Evaluations
from penstock.operators.paged.dividing import TooLarge, visit
from penstock.operators.paged.log import RowLog, times_of
from penstock.operators.paged.partition_columns import PartitionColumns, Windowed
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.resources import Resources
from penstock.store.batches import decoded, kept_bytes
from penstock.store.charged import power_of_two
from penstock.store.device import BlockDevice
from penstock.types import SqlType
from penstock.windows.steps import FOREVER

_SHARD = 8
"""What is in memory of a shard takes at most such a part of it."""

_HELD = 64
"""Rows enter a shard together up to such a part of the memory."""

_PLACES, _PLACES_SHARE = 8, 64
"""Partitions that wait are marked in so many places for each row, and in about such a part of the memory at most."""

_BESIDE = ("place", "number", "start", "end", "failed")
"""What comes before the rows of evaluations: the place of the event, and how many rows came before."""

Show = Callable[[Evaluations, Int64s], None]
"""Takes evaluations, and which rows of a chunk they are of."""


class Player(Protocol):
    """An operator over partitions in memory."""

    def hold(self, chunk: Chunk, numbers: Int64s | None) -> None:
        """Rows that have been played enter; `numbers` are those in their partitions, 0 where they follow."""

    def pieces(self, chunk: Chunk) -> Iterator[Chunk]:
        """Parts of a chunk that there is room for, one after the other."""

    def play(self, chunk: Chunk) -> None:
        """Rows enter, and what they make due is shown."""


Make = Callable[[str, Windowed, Resources, Show], Player]


class PartitionShards:
    """Nothing of the `log` is staged. Numbers of shards that cannot be divided are added to `indivisible`."""

    def __init__(
        self,
        name: str,
        columns: PartitionColumns,
        log: RowLog,
        indivisible: set[int],
        make: Make,
        resources: Resources,
        device: BlockDevice,
    ) -> None:
        self._name, self._columns, self._log, self._indivisible = name, columns, log, indivisible
        self._make = make
        self._device = device
        self._resources = resources.apart(device=device)
        self._account = self._resources.account(f"{name}: results of shards")
        self._places: Int64s = np.empty(0, np.int64)
        """Of the rows that are being played."""
        self._shown = 0

    def play(self, played_upto: int) -> Iterator[pa.RecordBatch]:
        """The rows of all evaluations of rows from a place on, in order: `evaluations_of` says what they are."""
        self._played_upto = played_upto
        order = (SqlType.BIGINT, SqlType.BIGINT)
        try:
            self._runs = OrderedRuns(self._device, self._account, order, 1, self._log.shards)
            for number in range(self._log.shards):
                if self._log.count(number, played_upto, FOREVER):
                    visit([self._log], number, self._indivisible, self._play, self._undo)
            for batch in self._runs.merged(0):
                with self._account.borrowed(kept_bytes(batch)):
                    yield batch
        finally:
            self._resources.close()

    def _undo(self) -> None:
        self._runs.undo_shard()

    def _play(self, number: int) -> None:
        self._runs.begin_shard()
        waiting = self._log.count(number, self._played_upto, FOREVER)
        if waiting == 0:
            return
        places = min(power_of_two(_PLACES * waiting), power_of_two(self._account.total // _PLACES_SHARE))
        resources = self._resources.apart(device=self._device)
        try:
            with self._account.borrowed(places):
                marked = np.zeros(places, np.bool_)
                for rows in self._log.between(number, self._played_upto, FOREVER):
                    marked[self._columns.places(rows.batch, places)] = True
                player = self._make(f"{self._name}: shard", self._columns.node, resources, self._show)
                for batch in self._held(number, marked):
                    player.hold(self._columns.chunk(batch), self._columns.numbers(batch))
                    self._check(number, resources)
            for rows in self._log.between(number, self._played_upto, FOREVER):
                begin, where = 0, times_of(rows.batch)
                for part in player.pieces(self._columns.chunk(rows.batch)):
                    self._places = where[begin : begin + part.rows]
                    player.play(part)
                    begin += part.rows
                    self._check(number, resources)
        finally:
            resources.close()

    def _check(self, number: int, resources: Resources) -> None:
        if resources.nbytes > self._account.total // _SHARD and number not in self._indivisible:
            raise TooLarge

    def _held(self, number: int, marked: Bools) -> Iterator[pa.RecordBatch]:
        """The rows of a shard that have been played and whose partitions are marked, many at a time."""
        parts, nbytes = list[pa.RecordBatch](), 0
        for rows in self._log.between(number, -FOREVER, self._played_upto):
            chosen = marked[self._columns.places(rows.batch, len(marked))]
            if chosen.any():
                parts.append(rows.batch if chosen.all() else rows.batch.filter(pa.array(chosen)))
                nbytes += parts[-1].nbytes
            if nbytes >= self._account.total // _HELD:
                yield pa.concat_batches(parts)
                parts, nbytes = [], 0
        if parts:
            yield pa.concat_batches(parts)

    def _show(self, evaluations: Evaluations, events: Int64s) -> None:
        rows, upto = arrow_of(evaluations.rows), evaluations.upto
        sizes = np.ones(len(events), np.int64) if upto is None else np.diff(upto, prepend=0)
        failed = np.zeros(rows.num_rows, np.bool_) if evaluations.failed is None else evaluations.failed
        beside = (
            np.repeat(self._places[events], sizes),
            np.arange(self._shown, self._shown + rows.num_rows),
            np.repeat(evaluations.window_start, sizes),
            np.repeat(evaluations.window_end, sizes),
            failed,
        )
        self._shown += rows.num_rows
        plain = decoded(rows)
        columns = [*map(pa.array, beside), *plain.columns]
        self._runs.add(0, pa.RecordBatch.from_arrays(columns, names=[*_BESIDE, *plain.schema.names]))


def evaluations_of(batches: Iterator[pa.RecordBatch], *, whole: bool) -> Iterator[Evaluations]:
    """The evaluations that rows are of. An evaluation that must be seen as a `whole` is not cut."""
    rest: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if rest is None else pa.concat_batches([rest, batch])
        rest = None
        if whole:
            places = rows.column(0).to_numpy()
            last = int(np.searchsorted(places, places[-1]))
            rows, rest = rows.slice(0, last), rows.slice(last)
        if rows.num_rows:
            yield _evaluations(rows)
    if rest is not None:
        yield _evaluations(rest)


def _evaluations(rows: pa.RecordBatch) -> Evaluations:
    places = rows.column(0).to_numpy()
    begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    upto = np.append(begins[1:], len(places))
    starts, ends = (rows.column(i).to_numpy()[begins] for i in (2, 3))
    failed = rows.column(4).to_numpy(zero_copy_only=False)
    shown = pa.RecordBatch.from_arrays(rows.columns[len(_BESIDE) :], names=rows.schema.names[len(_BESIDE) :])
    return Evaluations(shown, upto, starts, ends, None, failed if failed.any() else None)
