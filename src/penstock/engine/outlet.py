"""Where rows wait to be read, or go to who subscribed: the results of a query, or the late events of a stream.

Invariants:
1. Rows are numbered from 0 in the order in which they come, through restarts. Every batch and table that goes out has
   the declared columns and types, with the name and the number of its first row in its metadata.
2. A row goes to every subscriber or, while there is none, waits once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.operators.chunk import from_bytes, joined, to_bytes

Callback = Callable[[pa.RecordBatch], None]
Watcher = Callable[[pa.RecordBatch, int], None]


class Outlet:
    """`keep` is how many of the last rows wait at most; None is all of them."""

    def __init__(self, name: str, schema: pa.Schema, keep: int | None = None) -> None:
        self.name = name
        self.schema = schema
        self._nullable = _nullable(schema)
        self._keep = keep
        self._waiting: deque[pa.RecordBatch] = deque()
        self._rows_waiting = 0
        self._subscribers: list[Callback] = []
        self._watchers: list[Watcher] = []
        self.count = 0

    def watch(self, watcher: Watcher) -> None:
        """Has the rows that come seen, as they are inside the engine, with the number of the first; they are not read
        by that."""
        self._watchers.append(watcher)

    def subscribe(self, callback: Callback) -> None:
        """From now on every batch goes to the callback, beginning with what waits."""
        self._subscribers.append(callback)
        waiting, self._waiting = self._waiting, deque()
        number, self._rows_waiting = self.count - self._rows_waiting, 0
        for batch in waiting:
            callback(self._numbered(batch, number))
            number += batch.num_rows

    def put(self, batch: pa.RecordBatch) -> None:
        for watcher in self._watchers:
            watcher(batch, self.count)
        if self._subscribers:
            numbered = self._numbered(batch, self.count)
            self.count += batch.num_rows
            for callback in self._subscribers:
                callback(numbered)
        else:
            self.count += batch.num_rows
            self._waiting.append(batch)
            self._rows_waiting += batch.num_rows
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        if self._keep is None:
            return
        while self._rows_waiting > self._keep:
            oldest = self._waiting.popleft()
            excess = min(oldest.num_rows, self._rows_waiting - self._keep)
            self._rows_waiting -= excess
            if excess < oldest.num_rows:
                self._waiting.appendleft(oldest.slice(excess))

    def take(self) -> pa.Table:
        """What waits, as one table."""
        schema = self.schema.with_metadata(self._metadata(self.count - self._rows_waiting))
        batches = [self._conformed(batch, schema) for batch in self._waiting]
        self._waiting.clear()
        self._rows_waiting = 0
        return pa.Table.from_batches(batches, schema)

    def widen(self, schema: pa.Schema) -> None:
        """The schema gets more columns; rows that wait have NULL there."""
        self.schema = self._nullable = _nullable(schema)
        for index, batch in enumerate(self._waiting):
            names = batch.schema.names
            columns = [batch.column(f.name) if f.name in names else pa.nulls(len(batch), f.type) for f in schema]
            self._waiting[index] = pa.RecordBatch.from_arrays(columns, names=schema.names)

    def _metadata(self, number: int) -> dict[str, str]:
        return {"penstock.query": self.name, "penstock.sequence": str(number)}

    def _numbered(self, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
        if not batch.schema.equals(self._nullable):
            batch = self._conformed(batch, self._nullable)
        return batch.replace_schema_metadata(self._metadata(number))

    def _conformed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Inside the engine strings may be dictionary-encoded."""
        columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def snapshot(self) -> dict[str, Any]:
        waiting = [self._conformed(batch, self.schema) for batch in self._waiting]
        return {"count": self.count, "waiting": to_bytes(joined(waiting)) if waiting else b""}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.count = snapshot["count"]
        self._waiting = deque([from_bytes(snapshot["waiting"])] if snapshot["waiting"] else [])
        self._rows_waiting = sum(batch.num_rows for batch in self._waiting)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """As the engine makes its batches: no field says that it is never NULL."""
    return pa.schema([field.with_nullable(True) for field in schema])
