"""Where rows wait to be read, or go to subscribers: the results of a query, or the late events of a stream.

Invariants:
1. Rows are numbered from 0 in the order in which they come, through restarts. Every batch and table that goes out has
   the declared columns and types, with the name and the number of its first row in its metadata.
2. A row goes to every subscriber or, while there is none, waits once. Rows that wait are on the account, and on disk
   where there are many (`store.waiting_rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.components import component
from penstock.expressions.batch import Batch, Row, Rows, arrow_of
from penstock.store.decoding import plain_strings
from penstock.store.waiting_rows import WaitingRows

Callback = Callable[[pa.RecordBatch], None]
Watcher = Callable[[pa.RecordBatch, int], None]


@component("Outlet")
class Outlet:
    """`keep` is how many of the last rows wait at most; None is all of them."""

    def __init__(self, name: str, schema: pa.Schema, waiting: WaitingRows, keep: int | None = None) -> None:
        self.name = name
        self._query = name.encode()
        self.schema = schema
        self._nullable = _nullable(schema)
        self._keep = keep
        self._waiting = waiting
        self._subscribers: list[Callback] = []
        self._watchers: list[Watcher] = []
        self.is_heard = False
        """Whether rows go to subscribers, and neither to watchers nor to `take`."""
        self.count = 0

    def watch(self, watcher: Watcher) -> None:
        """Calls the watcher with each batch, as it is inside the engine, and the number of its first row. The
        rows still wait to be read."""
        self._watchers.append(watcher)
        self.is_heard = False

    def subscribe(self, callback: Callback) -> None:
        """From now on every batch goes to the callback, beginning with what waits."""
        self._subscribers.append(callback)
        self.is_heard = not self._watchers
        number = self.count - self._waiting.rows
        for batch in self._waiting.take():
            if not batch.schema.equals(self._nullable):
                batch = self._conformed(batch, self._nullable)
            callback(batch.replace_schema_metadata(self._metadata(number)))
            number += batch.num_rows

    def put(self, rows: Rows) -> None:
        if not self._subscribers and not self._watchers:
            if self._keep == 0:
                self.count += rows.num_rows
                return
            if isinstance(rows, Row):
                self.count += 1
                waiting = self._waiting
                waiting.put_row(rows, self._conformed_rows)
                if self._keep is not None and waiting.rows > self._keep:
                    waiting.forget(waiting.rows - self._keep)
                return
        batch = arrow_of(rows)
        for watcher in self._watchers:
            watcher(batch, self.count)
        if not batch.schema.equals(self._nullable):
            batch = self._conformed(batch, self._nullable)
        if self._subscribers:
            self.send(batch)
            return
        self.count += batch.num_rows
        if self._keep == 0:
            return
        self._waiting.put(batch)
        if self._keep is not None and self._waiting.rows > self._keep:
            self._waiting.forget(self._waiting.rows - self._keep)

    def _conformed_rows(self, rows: Batch) -> pa.RecordBatch:
        batch = rows.to_arrow()
        return batch if batch.schema.equals(self._nullable) else self._conformed(batch, self._nullable)

    def send(self, batch: pa.RecordBatch) -> None:
        """Rows with the declared columns go to the subscribers."""
        numbered = batch.replace_schema_metadata(self._metadata(self.count))
        self.count += numbered.num_rows
        for callback in self._subscribers:
            callback(numbered)

    @property
    def made_schema(self) -> pa.Schema:
        """The schema of rows that are put, as the engine makes them."""
        return self._nullable

    def take(self) -> pa.Table:
        """What waits, as one table."""
        schema = self.schema.with_metadata(self._metadata(self.count - self._waiting.rows))
        batches = [self._conformed(batch, schema) for batch in self._waiting.take()]
        return pa.Table.from_batches(batches, schema)

    def widen(self, schema: pa.Schema) -> None:
        """The schema gets more columns; rows that wait have NULL there."""
        self.schema = self._nullable = _nullable(schema)

    def _metadata(self, number: int) -> pa.KeyValueMetadata:
        return pa.KeyValueMetadata(**{"penstock.query": self._query, "penstock.sequence": b"%d" % number})

    def _conformed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Inside the engine strings may be dictionary-encoded. Rows from before `widen` lack columns."""
        if batch.num_columns < len(schema):
            names = batch.schema.names
            own = [batch.column(f.name) if f.name in names else pa.nulls(len(batch), f.type) for f in schema]
            return pa.RecordBatch.from_arrays(own, schema=schema)
        columns = [c if c.type == f.type else _conformed(c, f.type) for c, f in zip(batch.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def snapshot(self) -> dict[str, Any]:
        return {"count": self.count, "waiting": self._waiting.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.count = snapshot["count"]
        self._waiting.restore(snapshot["waiting"])


def _conformed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return plain_strings(column) if isinstance(column, pa.DictionaryArray) else column.cast(kind)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """As the engine makes its batches: no field says that it is never NULL."""
    return pa.schema([field.with_nullable(True) for field in schema])
