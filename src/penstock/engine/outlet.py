"""Where a query's results wait to be read, or go to who subscribed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

Callback = Callable[[pa.RecordBatch], None]


class Outlet:
    """`buffered`: results are kept for `take` as long as nobody subscribes."""

    def __init__(self, name: str, buffered: bool) -> None:
        self._name = name
        self._buffered = buffered
        self._waiting: list[pa.RecordBatch] = []
        self._subscribers: list[Callback] = []
        self.count = 0

    def subscribe(self, callback: Callback) -> None:
        self._subscribers.append(callback)
        waiting, self._waiting = self._waiting, []
        for batch in waiting:
            callback(batch)

    def put(self, batch: pa.RecordBatch) -> None:
        if self._subscribers:
            numbered = batch.replace_schema_metadata(
                {"penstock.query": self._name, "penstock.sequence": str(self.count)}
            )
            for callback in self._subscribers:
                callback(numbered)
        elif self._buffered:
            self._waiting.append(batch)
        self.count += batch.num_rows

    def take(self, schema: pa.Schema) -> pa.Table:
        """What waits, as one table of the given schema; the sequence in its metadata is its first row's number."""
        waiting, self._waiting = self._waiting, []
        rows = sum(b.num_rows for b in waiting)
        tables = [pa.Table.from_batches([b]).cast(schema) for b in waiting]
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        return table.replace_schema_metadata(
            {"penstock.query": self._name, "penstock.sequence": str(self.count - rows)}
        )

    def snapshot(self) -> dict[str, Any]:
        payload = b""
        if self._waiting:
            sink = pa.BufferOutputStream()
            table = pa.Table.from_batches(self._waiting)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            payload = sink.getvalue().to_pybytes()
        return {"count": self.count, "waiting": payload}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.count = snapshot["count"]
        if snapshot["waiting"]:
            with pa.ipc.open_stream(snapshot["waiting"]) as reader:
                self._waiting = list(reader)
