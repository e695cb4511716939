"""Windows per partition whose partitions are beyond memory: the rows of all partitions in a log, by shard.

    rows ─▶ log, by shard, until there are many ──▶ for each shard that has got rows: an operator in memory plays them
                                                                                             │
                                    results in the order of the events ◀── runs of all shards ◀──┘
                                                       │
                     log of a shard that has grown to twice its size: without the rows that no window has any more

Rows wait until they take a part of the memory, or until the runtime is about to return. Then a shard is read once: rows
of its partitions without waiting rows are passed over. All that is kept of a partition are its rows, and where it is
looked at every so many rows their numbers.

Invariants:
1. Rows whose place in the stream is below `_played_upto` have been played; the others wait.
2. The log has the newest rows of every partition, as many as its window holds at least, in their order; and at most
   about as many older ones.
3. Answers are those of the operator in memory, and in the same order.

Why: docs/decisions/partitions-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import component
from penstock.operators.emitter import Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.paged.dividing import TooLarge, visit
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.partition_columns import LEFT_BEHIND, PartitionColumns, Windowed
from penstock.operators.paged.partition_shards import Make, PartitionShards
from penstock.operators.partitions import numbers_of
from penstock.operators.resources import Resources
from penstock.store.charged import ChargedArray
from penstock.windows.steps import FOREVER

_BITS = 5
"""There are so many upper bits of the hash by which rows are divided at first."""

_LEAST_FREE = 8
"""Rows that are taken over leave such a part of the memory free."""

_SHARD = 8
"""What is known of the partitions of a shard, while old rows are let go, takes at most such a part of the memory."""

_ON_DEVICE = 32
"""The rows of a shard take no more than such a part of the memory on the device: few events read little."""

_LEAST_ROWS = 1024
"""Fewer old rows of a shard are not worth looking for."""


@component("PagedPartitions")
class PagedPartitions:
    """`make` makes an operator in memory that plays a shard."""

    def __init__(self, name: str, node: Windowed, make: Make, resources: Resources) -> None:
        self._name = name
        self._make = make
        self.columns = PartitionColumns(node)
        self._resources = resources.apart()
        resources.at_end(self._resources.close)
        self._account = self._resources.account(f"{name}: rows of shards")
        staged = self._resources.account(f"{name}: rows on their way to shards", is_spare=True)
        self._device = self._resources.device(f"{name}-shards")
        self._log = RowLog(
            self._device, self._account, staged, self.columns.log_schema, self.columns.hashed_types, _BITS
        )
        self._indivisible: set[int] = set()
        self._kept: dict[tuple[int, int], int] = {}
        """How many rows a shard had when its old rows were let go last, by the upper bits of its hashes."""
        self._seen = self._played_upto = 0
        self._bytes = 0
        self.waits_since: int | None = None
        """The time of the first row that has not been played; None if there is none."""

    # Rows come

    def fill(self, held: Iterable[tuple[Int64s, list[pa.Array]]]) -> None:
        """Takes over rows that have been in memory, those of a partition in their order: their times and columns."""
        for times, columns in held:
            self._log.add(np.full(len(times), LEFT_BEHIND), columns)
            if self._account.free * _LEAST_FREE < self._account.total:
                self._log.flush()
        self._log.flush()

    def add(self, times: Int64s, columns: Sequence[pa.Array]) -> None:
        """Rows behind all others."""
        if self.waits_since is None:
            self.waits_since, self._bytes = int(times[0]), self._log.bytes_added
        self._log.add(np.arange(self._seen, self._seen + len(times)), columns)
        self._seen += len(times)

    @property
    def has_many(self) -> bool:
        """Whether so many rows wait that they are to be played."""
        return self.waits_since is not None and self._log.bytes_added - self._bytes >= self._account.total

    # Partitions are evaluated

    def play(self, see: Callable[[Evaluations], None]) -> None:
        """Plays the rows that wait; `see` gets the evaluations in the order of the events."""
        if self.waits_since is None:
            return
        self._log.flush()
        for evaluations in self._shards().play(self._played_upto):
            see(evaluations)
        self.pass_over()

    def evaluate(self, boundary: int, see: Callable[[Evaluations], None]) -> None:
        """Looks at all partitions; `see` gets the evaluations in the order of the keys of partitions."""
        self._log.flush()
        for evaluations in self._shards().evaluate(boundary, self._seen):
            see(evaluations)
        self.pass_over()

    def pass_over(self) -> None:
        """Rows that wait are played from here on: all that they give has been seen."""
        self._log.flush()
        touched, self._played_upto, self.waits_since = self._played_upto, self._seen, None
        for number in range(self._log.shards):
            if self._log.count(number, touched, FOREVER):
                self._tidy(number)
        shards = map(self._log.prefix, range(self._log.shards))
        self._kept = {shard: self._kept[shard] for shard in shards if shard in self._kept}

    def _shards(self) -> PartitionShards:
        return PartitionShards(
            self._name, self.columns, self._log, self._indivisible, self._make, self._resources, self._device
        )

    # Old rows go

    def _tidy(self, number: int) -> None:
        """Old rows of a shard go if there may be as many as others."""
        kept = self._kept.get(self._log.prefix(number), 0)
        if self._log.count(number, -FOREVER, FOREVER) < 2 * kept + _LEAST_ROWS:
            return
        visit(self._log, number, self._indivisible, self._let_old_rows_go)

    def _let_old_rows_go(self, number: int) -> None:
        """The shard has only rows from here on that are among the newest of their partitions."""
        if self._log.nbytes_of(number) > self._account.total // _ON_DEVICE and number not in self._indivisible:
            raise TooLarge
        columns = self.columns
        partitions = GroupTable(columns.hashed_types, self._account)
        before, firsts = ChargedArray(self._account, np.int64), ChargedArray(self._account, np.int64)
        most = self._account.total // _SHARD

        def found(batch: pa.RecordBatch) -> Any:
            return partitions.assign(columns.partition(batch), batch.num_rows, None)

        def newest(batch: pa.RecordBatch) -> pa.RecordBatch:
            slots = found(batch)
            numbers = numbers_of(slots, before.array)
            kept = partitions.counts[slots] - numbers < columns.limits(batch)
            if columns.counts:
                batch = columns.with_numbers(batch, firsts.array[slots] + numbers - 1)
            return batch.filter(pa.array(kept))

        try:
            for rows in self._log.between(number, -FOREVER, FOREVER):
                slots = found(rows.batch)
                known = columns.numbers(rows.batch)
                if known is not None:
                    which, first = np.unique(slots, return_index=True)
                    fresh = partitions.counts[which] == 0
                    firsts.fit(partitions.capacity)[which[fresh]] = np.maximum(known[first[fresh]], 1)
                numbers_of(slots, partitions.counts)
                nbytes = partitions.nbytes + firsts.nbytes
                if nbytes > most and number not in self._indivisible:
                    raise TooLarge
            before.fit(partitions.capacity)
            self._log.replace(number, map(newest, self._log.all(number)))
        finally:
            partitions.close()
            before.clear()
            firsts.clear()
        self._kept[self._log.prefix(number)] = self._log.count(number, -FOREVER, FOREVER)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """No row waits for its evaluation; rows may have come since the last boundary."""
        return {
            "log": self._log.snapshot(),
            "indivisible": np.array(sorted(self._indivisible), np.int64),
            "kept": np.array([(*shard, rows) for shard, rows in self._kept.items()], np.int64).reshape(-1, 3),
            "seen": self._seen,
            "played_upto": self._played_upto,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._log.restore(snapshot["log"])
        self._indivisible = set(snapshot["indivisible"].tolist())
        self._kept = {(prefix, bits): rows for prefix, bits, rows in snapshot["kept"].tolist()}
        self._seen, self._played_upto = snapshot["seen"], snapshot["played_upto"]
