"""The events of a join that wait are played, shard by shard, and their results put in order.

Of a side those rows are looked up that are in its window at the first event or later and whose key a row that enters
another side may have: the keys of these are marked, and a row whose place is not marked is found by none of them.

Invariants:
1. A shard that takes more than `_SHARD` of the memory is divided, and both parts are played instead: what it had shown
   and rejected is forgotten. It is not divided where all its rows have the same hash, so that they have one key;
   but it is looked at again when it takes more than there is.
2. Results come out in the order of their events, and those of one event as its shard gave them.

Why: docs/decisions/joins-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.errors import BudgetError
from penstock.operators.chunk import NO_EVENTS, Chunk
from penstock.operators.joins.logged import LoggedSide, events_of
from penstock.operators.joins.piece import FIRST_PIECE, View
from penstock.operators.joins.shard import JoinShard
from penstock.operators.paged.dividing import TooLarge, divide_together, to_play_instead
from penstock.operators.paged.log import RowLog, times_of
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.resources import Resources
from penstock.store.batches import decoded
from penstock.store.charged import power_of_two
from penstock.store.device import BlockDevice
from penstock.types import SqlType
from penstock.windows.steps import FOREVER

_SHARD = 5
"""What is looked up of a shard takes at most such a part of the memory."""

_HELD = 64
"""Rows of a window enter a shard together up to such a part of the memory."""

_PLACES, _PLACES_SHARE = 8, 64
"""Keys of events are marked in so many places for each, and in about such a part of the memory at most."""

_ORDER = (SqlType.BIGINT, SqlType.BIGINT)
"""The event of a result, and how many results came before it."""

RejectOf = Callable[[View, str, dict[str, Any]], None]
"""Takes a view, and what it rejects."""


class Since(NamedTuple):
    """Events below `event` have been played, of which the last had the time `time`. `lengths` is how long the rows of
    each side are in some window."""

    event: int
    time: int
    lengths: Sequence[int]


class JoinShards:
    """Nothing of the `logs` is staged. Numbers of shards that cannot be divided are added to `indivisible`."""

    def __init__(
        self,
        name: str,
        sides: Sequence[LoggedSide],
        logs: Sequence[RowLog],
        indivisible: set[int],
        resources: Resources,
        device: BlockDevice,
    ) -> None:
        self._name = name
        self._sides = sides
        self._logs = logs
        self._indivisible = indivisible
        self._resources = resources.apart(device=device)
        self._device = device
        self._account = self._resources.account(f"{name}: results of shards")
        self._views: Sequence[View] = ()
        self._runs: list[OrderedRuns] = []
        self._shown: list[int] = []
        self._rejected: list[tuple[int, str, dict[str, Any]]] = []
        self._size = FIRST_PIECE
        """Of the next piece of events."""

    def play(self, views: Sequence[View], since: Since, reject: RejectOf) -> Iterator[tuple[View, Iterator[Chunk]]]:
        """The results of each view, in order."""
        self._views, self._since, self._reject = views, since, reject
        self._shown = [0] * len(views)
        try:
            self._runs = [
                OrderedRuns(self._device, self._account, _ORDER, 1, self._logs[0].shards, len(views)) for _ in views
            ]
            for number in range(self._logs[0].shards):
                if any(log.count(number, since.time, FOREVER) for log in self._logs):
                    self._visit(number)
            for view, runs in zip(views, self._runs, strict=True):
                yield view, (_chunk(view, batch) for batch in runs.merged(0))
        finally:
            self._resources.close()

    # A shard is played

    def _visit(self, number: int) -> None:
        self._rejected = []
        for runs in self._runs:
            runs.begin_shard()
        try:
            self._play(number)
        except (BudgetError, TooLarge):
            for runs in self._runs:
                runs.undo_shard()
            parts = to_play_instead(number, self._indivisible, self._divide)
            if not parts:
                raise
            for part in parts:
                self._visit(part)
            return
        for view, reason, row in self._rejected:
            self._reject(self._views[view], reason, row)

    def _divide(self, number: int) -> int | None:
        return divide_together(self._logs, number, self._indivisible)

    def _play(self, number: int) -> None:
        waiting = sum(log.count(number, self._since.time, FOREVER) for log in self._logs)
        if waiting == 0:
            return
        places = min(
            power_of_two(_PLACES * waiting), power_of_two(self._account.total // (_PLACES_SHARE * len(self._sides)))
        )
        count = len(self._sides)
        with self._account.borrowed(count * places):
            marked, first = np.zeros((count, places), np.bool_), FOREVER
            for place, side in enumerate(self._sides):
                for batch in self._entering(number, place):
                    own = side.places(batch, places)
                    for other in range(count):
                        if other != place:
                            marked[other, own] = True
                    first = min(first, int(times_of(batch)[0]))
            if first == FOREVER:
                return
            resources = self._resources.apart(device=self._device)
            nodes = [replace(view.node, narrowings=()) for view in self._views]  # there is a key that cannot fail
            shard = JoinShard(self._name, nodes, self._sides, resources, self._show, self._note_reject)
            try:
                for place in range(count):
                    for rows in self._held(number, place, first, marked[place]):
                        shard.hold(place, rows)
                        self._check(number, shard)
                for chunks, events in self._events(number):
                    self._size = shard.play(chunks, events, self._size)
                    self._check(number, shard)
            finally:
                shard.close()

    def _check(self, number: int, shard: JoinShard) -> None:
        if shard.nbytes > self._account.total // _SHARD and number not in self._indivisible:
            raise TooLarge

    def _held(self, number: int, place: int, first: int, marked: Bools) -> Iterator[Chunk]:
        """The rows of a side that have been played, are in some window at the time `first` or later, and have a key
        that is marked."""
        least = first - self._since.lengths[place] + 1
        side, parts, nbytes = self._sides[place], list[pa.RecordBatch](), 0
        for rows in self._logs[place].between(number, least, self._since.time + 1):
            batch = rows.batch
            chosen = marked[side.places(batch, len(marked))]
            chosen[np.searchsorted(events_of(batch), self._since.event) :] = False
            if chosen.any():
                parts.append(batch.filter(pa.array(chosen)))
                nbytes += parts[-1].nbytes
            if nbytes >= self._account.total // _HELD:
                yield side.chunk(pa.concat_batches(parts))
                parts, nbytes = [], 0
        if parts:
            yield side.chunk(pa.concat_batches(parts))

    def _entering(self, number: int, place: int) -> Iterator[pa.RecordBatch]:
        """The rows of a side that wait."""
        for rows in self._logs[place].between(number, self._since.time, FOREVER):
            begin = int(np.searchsorted(events_of(rows.batch), self._since.event))
            if begin < rows.batch.num_rows:
                yield rows.batch.slice(begin)

    def _events(self, number: int) -> Iterator[tuple[list[Chunk], list[Int64s]]]:
        """The rows of the events that wait and the numbers of these, side by side, some events at a time."""
        streams = [self._entering(number, place) for place in range(len(self._sides))]
        heads = [next(stream, None) for stream in streams]
        while any(head is not None for head in heads):
            upto = min(int(events_of(head)[-1]) for head in heads if head is not None)
            chunks, events = [], []
            for place, (side, stream) in enumerate(zip(self._sides, streams, strict=True)):
                head = heads[place]
                if head is None:
                    chunks.append(NO_EVENTS)
                    events.append(NO_EVENTS.times)
                    continue
                own = events_of(head)
                count = int(np.searchsorted(own, upto, "right"))
                chunks.append(side.chunk(head.slice(0, count)))
                events.append(own[:count])
                heads[place] = head.slice(count) if count < len(own) else next(stream, None)
            yield chunks, events

    # What a shard gives

    def _show(self, view: int, events: Int64s, chunk: Chunk) -> None:
        before = self._shown[view]
        self._shown[view] += chunk.rows
        counted = np.arange(before, before + chunk.rows)
        columns = [pa.array(events), pa.array(counted), *decoded(chunk.arrow).columns]
        self._runs[view].add(0, pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))]))

    def _note_reject(self, view: int, reason: str, row: dict[str, Any]) -> None:
        self._rejected.append((view, reason, row))


def _chunk(view: View, batch: pa.RecordBatch) -> Chunk:
    """Results as they go out: a result's time is its window_end - 1 µs."""
    columns = batch.columns[len(_ORDER) :]
    ends: Int64s = columns[1].view(pa.int64()).to_numpy()
    return Chunk(ends - 1, pa.RecordBatch.from_arrays(columns, names=view.node.schema.arrow.names))
