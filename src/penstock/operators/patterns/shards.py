"""The events of a pattern that wait are played, shard by shard, and the matches put in order.

Matches end with an event that completes one, or when the time is over of an event with which one begins: these are the
ends. Their keys are marked, and only rows whose key is marked enter the shard, from the time on that its first end
looks back to.

Invariants:
1. A shard that takes more than `_SHARD` of the memory is divided, and both parts are played instead: what it had shown,
   rejected and noted is forgotten. It is not divided where all its rows have the same next bit of the hash.
2. Matches come out in the order of `Matcher`. Those of one shard that this leaves open are as the shard gave them.

Why: docs/decisions/patterns-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.errors import BudgetError
from penstock.operators.chunk import Chunk
from penstock.operators.paged.dividing import TooLarge, divide_together, to_play_instead
from penstock.operators.paged.log import RowLog, times_of
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.patterns.logged import LoggedInput, LoggedKey, elements_of, positions_of
from penstock.operators.patterns.matcher import Order
from penstock.operators.patterns.shard import PatternShard
from penstock.operators.resources import Resources
from penstock.plan.patterns.nodes import PatternNode
from penstock.store.batches import decoded
from penstock.store.charged import power_of_two
from penstock.store.device import BlockDevice
from penstock.types import SqlType
from penstock.windows.steps import FOREVER

_SHARD = 5
"""What is looked at of a shard takes at most such a part of the memory."""

_HELD = 64
"""Rows of an input enter a shard together up to such a part of the memory."""

_PLACES, _PLACES_SHARE = 8, 64
"""Keys of ends are marked in so many places for each, and in about such a part of the memory at most."""


class Played(NamedTuple):
    """Events below `event` have been played, of which the last had the time `time`, and the matches have been found
    whose time was over when all events before `reached` had come."""

    event: int
    time: int
    reached: int


class Logs(NamedTuple):
    """Where the rows of a pattern are: the events of each input, and those that have served; None if none can."""

    inputs: Sequence[RowLog]
    served: RowLog | None

    @property
    def all(self) -> list[RowLog]:
        return [*self.inputs, *([] if self.served is None else [self.served])]

    @property
    def shards(self) -> int:
        return self.inputs[0].shards


class _Ends(NamedTuple):
    """Where ends are: in the rows of a log from one time on and before another that are of one of these elements, from
    a position on. The match ends so much later than its row."""

    input: LoggedInput
    log: RowLog
    elements: int
    times: tuple[int, int]
    position: int
    delay: int


class PatternShards:
    """Nothing of the `logs` is staged. Numbers of shards that cannot be divided are added to `indivisible`."""

    def __init__(
        self,
        name: str,
        node: PatternNode,
        inputs: Sequence[LoggedInput],
        key: LoggedKey,
        logs: Logs,
        indivisible: set[int],
        resources: Resources,
        device: BlockDevice,
    ) -> None:
        self._name, self._node = name, node
        self._names = node.schema.names
        self._inputs, self._key, self._logs = inputs, key, logs
        self._indivisible = indivisible
        self._reject = resources.reject
        self._resources = resources.apart(self._note_reject, device)
        self._device = device
        self._account = self._resources.account(f"{name}: results of shards")
        self._served_account = self._resources.account(f"{name}: events of a shard that have served")
        self._keep = max(element.keep for element in node.elements)
        self._compared = sorted({element for order in node.orders if order.waits for element in order.plain})
        """By the events of these elements matches are in order whose time is over together."""
        self._shown = 0
        self._rejected: list[tuple[str, dict[str, Any]]] = []
        self._served: list[list[pa.Array]] = []

    def play(self, since: Played, upto: Played) -> Iterator[Chunk]:
        """The matches that end between the two, in order."""
        self._since, self._upto = since, upto
        order = [SqlType.BIGINT] * (3 + len(self._compared))
        try:
            self._runs = OrderedRuns(self._device, self._account, order, 1, self._logs.shards)
            for number in range(self._logs.shards):
                self._visit(number)
            for batch in self._runs.merged(0):
                times: Int64s = batch.column(0).to_numpy()
                columns = batch.columns[len(order) :]
                yield Chunk(times, pa.RecordBatch.from_arrays(columns, names=self._names))
        finally:
            self._resources.close()

    # A shard is played

    def _visit(self, number: int) -> None:
        self._rejected = []
        self._forget_served()
        self._runs.begin_shard()
        try:
            self._play(number)
        except (BudgetError, TooLarge):
            self._runs.undo_shard()
            parts = to_play_instead(number, self._indivisible, self._divide)
            if not parts:
                raise
            for part in parts:
                self._visit(part)
            return
        for reason, row in self._rejected:
            self._reject(reason, row)
        for columns in self._served:
            assert self._logs.served is not None, "only what is noted has served"
            self._logs.served.add(np.full(len(columns[0]), self._upto.time), columns)
        self._forget_served()

    def _divide(self, number: int) -> int | None:
        for log in self._logs.all:
            log.flush()
        return divide_together(self._logs.all, number, self._indivisible)

    def _play(self, number: int) -> None:
        count = sum(ends.log.count(number, *ends.times) for ends in self._ends())
        if count == 0:
            return
        places = min(power_of_two(_PLACES * count), power_of_two(self._account.total // _PLACES_SHARE))
        with self._account.borrowed(places):
            marked = np.zeros(places, np.bool_)
            first = self._mark(number, marked)
            if first == FOREVER:
                return
            resources = self._resources.apart(device=self._device)
            shard = PatternShard(
                self._name, self._node, self._inputs, self._key, self._known(number, marked), resources, self._show
            )
            try:
                self._fill(number, shard, first - self._keep, marked)
                if self._logs.served is not None:
                    self._keep_served(shard)
            finally:
                shard.close()

    def _ends(self) -> Iterator[_Ends]:
        """Of each input the events that complete matches, and those with which matches begin whose time is over."""
        since, within = self._since, self._node.within
        over = since.reached - within + 1, self._upto.reached - within + 1
        for own, log in zip(self._inputs, self._logs.inputs, strict=True):
            if own.completes:
                yield _Ends(own, log, own.completes, (since.time, FOREVER), since.event, 0)
            if own.waits:
                yield _Ends(own, log, own.waits, over, 0, within - 1)

    def _mark(self, number: int, marked: Bools) -> int:
        """Marks the keys of ends; the time of the first one, `FOREVER` if there is none."""
        first = FOREVER
        for ends in self._ends():
            for rows in ends.log.between(number, *ends.times):
                batch = rows.batch
                chosen = (elements_of(batch) & ends.elements != 0) & (positions_of(batch) >= ends.position)
                if chosen.any():
                    found = batch.filter(pa.array(chosen))
                    marked[self._key.places(found, len(marked))] = True
                    first = min(first, int(times_of(found)[0]) + ends.delay)
        return first

    def _known(self, number: int, marked: Bools) -> Iterator[pa.RecordBatch]:
        """What has served of the events with these keys."""
        if self._logs.served is not None:
            for rows in self._logs.served.between(number, -FOREVER, FOREVER):
                yield self._with_keys(rows.batch, marked)

    def _with_keys(self, batch: pa.RecordBatch, marked: Bools) -> pa.RecordBatch:
        return batch.filter(pa.array(marked[self._key.places(batch, len(marked))]))

    def _fill(self, number: int, shard: PatternShard, after: int, marked: Bools) -> None:
        """Plays the shard: its rows with these keys and times after the one that is given."""
        is_held = True
        for batches in self._in_order(number, after, marked):
            held, waiting = zip(*[_parted(batch, self._since.event) for batch in batches], strict=True)
            if any(batch is not None for batch in held):
                shard.hold(held)
            if any(batch is not None for batch in waiting):
                if is_held:
                    shard.hold_upto(self._since.reached)
                is_held = False
                shard.play(waiting)
            self._check(number, shard)
        if is_held:
            shard.hold_upto(self._since.reached)
        shard.play_upto(self._upto.reached)
        self._check(number, shard)

    def _check(self, number: int, shard: PatternShard) -> None:
        if shard.nbytes > self._account.total // _SHARD and number not in self._indivisible:
            raise TooLarge

    def _in_order(self, number: int, after: int, marked: Bools) -> Iterator[list[pa.RecordBatch | None]]:
        """Rows of all inputs side by side, some events at a time."""
        streams = [self._rows(log, number, after, marked) for log in self._logs.inputs]
        heads = [next(stream, None) for stream in streams]
        while any(head is not None for head in heads):
            upto = min(int(positions_of(head)[-1]) for head in heads if head is not None)
            batches: list[pa.RecordBatch | None] = []
            for place, (head, stream) in enumerate(zip(heads, streams, strict=True)):
                own, rest = (None, None) if head is None else _parted(head, upto + 1)
                batches.append(own)
                heads[place] = next(stream, None) if head is not None and rest is None else rest
            yield batches

    def _rows(self, log: RowLog, number: int, after: int, marked: Bools) -> Iterator[pa.RecordBatch]:
        """The rows of an input that enter the shard, many at a time."""
        parts, nbytes = list[pa.RecordBatch](), 0
        for rows in log.between(number, after + 1, FOREVER):
            chosen = self._with_keys(rows.batch, marked)
            if chosen.num_rows:
                parts.append(chosen)
                nbytes += chosen.nbytes
            if nbytes >= self._account.total // _HELD:
                yield pa.concat_batches(parts)
                parts, nbytes = [], 0
        if parts:
            yield pa.concat_batches(parts)

    # What a shard gives

    def _keep_served(self, shard: PatternShard) -> None:
        for columns in shard.served():
            self._served_account.charge(sum(column.nbytes for column in columns))
            self._served.append(columns)

    def _forget_served(self) -> None:
        self._served = []
        self._served_account.resize(0)

    def _show(self, chunk: Chunk, order: Order) -> None:
        times, completed, *positions = order()
        counted = np.arange(self._shown, self._shown + chunk.rows)
        self._shown += chunk.rows
        ordered = [times, completed, *(positions[element] for element in self._compared), counted]
        columns = [*map(pa.array, ordered), *decoded(chunk.arrow.select(self._names)).columns]
        self._runs.add(0, pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))]))

    def _note_reject(self, reason: str, row: dict[str, Any]) -> None:
        self._rejected.append((reason, row))


def _parted(batch: pa.RecordBatch | None, position: int) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
    """The rows before a position, and those from it on; None where there is none."""
    if batch is None:
        return None, None
    count = int(np.searchsorted(positions_of(batch), position))
    return batch.slice(0, count) if count else None, batch.slice(count) if count < batch.num_rows else None
