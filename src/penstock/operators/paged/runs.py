"""What the shards show at evaluations, put in the order of the keys.

    shard 0    evaluation 0: a d g | evaluation 1: a d    ┐
    shard 1    evaluation 0: b c   | evaluation 1: c h    ├─▶ evaluation 0: a b c d e g | evaluation 1: a c d h
    shard 2    evaluation 0: e     | evaluation 1:        ┘

Each shard gives its groups of an evaluation in the order of their keys: a run. Runs are merged about a batch of each at
a time, so an evaluation may have more groups than memory. Batches in memory go to the device when they take too much.
More runs than can be merged at once become fewer and longer ones first.

Invariants:
1. Batches are on the account, in memory and while they are merged; those on the device take nothing.
2. The rows of an evaluation come out once, in the order of their keys, whatever the batches are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.operators.groups import GroupTable
from penstock.store.batches import kept_bytes
from penstock.store.blobs import Blob, write_blob
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.types import SqlType

_HELD = 16
"""So large a part of the memory may batches of runs take."""

_LEAST_ROWS, _MOST_ROWS = 64, 8192
"""Of a batch."""

_HEADS = 4
"""So large a part of the memory may the first rows of runs take that are merged."""

_LEAST_MERGED = 4
"""So many runs are merged together at least."""

_ROW_BYTES = 96
"""What a row of a run takes about, for the number of rows of a batch."""

_Run = deque["pa.RecordBatch | Blob"]


class OrderedRuns:
    """Of `evaluations`, and about so many shards. The first columns of a batch are the keys, of these `types`. It is
    one of so many `parts` that have the memory together."""

    def __init__(
        self,
        device: BlockDevice,
        account: Account,
        types: Sequence[SqlType],
        evaluations: int,
        shards: int,
        parts: int = 1,
    ) -> None:
        self._device = device
        self._account = account
        self._types = tuple(types)
        self._runs: list[list[_Run]] = [[] for _ in range(evaluations)]
        self._schema: pa.Schema | None = None
        self._before_shard = [0] * evaluations
        self._held = 0
        self._largest = 1
        """Of the batches, in bytes."""
        self._most_held = account.total // (_HELD * parts)
        rows = self._most_held // (_ROW_BYTES * shards)
        self.batch_rows = min(max(rows, _LEAST_ROWS), _MOST_ROWS)

    def begin_shard(self) -> None:
        """What is added from here on is of one shard."""
        self._before_shard = [len(runs) for runs in self._runs]

    def undo_shard(self) -> None:
        """Forgets what was added of the shard."""
        for runs, count in zip(self._runs, self._before_shard, strict=True):
            while len(runs) > count:
                run = runs.pop()
                while run:
                    self._next(run)

    def add(self, evaluation: int, batch: pa.RecordBatch) -> None:
        """More of the run of a shard."""
        if batch.num_rows == 0:
            return
        self._schema = batch.schema
        parts = [batch.slice(start, self.batch_rows) for start in range(0, batch.num_rows, self.batch_rows)]
        sizes = [kept_bytes(part) for part in parts]
        self._largest, nbytes = max(self._largest, *sizes), sum(sizes)
        if self._held + nbytes > self._most_held:
            self._page_out()
        self._account.charge(nbytes)
        if len(self._runs[evaluation]) == self._before_shard[evaluation]:
            self._runs[evaluation].append(deque())
        self._runs[evaluation][-1].extend(parts)
        self._held += nbytes
        if nbytes > self._most_held:
            self._page_out()

    def _page_out(self) -> None:
        for run in (run for runs in self._runs for run in runs):
            for i, batch in enumerate(run):
                if isinstance(batch, pa.RecordBatch):
                    run[i] = write_blob(self._device, batch.serialize())
        self._account.release(self._held)
        self._held = 0

    def merged(self, evaluation: int) -> Iterator[pa.RecordBatch]:
        """The rows of an evaluation in the order of their keys. Each evaluation is asked for once."""
        runs, self._runs[evaluation] = self._runs[evaluation], []
        # Heads are at most half as long again as a batch, and are there twice.
        most = max(_LEAST_MERGED, self._account.total // _HEADS // (3 * self._largest))
        while len(runs) > most:
            runs = [self._one_run(runs[begin : begin + most]) for begin in range(0, len(runs), most)]
        yield from self._in_order(runs, [self._next(run) for run in runs])

    def _one_run(self, runs: list[_Run]) -> _Run:
        """Merges runs into one, on the device."""
        merged: _Run = deque()
        for rows in self._in_order(runs, [self._next(run) for run in runs]):
            for start in range(0, rows.num_rows, self.batch_rows):
                merged.append(write_blob(self._device, rows.slice(start, self.batch_rows).serialize()))
        return merged

    def _next(self, run: _Run) -> pa.RecordBatch:
        batch = run.popleft()
        if isinstance(batch, Blob):
            data = batch.read(self._device)
            batch.free(self._device)
            return pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
        nbytes = kept_bytes(batch)
        self._account.release(nbytes)
        self._held -= nbytes
        return batch

    def _in_order(self, runs: list[_Run], heads: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merges the runs; `heads` has the first rows of each. Rows up to the least of the last keys come out: what
        follows in a run is behind its last key. Heads are filled up before they are short, so that about half of what
        is put in order comes out."""
        while heads:
            whole = _joined(heads)
            with self._account.borrowed(2 * kept_bytes(whole)):
                order, ranks = self._order(whole)
                ends = np.cumsum([head.num_rows for head in heads])
                lasts = ranks[ends - 1]
                bounds = [int(last) for run, last in zip(runs, lasts.tolist(), strict=True) if run]
                out = order if not bounds else order[: min(bounds) + 1]
                yield whole.take(pa.array(out))
                begins = np.append(0, ends[:-1])
                taken = [int((ranks[b:e] < len(out)).sum()) for b, e in zip(begins, ends, strict=True)]
            rest = [(run, head.slice(count)) for run, head, count in zip(runs, heads, taken, strict=True)]
            runs, heads = [], []
            for run, head in rest:
                if run and 2 * head.num_rows < self.batch_rows:
                    head = _joined([head, self._next(run)])
                if head.num_rows:
                    runs.append(run)
                    heads.append(head)

    def _order(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """The rows in the order of their keys, which all differ, and the place of each row in it."""
        keys = rows.columns[: len(self._types)]
        if all(kind is SqlType.BIGINT for kind in self._types) and not any(key.null_count for key in keys):
            order: Int64s = np.lexsort([key.to_numpy() for key in reversed(keys)])
        else:
            order = self._order_of_groups(rows)
        ranks = np.empty(rows.num_rows, np.int64)
        ranks[order] = np.arange(rows.num_rows)
        return order, ranks

    def _order_of_groups(self, rows: pa.RecordBatch) -> Int64s:
        groups = GroupTable(self._types)
        views: list[Evaluated] = [ColumnView(rows.column(i), kind) for i, kind in enumerate(self._types)]
        slots = groups.assign(views, rows.num_rows, None)
        row_of: Int64s = np.empty(groups.capacity, np.int64)
        row_of[slots] = np.arange(rows.num_rows)
        return row_of[groups.order()]


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]
