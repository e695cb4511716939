"""One stream of an app: what is pushed, checked, put in order and counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.ingest import Ingest
from penstock.errors import InputError
from penstock.expressions.batch import Rows
from penstock.lang.query import StreamDef
from penstock.operators.emitter import Reject
from penstock.operators.reorder import START, Released, Reorder
from penstock.operators.resources import Resources
from penstock.store.manager import StoreManager

LATE_KEPT = 65_536


class StreamInput:
    def __init__(self, definition: StreamDef, columns: Sequence[str], stores: StoreManager, reject: Reject) -> None:
        self.definition = definition
        self._reject = reject
        fields = tuple(f for f in definition.schema.fields if f.name in columns)
        self.ingest = Ingest(definition, fields, reject)
        self.reorder = Reorder(
            definition.name, self.ingest.schema, definition.lateness, definition.sequence, Resources(stores, reject)
        )
        self.events = 0
        self.dispatched = START
        self._late: list[pa.RecordBatch] = []
        self._heard = time.monotonic()

    def take(self, batch: Rows, latest: int | None, idle: bool = False) -> tuple[Released, pa.RecordBatch | None]:
        """Takes a batch in; returns what is now in order, and what was late."""
        self.events += batch.num_rows
        if not idle:
            self._heard = time.monotonic()
        times, batch = self.ingest.times(batch, latest)
        released = self.reorder.process(times, batch)
        return released, released.late

    def is_idle(self, now: float) -> bool:
        idle_after = self.definition.idle_after
        return idle_after is not None and now - self._heard > idle_after / 1e6

    def also_needs(self, columns: Sequence[str]) -> None:
        """A query added later may read only what has been read from the start while rows wait in the buffer."""
        missing = [c for c in columns if c not in self.ingest.schema.names]
        if not missing:
            return
        if self.reorder.rows_held:
            raise InputError(
                f"stream {self.definition.name}: events that wait to be put in order do not have "
                f"{', '.join(missing)}; declare a query that reads it when the app starts"
            )
        keep = {*self.ingest.schema.names, *missing}
        fields = tuple(f for f in self.definition.schema.fields if f.name in keep)
        self.ingest = Ingest(self.definition, fields, self._reject)
        self.reorder.schema = self.ingest.schema

    def keep_late(self, late: pa.RecordBatch) -> None:
        self._late.append(late)
        while len(self._late) > 1 and sum(b.num_rows for b in self._late) - self._late[0].num_rows >= LATE_KEPT:
            self._late.pop(0)

    def take_late(self) -> pa.Table:
        late, self._late = self._late, []
        return pa.Table.from_batches(late, schema=None if late else self.ingest.schema)

    def snapshot(self) -> dict[str, Any]:
        return {"reorder": self.reorder.snapshot(), "events": self.events, "dispatched": self.dispatched}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.reorder.restore(snapshot["reorder"])
        self.events, self.dispatched = snapshot["events"], snapshot["dispatched"]
