"""Partitions in shards are evaluated, shard by shard, and what comes of it is put in the order of all.

    log of a shard   | rows that have been played | rows that wait |
    at events          those whose partitions       each may make its partition due ─▶ evaluations ─▶ run of the shard
                       wait enter in silence
    at a boundary      all enter in silence ─▶ all partitions are looked at ─────────▶ evaluations ─▶ run of the shard

An operator over partitions in memory plays a shard (`Player`). Nothing is kept of it.

Invariants:
1. A shard that takes more than `_SHARD` of the memory is divided, and both parts are played instead. Shards that take
   little are played by one operator, one after the other: no partition is in two of them.
2. A partition's rows enter in their order, so its evaluations are those of an operator that has all partitions.
3. Evaluations come out in the order of their events, or of the keys of their partitions; the rows of each as the
   operator gives them.

Why: docs/decisions/partitions-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.errors import BudgetError
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

_FIRST = 4 * _SHARD
"""What has played shards before and takes at most such a part of the memory plays the next one, too."""

_HELD = 64
"""Rows enter a shard together up to such a part of the memory."""

_PLACES, _PLACES_SHARE = 8, 64
"""Partitions that wait are marked in so many places for each row, and in about such a part of the memory at most."""

_BESIDE = ("number", "evaluation", "start", "end", "failed")
"""What comes before the rows of evaluations, behind what they are ordered by: how many rows came before, and the number
of the evaluation."""

Show = Callable[[Evaluations, Int64s | None], None]
"""Takes evaluations, and which rows of a chunk they are of; None at a boundary."""


class Player(Protocol):
    """An operator over partitions in memory."""

    def hold(self, chunk: Chunk, numbers: Int64s | None) -> None:
        """Rows that have been played enter; `numbers` are those in their partitions, 0 where they follow."""

    def pieces(self, chunk: Chunk) -> Iterator[Chunk]:
        """Parts of a chunk that there is room for, one after the other."""

    def play(self, chunk: Chunk) -> None:
        """Rows enter, and what they make due is shown."""

    def evaluate(self, boundary: int) -> None:
        """What is due at a boundary is shown."""

    def keys(self, partitions: Int64s) -> list[pa.Array]:
        """Those of partitions, by the numbers that evaluations give."""


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
        self._is_whole = columns.node.emission.needs_whole_evaluations
        self._make = make
        self._device = device
        self._resources = resources.apart(device=device)
        self._account = self._resources.account(f"{name}: results of shards")
        self._places: Int64s = np.empty(0, np.int64)
        """Of the rows that are being played."""
        self._shown = self._evaluated = 0
        self._playing: tuple[Player, Resources] | None = None
        """What has played the last shard, and may play the next one."""

    def play(self, played_upto: int) -> Iterator[Evaluations]:
        """The evaluations of rows from a place on, in their order."""
        self._played_upto = played_upto
        return self._results((SqlType.BIGINT,), self._play_shard)

    def evaluate(self, boundary: int, played_upto: int) -> Iterator[Evaluations]:
        """Those at a boundary, in the order of the partitions, of which no row is at a later place."""
        self._played_upto = played_upto
        return self._results(self._columns.hashed_types, lambda number: self._evaluate_shard(number, boundary))

    def _results(self, order: tuple[SqlType, ...], play: Callable[[int], None]) -> Iterator[Evaluations]:
        try:
            self._runs = OrderedRuns(self._device, self._account, (*order, SqlType.BIGINT), 1, self._log.shards)
            for number in range(self._log.shards):
                visit(self._log, number, self._indivisible, lambda part: self._visit(part, play), self._undo)
            self._end_playing()
            yield from self._evaluations(len(order))
        finally:
            self._end_playing()
            self._resources.close()

    def _undo(self) -> None:
        self._runs.undo_shard()

    def _visit(self, number: int, play: Callable[[int], None]) -> None:
        self._runs.begin_shard()
        if self._playing is not None:
            try:
                if self._playing[1].nbytes <= self._account.total // _FIRST:
                    play(number)
                    return
            except (BudgetError, TooLarge):
                self._runs.undo_shard()
            self._end_playing()
        try:
            play(number)
        except BaseException:
            self._end_playing()
            raise

    def _end_playing(self) -> None:
        if self._playing is not None:
            self._playing[1].close()
            self._playing = None

    def _player(self) -> Player:
        if self._playing is None:
            resources = self._resources.apart(device=self._device)
            try:
                player = self._make(f"{self._name}: shard", self._columns.node, resources, self._show)
            except BaseException:
                resources.close()
                raise
            self._playing = player, resources
        return self._playing[0]

    def _play_shard(self, number: int) -> None:
        waiting = self._log.count(number, self._played_upto, FOREVER)
        if waiting == 0:
            return
        player = self._player()
        places = min(power_of_two(_PLACES * waiting), power_of_two(self._account.total // _PLACES_SHARE))
        with self._account.borrowed(places):
            marked = np.zeros(places, np.bool_)
            for rows in self._log.between(number, self._played_upto, FOREVER):
                marked[self._columns.places(rows.batch, places)] = True
            self._hold(number, player, marked)
        for rows in self._log.between(number, self._played_upto, FOREVER):
            begin, where = 0, times_of(rows.batch)
            for part in player.pieces(self._columns.chunk(rows.batch)):
                self._places = where[begin : begin + part.rows]
                player.play(part)
                begin += part.rows
                self._check(number)

    def _evaluate_shard(self, number: int, boundary: int) -> None:
        """It is not played with others: each shows all of its partitions."""
        self._end_playing()
        if self._log.has_rows(number):
            player = self._player()
            self._hold(number, player, None)
            player.evaluate(boundary)

    def _hold(self, number: int, player: Player, marked: Bools | None) -> None:
        for batch in self._held(number, marked):
            player.hold(self._columns.chunk(batch), self._columns.numbers(batch))
            self._check(number)

    def _check(self, number: int) -> None:
        assert self._playing is not None, "a shard is played"
        if self._playing[1].nbytes > self._account.total // _SHARD and number not in self._indivisible:
            raise TooLarge

    def _held(self, number: int, marked: Bools | None) -> Iterator[pa.RecordBatch]:
        """The rows of a shard that have been played and whose partitions are marked, or all, many at a time."""
        parts, nbytes = list[pa.RecordBatch](), 0
        for rows in self._log.between(number, -FOREVER, self._played_upto):
            batch = rows.batch
            if marked is not None:
                chosen = marked[self._columns.places(batch, len(marked))]
                batch = batch if chosen.all() else batch.filter(pa.array(chosen))
            if batch.num_rows:
                parts.append(batch)
                nbytes += batch.nbytes
            if nbytes >= self._account.total // _HELD:
                yield pa.concat_batches(parts)
                parts, nbytes = [], 0
        if parts:
            yield pa.concat_batches(parts)

    # What a shard gives

    def _show(self, evaluations: Evaluations, events: Int64s | None) -> None:
        rows, upto, count = arrow_of(evaluations.rows), evaluations.upto, len(evaluations.window_end)
        if rows.num_rows == 0:
            return
        sizes = np.ones(count, np.int64) if upto is None else np.diff(upto, prepend=0)
        failed = np.zeros(rows.num_rows, np.bool_) if evaluations.failed is None else evaluations.failed
        beside = (
            np.arange(self._shown, self._shown + rows.num_rows),
            np.repeat(np.arange(self._evaluated, self._evaluated + count), sizes),
            np.repeat(evaluations.window_start, sizes),
            np.repeat(evaluations.window_end, sizes),
            failed,
        )
        self._shown += rows.num_rows
        self._evaluated += count
        if events is not None:
            order = [pa.array(np.repeat(self._places[events], sizes))]
        else:
            assert evaluations.partitions is not None, "partitions are looked at"
            order = self._player().keys(np.repeat(evaluations.partitions, sizes))
        plain = decoded(rows)
        columns = [*order, *map(pa.array, beside), *plain.columns]
        names = [*(f"order {i}" for i in range(len(order))), *_BESIDE, *plain.schema.names]
        self._runs.add(0, pa.RecordBatch.from_arrays(columns, names=names))

    def _evaluations(self, order: int) -> Iterator[Evaluations]:
        """What all shards have shown, which has so many columns that it is ordered by. An evaluation that must be seen
        as a whole is not cut."""
        rest: pa.RecordBatch | None = None
        for batch in self._runs.merged(0):
            with self._account.borrowed(kept_bytes(batch)):
                rows = batch if rest is None else pa.concat_batches([rest, batch])
                rest = None
                if self._is_whole:
                    numbers = rows.column(order + 1).to_numpy()
                    last = int(np.flatnonzero(numbers != numbers[-1])[-1]) + 1 if numbers[0] != numbers[-1] else 0
                    rows, rest = rows.slice(0, last), rows.slice(last)
                if rows.num_rows:
                    yield _as_evaluations(rows, order)
        if rest is not None:
            yield _as_evaluations(rest, order)


def _as_evaluations(rows: pa.RecordBatch, order: int) -> Evaluations:
    numbers = rows.column(order + 1).to_numpy()
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    starts, ends = (rows.column(order + i).to_numpy()[begins] for i in (2, 3))
    failed = rows.column(order + 4).to_numpy(zero_copy_only=False)
    first = order + len(_BESIDE)
    shown = pa.RecordBatch.from_arrays(rows.columns[first:], names=rows.schema.names[first:])
    upto = np.append(begins[1:], len(numbers))
    return Evaluations(shown, upto, starts, ends, None, failed if failed.any() else None)
