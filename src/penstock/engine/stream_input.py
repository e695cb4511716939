"""One stream of an app: what is pushed, checked, put in order and counted."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import component
from penstock.engine.arrivals import ArrivalClock
from penstock.engine.clock import Clock
from penstock.engine.ingest import Ingest
from penstock.engine.outlet import Outlet
from penstock.errors import CheckpointError, InputError
from penstock.expressions.batch import Rows
from penstock.lang.query import StreamDef
from penstock.lang.stream_options import heartbeat_of
from penstock.operators.reorder import START, Released, Reorder
from penstock.operators.resources import Resources
from penstock.rejects import Reject
from penstock.store.manager import StoreManager

LATE_KEPT = 65_536


@component("StreamInput")
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
        kept = LATE_KEPT if definition.late_into is not None else 0
        name = f"{definition.name}: late events"
        self.late = Outlet(definition.name, self.ingest.schema, stores.create_waiting(name), kept)
        self._resources.at_end(lambda: stores.drop(name))
        """Late events wait only where the stream has a LATE INTO; elsewhere they are counted."""
        self.events = 0
        self.dispatched = START
        self._heartbeat = heartbeat_of(definition)
        self._watches_silence = definition.idle_after is not None or self._heartbeat is not None
        self._heard = clock.elapsed()
        self._silent_since = START
        self._rests = False

    def take(
        self, batch: Rows, latest: int | None, watermark: int | None = None, taken: Int64s | None = None
    ) -> Released:
        """Takes a batch in; returns what is now in order, and what was late. `watermark` as in `Reorder.process`;
        `taken` are the instants at which events in ARRIVAL ORDER are."""
        self.events += batch.num_rows
        times, batch = self.ingest.times(batch, latest)
        if self._arrivals is not None:
            assert taken is not None, "events in arrival order come from the input buffers"
            kept = self.ingest.kept
            released = self.reorder.process(taken if kept is None else taken[kept], batch)
            return released._replace(watermark=self.reach(self._arrivals.reached))
        released = self.reorder.process(times, batch, watermark)
        if self._watches_silence:
            self._note_heard()
        return released

    @property
    def takes_rows_as_they_are(self) -> bool:
        """Whether a row whose time does not go back is passed on at once, and nothing else depends on it."""
        return self._arrivals is None and not self.reorder.holds and not self._watches_silence

    def pass_rows(self, rows: int, last: int) -> None:
        """Rows in order have been passed on without `take`; the last one has this time."""
        self.events += rows
        self.reorder.pass_rows(last)
        if last > self.dispatched:
            self.dispatched = last

    def _note_heard(self) -> None:
        """The stream has given a sign of life."""
        self._heard, self._silent_since, self._rests = self._clock.elapsed(), self.reorder.watermark, False

    def reach(self, watermark: int) -> int:
        """From now on events with a time below this are late."""
        self.reorder.advance(watermark)
        return self.reorder.watermark

    @property
    def is_idle(self) -> bool:
        idle_after = self.definition.idle_after
        return idle_after is not None and self._clock.elapsed() - self._heard >= idle_after

    def advance(self, watermark: int, *, is_news: bool = False) -> Released:
        """Time moves on without an event: events with times below `watermark` are late from now on. If that `is_news`,
        the stream is not silent."""
        released = self.reorder.advance(watermark)
        if is_news and self._watches_silence:
            self._note_heard()
        return released

    @property
    def beat(self) -> int | None:
        """The watermark that a silent stream has reached by its heartbeat; None if it is not silent for so long, or
        has said nothing yet. After a heartbeat of silence, time goes on with the clock from where it was."""
        if self._heartbeat is None or self._silent_since == START:
            return None
        passed = self._clock.elapsed() - self._heard - self._heartbeat
        return self._silent_since + passed if passed > 0 else None

    def rest(self) -> Released | None:
        """The stream is idle, so it has said all up to its last event: what it holds back goes on, and time moves past
        it. None if there is nothing to be said since it last rested."""
        if self._rests or self.reorder.watermark == START:
            return None
        self._rests = True
        return self.reorder.finish(past=1)

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

    def restore(self, snapshot: dict[str, Any], waiting: int = 0, came: Container[str] = ()) -> None:
        """Made with at least the columns of the snapshot; so many events of it wait in the input buffer. Columns that
        `came` with another declaration are NULL in events that wait to be put in order."""
        self.reorder.restore(snapshot["reorder"])
        missing = [c for c in self.ingest.schema.names if c not in snapshot["columns"]]
        optional = {field.name for field in self.definition.schema if field.nullable and field.name in came}
        unknown = [c for c in missing if waiting or c not in optional]
        if unknown and (self.reorder.rows_held or waiting):
            wait = "taken" if waiting else "put in order"
            raise CheckpointError(
                f"stream {self.definition.name}: the checkpoint holds events that wait to be {wait} without "
                f"{', '.join(unknown)}, which no query read then; start without the queries that read it, or with a "
                "new directory"
            )
        self.events, self.dispatched = snapshot["events"], snapshot["dispatched"]
        self._note_heard()
        self.late.restore(snapshot["late"])
        if missing:
            self.late.widen(pa.schema(self.ingest.schema))
