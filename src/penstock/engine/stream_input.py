"""One stream of an app: what is pushed, checked, put in order and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Int64s
from penstock.engine.arrivals import ArrivalClock
from penstock.engine.clock import Clock
from penstock.engine.ingest import Ingest
from penstock.engine.outlet import Outlet
from penstock.errors import CheckpointError, InputError
from penstock.expressions.batch import Rows
from penstock.lang.query import StreamDef
from penstock.operators.emitter import Reject
from penstock.operators.reorder import START, Released, Reorder
from penstock.operators.resources import Resources
from penstock.store.manager import StoreManager

LATE_KEPT = 65_536


class StreamInput:
    """`dispatched` is the watermark that the stream's readers have been told. `arrivals` gives the times of a stream in
    ARRIVAL ORDER."""

    def __init__(
        self,
        definition: StreamDef,
        columns: Sequence[str],
        stores: StoreManager,
        reject: Reject,
        clock: Clock,
        *,
        ties_by_value: bool = False,
        arrivals: ArrivalClock | None = None,
    ) -> None:
        self._arrivals = arrivals
        self.definition = definition
        self._reject = reject
        self._clock = clock
        fields = tuple(f for f in definition.schema.fields if f.name in columns)
        self.ingest = Ingest(definition, fields, reject)
        self._resources = Resources(stores, reject)
        self.reorder = Reorder(
            definition.name,
            self.ingest.schema,
            definition.lateness,
            definition.sequence,
            self._resources,
            ties_by_value=ties_by_value,
        )
        self.late = Outlet(definition.name, self.ingest.schema, LATE_KEPT if definition.late_into is not None else 0)
        """Late events wait only where the stream has a LATE INTO; elsewhere they are counted."""
        self.events = 0
        self.dispatched = START
        self._heard = clock.elapsed()

    def take(
        self, batch: Rows, latest: int | None, watermark: int | None = None, taken: Int64s | None = None
    ) -> Released:
        """Takes a batch in; returns what is now in order, and what was late. `watermark` as in `Reorder.process`;
        `taken` are the instants at which events in ARRIVAL ORDER are."""
        self.events += batch.num_rows
        if self.definition.idle_after is not None:
            self._heard = self._clock.elapsed()
        times, batch = self.ingest.times(batch, latest)
        if self._arrivals is not None:
            assert taken is not None, "events in arrival order come from the input buffers"
            kept = self.ingest.kept
            released = self.reorder.process(taken if kept is None else taken[kept], batch)
            return released._replace(watermark=self.reach(self._arrivals.reached))
        return self.reorder.process(times, batch, watermark)

    def reach(self, watermark: int) -> int:
        """Nothing comes before this time any more."""
        self.reorder.advance_to(watermark)
        self.reorder.watermark = max(self.reorder.watermark, watermark)
        return self.reorder.watermark

    @property
    def is_idle(self) -> bool:
        idle_after = self.definition.idle_after
        return idle_after is not None and self._clock.elapsed() - self._heard >= idle_after

    def pass_over(self, watermark: int) -> Released:
        """The stream is idle and time moves on without it: its own events from before are late from now on."""
        self.reorder.advance_to(watermark)
        nothing = pa.RecordBatch.from_pylist([], schema=self.ingest.schema)
        return self.reorder.process(np.empty(0, np.int64), nothing)

    def lacks(self, columns: Sequence[str]) -> list[str]:
        """The columns that are not taken in."""
        return [c for c in columns if c not in self.ingest.schema.names]

    def check_can_widen(self, columns: Sequence[str], waiting: int = 0) -> None:
        """A query that is added may read only what has been read from the start while rows wait in the buffer, or so
        many in the input buffer before it."""
        missing = self.lacks(columns)
        if missing and (self.reorder.rows_held or waiting):
            raise InputError(
                f"stream {self.definition.name}: events that wait to be {'taken' if waiting else 'put in order'} do "
                f"not have {', '.join(missing)}; declare a query that reads it when the app starts"
            )

    def widen(self, columns: Sequence[str]) -> None:
        """Takes these columns in from now on, besides those it took before."""
        missing = self.lacks(columns)
        if missing:
            keep = {*self.ingest.schema.names, *missing}
            fields = tuple(f for f in self.definition.schema.fields if f.name in keep)
            self.ingest = Ingest(self.definition, fields, self._reject)
            self.reorder.schema = self.ingest.schema
            self.late.widen(self.ingest.schema)

    def close(self) -> None:
        self._resources.close()

    def snapshot(self) -> dict[str, Any]:
        return {
            "columns": list(self.ingest.schema.names),
            "reorder": self.reorder.snapshot(),
            "events": self.events,
            "dispatched": self.dispatched,
            "late": self.late.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any], waiting: int = 0) -> None:
        """Made with at least the columns of the snapshot; so many events of it wait in the input buffer."""
        self.reorder.restore(snapshot["reorder"])
        missing = [c for c in self.ingest.schema.names if c not in snapshot["columns"]]
        if missing and (self.reorder.rows_held or waiting):
            wait = "taken" if waiting else "put in order"
            raise CheckpointError(
                f"stream {self.definition.name}: the checkpoint holds events that wait to be {wait} without "
                f"{', '.join(missing)}, which no query read then; start without the queries that read it, or with a "
                "new directory"
            )
        self.events, self.dispatched = snapshot["events"], snapshot["dispatched"]
        self.late.restore(snapshot["late"])
        if missing:
            self.late.widen(pa.schema(self.ingest.schema))
