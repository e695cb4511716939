"""What a bucket runs: the queries of its share over the events that come to it, in stores of its own.

Invariants:
1. Stores are part of every snapshot and are restored before the operators that read them.
2. Watermarks are those that the clocks of the whole streams give, never the bucket's own.
3. A query whose plan is as it was goes on from the snapshot; one that is new or changed begins afresh, and what is
   gone is forgotten.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.aggregates.user import UserAggregate
from penstock.components import component, read_as
from penstock.engine.clock import SystemClock
from penstock.engine.firings import Firings
from penstock.engine.flow import Flow
from penstock.engine.running import users_of
from penstock.engine.stream_input import StreamInput
from penstock.errors import BudgetError, CheckpointError, StorageError
from penstock.lang.render import render_window
from penstock.plan.nodes import Node, children, streams
from penstock.plan.placement import Spread
from penstock.plan.tables.lookups import tables_of
from penstock.spark.arrival import MARK, Arrivals, sequences_of
from penstock.spark.calls import CallRows
from penstock.spark.packing import REJECTED, decode, reject_row
from penstock.spark.segment_device import DamagedSegment
from penstock.spark.shares import Share, shown
from penstock.spark.stores import ScratchStores, SegmentStores
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager
from penstock.store.waiting_rows import WaitingRows

REJECTS = "rejects"
"""The name under which rows come out that could not be computed."""

Output = tuple[str, pa.RecordBatch]
"""Rows under the name of a query, of a LATE INTO or `REJECTS`."""


@dataclass(frozen=True)
class BucketMaker:
    """Makes the apps of buckets in workers. Travels to them, so it holds no open files.

    `memory` is for all buckets together. `sinks` are names that queries may insert into besides derived streams. `id`
    is its own: what a worker made by another recipe need not fit, even where the state does.
    """

    shares: tuple[Share, ...]
    sinks: tuple[str, ...]
    aggregates: tuple[UserAggregate, ...]
    memory: int
    segments: str | None
    retain: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def share_of(self, label: str) -> Share:
        return next(share for share in self.shares if label in share.labels)

    def create(self, label: str, query: str, batch: int) -> BucketApp:
        """`query` is the id of the streaming query, whose blocks are its own; it is empty for static data. `batch` is
        the number of its micro-batch."""
        budget = Budget(self.memory // self._buckets, self._buckets)
        place = self.place_of(label, query)
        stores: StoreManager
        if not query:
            stores = ScratchStores(budget)
        elif place is None:
            stores = StoreManager(budget, None)
        else:
            stores = SegmentStores(budget, place, batch, retain=self.retain)
        return self._app(self.share_of(label), stores, label)

    def place_of(self, label: str, query: str) -> str | None:
        """The directory of a bucket beside the checkpoint; static data has none."""
        return f"{self.segments}/{query}/{label}" if query and self.segments is not None else None

    def check_memory(self) -> None:
        """Refuses a budget in which not even an empty bucket has room. Tables are not loaded for that."""
        try:
            for share in self.shares:
                self._needed(share, self.memory // self._buckets)
        except BudgetError:
            least = max(self._needed(share, 1 << 60) for share in self.shares)
            raise BudgetError(
                f"{self.memory:,} bytes of memory are too few for {self._buckets} buckets: each needs at least "
                f"{least:,} to begin with, {least * self._buckets:,} in all; give more memory or take fewer buckets"
            ) from None

    @property
    def _buckets(self) -> int:
        return sum(len(share.labels) for share in self.shares)

    def _needed(self, share: Share, memory: int) -> int:
        """The bytes of `memory` that an empty bucket takes."""
        stores = StoreManager(Budget(memory), None)
        app = self._app(share, stores)
        try:
            app.start(None, with_tables=False)
            return stores.budget.peak
        finally:
            app.close()

    def _app(self, share: Share, stores: StoreManager, label: str = "") -> BucketApp:
        users = {aggregate.name.upper(): aggregate for aggregate in self.aggregates}
        return BucketApp(share, stores, self.sinks, users, label)


@component("BucketApp")
class BucketApp:
    def __init__(
        self,
        share: Share,
        stores: StoreManager,
        sinks: Iterable[str],
        users: Mapping[str, UserAggregate],
        label: str = "",
    ) -> None:
        self._share = share
        self._stores = stores
        self._sinks = tuple(sinks)
        self._users = users
        self._clock = SystemClock()
        self._rejected: list[dict[str, str]] = []
        self._outputs: dict[str, WaitingRows] = {}
        self._firings = Firings(self._reject)
        self._calls = CallRows(label, self._put)
        self._streams = {
            part.stream.name: StreamInput(
                part.stream,
                part.stream.schema.names,
                stores,
                self._reject,
                self._clock,
                ties_by_value=part.ties_by_value,
            )
            for part in share.parts
        }
        self._reported = {part.stream.name for part in share.parts if part.reports}
        for part in share.parts:
            self._streams[part.stream.name].late.subscribe(partial(self._put_late, part.stream.late_into))
        self.late = 0
        self.rejected = 0
        in_parts = share.placement.spread is Spread.PARTIALS
        self._flow = Flow(stores, self._reject, users, self._clock, self._sinks, in_parts=in_parts)

    def start(self, snapshot: dict[str, Any] | None, *, with_tables: bool = True) -> None:
        """Begins afresh, or goes on from a snapshot; tables are loaded unless that is left out."""
        if snapshot is not None:
            snapshot = read_as(BucketApp, snapshot)
            self._flow.expect(snapshot["flow"])
        tables = {name: table for node in self._share.nodes for name, table in tables_of(node).items()}
        self._flow.declare(
            [part.stream for part in self._share.parts],
            self._share.queries,
            [definition for definition, _ in tables.values()],
            [write for _, writes in tables.values() for write in writes],
        )
        if with_tables:
            self._flow.load_tables()
        self._flow.start(list(zip(self._share.queries, self._share.nodes, strict=True)))
        seen = shown(self._share.queries, self._share.nodes, self._sinks)
        for name, running in self._flow.running.items():
            running.outlet.subscribe(partial(self._put, name) if name in seen else _pass_over)
            if running.query.rule is not None:
                self._firings.attach(running.query.rule, running.outlet, lambda function: self._calls)
        if snapshot is None:
            return
        with self._naming_the_affected():
            self._stores.restore(snapshot["stores"])
            for name, stream in self._streams.items():
                _check_types(name, snapshot["types"][name], _types(stream))
                came = _types(stream).keys() - snapshot["types"][name].keys()
                stream.restore(snapshot["streams"][name], came=came)
            self._flow.restore()
        rules = {r.query.rule.name: r.outlet for r in self._flow.running.values() if r.query.rule is not None}
        self._firings.restore(snapshot.get("fired", {}), rules)

    def begin(self, batch: int) -> None:
        """A micro-batch begins, so the state of the one before is committed."""
        self._stores.commit()
        self._flow.committed(self._flow.store_names)
        self._flow.tables.refresh_due()
        if isinstance(self._stores, SegmentStores):
            with self._naming_the_affected():
                self._stores.begin(batch)

    def input_schema(self, stream: str) -> pa.Schema:
        return self._streams[stream].ingest.schema

    def no_events(self, stream: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.input_schema(stream))

    def lateness(self, stream: str) -> int:
        return self._streams[stream].definition.lateness

    def unpack(
        self, stream: str, packed: bytes, place: int | None, arrivals: Arrivals | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The events of a pack and those of them that are late, as far as the order tells in which they came."""
        source = self._streams[stream]
        schema = source.ingest.schema
        if place is None or arrivals is None:
            return decode(packed, schema), None
        marked = decode(packed, schema.append(pa.field(MARK, pa.int8())))
        events = marked.drop_columns([MARK])
        times, _ = source.ingest.times(events, None)
        sequences = sequences_of(events, source.definition.sequence)
        late = arrivals.late(place, times, sequences, marked.column(MARK).to_numpy())
        if not late.any():
            return events, None
        return events.filter(pa.array(~late)), events.filter(pa.array(late))

    def push(self, stream: str, batch: pa.RecordBatch, watermark: int, late: pa.RecordBatch | None = None) -> None:
        """Events in any order, and the time up to which no more will come; `late` are those that are known to be."""
        source = self._streams[stream]
        with self._naming_the_affected():
            released = source.take(batch, None, watermark)
            if late is not None:
                source.events += late.num_rows
                self._set_aside(stream, late)
            if released.late is not None:
                self._set_aside(stream, released.late)
            for chunk, reached in released.parts():
                self._flow.dispatch(stream, [chunk], reached)

    def _set_aside(self, stream: str, late: pa.RecordBatch) -> None:
        """Late events are counted and told by one of the shares that read the stream."""
        if stream in self._reported:
            self.late += late.num_rows
            self._streams[stream].late.put(late)

    def settle(self) -> None:
        """The micro-batch has no more events."""
        with self._naming_the_affected():
            self._flow.settle()

    def finish(self, last_times: Mapping[str, int]) -> None:
        """The streams have ended at these times: everything up to the first boundary after the last event."""
        for stream, last in last_times.items():
            self.push(stream, self.no_events(stream), last)
        whole = self._share.placement.spread is Spread.ONE_PLACE
        with self._naming_the_affected():
            self._flow.finish({} if whole else last_times)

    @contextmanager
    def _naming_the_affected(self) -> Iterator[None]:
        """Says of a damaged segment whose windows it belongs to."""
        try:
            yield
        except StorageError as error:
            damaged = error if isinstance(error, DamagedSegment) else error.__cause__
            if not isinstance(damaged, DamagedSegment):
                raise
            affected = users_of(damaged.store, self._flow.running) or list(self._flow.running)
            hit = ", ".join(f"query {name} ({_windows_of(self._flow.running[name].node)})" for name in affected)
            raise StorageError(
                f"{hit}: {error}. Results from here on would be wrong. Bring the file back; or run without these "
                "queries, the others go on from the checkpoint; or begin again with a new checkpoint directory"
            ) from None

    @property
    def bytes_read(self) -> int:
        """Bytes of segment files read since the app was made."""
        return self._stores.bytes_read if isinstance(self._stores, SegmentStores) else 0

    def take_outputs(self) -> Iterator[Output]:
        """What came out since the last call; rows leave as they are read, for they may be more than fit into memory."""
        for name, waiting in self._outputs.items():
            for batch in waiting.take():
                yield name, batch
        if self._rejected:
            rejected, self._rejected = self._rejected, []
            yield REJECTS, pa.RecordBatch.from_pylist(rejected, REJECTED)

    def _put(self, name: str, batch: pa.RecordBatch) -> None:
        waiting = self._outputs.get(name)
        if waiting is None:
            waiting = self._outputs[name] = self._stores.create_waiting(f"{name}: rows on their way out")
        waiting.put(batch.replace_schema_metadata())

    def _put_late(self, late_into: str | None, batch: pa.RecordBatch) -> None:
        if late_into is not None:
            self._put(late_into, batch)

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self.rejected += 1
        self._rejected.append(reject_row(reason, row))

    def snapshot(self) -> dict[str, Any]:
        saved = {
            "streams": {name: stream.snapshot() for name, stream in self._streams.items()},
            "types": {name: _types(stream) for name, stream in self._streams.items()},
            "flow": self._flow.snapshot(),
            "fired": self._firings.snapshot(),
        }
        saved["stores"] = self._stores.snapshot()
        self._stores.sync()
        return saved

    def close(self) -> None:
        self._flow.tables.disconnect()
        self._stores.close()


def _pass_over(batch: pa.RecordBatch) -> None:
    """Rows of a derived stream that nothing shows go to the queries that read it, and nowhere else."""


def _windows_of(node: Node) -> str:
    """All windows of a query, as in its text, and what they are over."""

    def windows(node: Node) -> list[str]:
        own = [] if node.own_window is None else [render_window(node.own_window)]
        return own + [window for child in children(node) for window in windows(child)]

    return f"{' over '.join([*windows(node), ', '.join(sorted(streams(node)))])}"


def _types(stream: StreamInput) -> dict[str, str]:
    return {field.name: str(field.type) for field in stream.definition.schema}


def _check_types(stream: str, before: dict[str, str], now: dict[str, str]) -> None:
    changed = [f"{name} was {kind} and is {now[name]}" for name, kind in before.items() if now.get(name, kind) != kind]
    if changed:
        raise CheckpointError(
            f"the columns of stream {stream} have changed since the checkpoint: {', '.join(changed)}; "
            "cast them to what they were, or start with a new checkpoint directory"
        )
