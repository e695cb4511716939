"""The stateful operator: one bucket's queries, called once per bucket and micro-batch.

A bucket's state are the clocks and the app's snapshot. It is in files (`bucket_state`), and what is committed with the
micro-batch is a small directory of them (`directory`).

Invariants:
1. The directory is published as a whole or not at all (`publications`). A live app is used again only if its tag is the
   committed one (`spark.live`), and only for the recipe that made it: a query that is started again may have other
   queries in it, or another budget.
2. Every bucket that reads a stream is called in every micro-batch in which that stream has events, since every one
   gets clock rows.
3. All events of a micro-batch enter before the watermark passes any of them.
4. Which events are late is settled before any of them enters: by the order in which they come where the source has one
   (`arrival`), else by the clocks of the micro-batches before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.components import Component
from penstock.errors import CheckpointError, InputError, StorageError
from penstock.operators.reorder import START
from penstock.plan.placement import Spread
from penstock.spark.arrival import Arrivals, Ties, Told, decode_ties
from penstock.spark.bucket_app import REJECTS as REJECTS_NAME
from penstock.spark.bucket_app import BucketApp, BucketMaker, Output
from penstock.spark.bucket_state import BucketState
from penstock.spark.buckets import bucket_of
from penstock.spark.clock import Clock
from penstock.spark.directory import Directory
from penstock.spark.failures import plainly
from penstock.spark.live import LiveObjects
from penstock.spark.packing import CLOCK, END, EVENTS, REJECTED, REJECTS, decode, encode
from penstock.spark.publications import InStateStore, Publications
from penstock.spark.shares import Share

OUTPUT_DDL = (
    "name string, part int, rows bigint, packed binary, events bigint, late bigint, rejected bigint, "
    "state_bytes bigint, state_written bigint, bytes_read bigint, last_time bigint, restored int"
)
"""Rows that carry packed results under their name, and one row of figures per bucket and micro-batch. `part` says
which task merges rows that are partial."""
BUCKET = Component("Bucket")
"""The state of a bucket, which holds that of its app."""


@dataclass
class _Live:
    app: BucketApp
    recipe: str
    state: BucketState
    clocks: dict[str, Clock] = field(default_factory=dict)
    ended: bool = False

    def tree(self) -> dict[str, Any]:
        """What is saved."""
        content = {
            "clocks": {name: [clock.first, clock.last] for name, clock in self.clocks.items()},
            "ties": {name: list(clock.ties) for name, clock in self.clocks.items() if len(clock.ties.times)},
            "ended": self.ended,
            "app": self.app.snapshot(),
        }
        return BUCKET.saved(content)


_live: LiveObjects[_Live] = LiveObjects()
"""One per Python worker, for all queries that it serves."""


class _Input:
    """The packed rows of one bucket and micro-batch in their order: by kind (see `packing`), packs by time and arrival.

    Static data is sorted by Spark and read as it is used, however much there is; a micro-batch is sorted here.
    `ended` is known once all packs have been taken.
    """

    def __init__(self, rows: Iterator[Row], *, in_order: bool) -> None:
        self.clocks: list[Row] = []
        self.rejects: list[pa.RecordBatch] = []
        self.ended = False
        if in_order:
            self._rows = rows
            self._next = self._pack()
        else:
            # The bytes break ties, so that the order does not depend on the shuffle's.
            by_time = sorted(rows, key=lambda row: (row.kind, row.t_min or 0, row.t_max or 0, row.payload or b""))
            self._rows = iter(by_time)
            self._held = list(iter(self._pack, None))
            self._next = next(iter(self._held), None)
        self._in_order = in_order

    @property
    def has_events(self) -> bool:
        return self._next is not None

    def packs(self, arrivals: Mapping[str, Arrivals]) -> Iterator[tuple[Row, int | None]]:
        """Each pack, and a time that those which follow do not go below, what is late left aside."""
        if not self._in_order:
            timed = _in_order(self._held, arrivals)
            for at, (_, row) in enumerate(timed, 1):
                yield row, None if at == len(timed) else timed[at][0]
            return
        while self._next is not None:
            row, self._next = self._next, self._pack()
            yield row, None if self._next is None else self._next.t_min

    def _pack(self) -> Row | None:
        for row in self._rows:
            if row.kind == EVENTS:
                return row
            if row.kind == CLOCK:
                self.clocks.append(row)
            elif row.kind == REJECTS:
                self.rejects.append(decode(row.payload, REJECTED))
            else:
                assert row.kind == END
                self.ended = True
        return None


def _in_order(packs: list[Row], arrivals: Mapping[str, Arrivals]) -> list[tuple[int, Row]]:
    """Packs by the least time that they and those after them bring; those of a stream with an order of arrival in that
    order, so that equal times keep it."""
    timed = [(row.t_min, row) for row in packs if row.place is None]
    for stream, known in arrivals.items():
        least = None
        for row in sorted((row for row in packs if row.stream == stream), key=lambda row: row.place, reverse=True):
            own = max(row.t_min, known.watermark(row.place))
            least = own if least is None else min(least, own)
            timed.append((least, row))
    return sorted(timed, key=lambda pair: (pair[0], pair[1].place or 0))


class BucketProcessor(StatefulProcessor):
    """`parts` is the number of tasks that merge partial rows; `streaming` is whether there are micro-batches."""

    def __init__(self, recipe: BucketMaker, parts: int, *, streaming: bool) -> None:
        self._recipe = recipe
        self._parts = parts
        self._streaming = streaming

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._publications: Publications = InStateStore(handle)

    def handleInputRows(self, key: tuple[str], rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        (label,) = key
        return plainly(self._run(label, rows))

    def _run(self, label: str, rows: Iterator[Row]) -> Iterator[Row]:
        # Static data may be read inside of a streaming query, by its `foreachBatch`.
        query, batch_id = _task_of_query() if self._streaming else ("", 0)
        given = _Input(rows, in_order=not query)
        live, state_read = self._take(label, query, batch_id)
        read_before = live.app.bytes_read if state_read is None else -state_read
        if live.ended and given.has_events:
            raise CheckpointError(
                "these streams were ended: their windows are closed and cannot take more events; "
                "start again with a new checkpoint directory"
            )
        app = live.app
        app.begin(batch_id)
        live.state.begin(batch_id)
        late, rejected = app.late, app.rejected
        events = unread = sum(batch.num_rows for batch in given.rejects)
        share = self._recipe.share_of(label)
        yield from self._results(label, share, [(REJECTS_NAME, batch) for batch in given.rejects])
        reported = {part.stream.name for part in share.parts if part.reports}
        for stream, batch, late_ones, watermark in _steps(given, live):
            if stream in reported:
                events += batch.num_rows + (0 if late_ones is None else late_ones.num_rows)
            app.push(stream, batch, watermark, late_ones)
            yield from self._results(label, share, app.take_outputs())
        app.settle()
        yield from self._results(label, share, app.take_outputs())
        if given.ended and not live.ended:
            live.ended = True
            app.finish({name: clock.last for name, clock in live.clocks.items() if clock.last is not None})
            yield from self._results(label, share, app.take_outputs())
        times = [clock.last for clock in live.clocks.values() if clock.last is not None]
        state_written = self._keep(live, label, query, batch_id)
        yield _figures(
            events=events,
            late=app.late - late,
            rejected=app.rejected - rejected + unread,
            bytes_read=app.bytes_read - read_before,
            state_bytes=live.state.whole_bytes,
            state_written=state_written,
            last_time=max(times, default=None),
            restored=int(state_read is not None),
        )

    def _take(self, label: str, query: str, batch_id: int) -> tuple[_Live, int | None]:
        """The bucket's live app and, if it had to be restored, how many bytes of state were read."""
        recipe = self._recipe
        share = recipe.share_of(label)
        committed = self._publications.committed(label)
        if committed is not None and committed.fingerprint != share.fingerprint:
            raise CheckpointError(
                "the checkpoint belongs to other streams, another lateness or another number of buckets; "
                "declare them as they were, or use a new checkpoint directory"
            )
        live = None if committed is None else _live.take(committed.tag)
        if live is not None and live.recipe == recipe.id:
            return live, None
        state = BucketState(recipe.place_of(label, query), share.fingerprint, retain=recipe.retain)
        app = recipe.create(label, query, batch_id)
        if committed is None:
            app.start(None)
            return _Live(app, recipe.id, state), None
        saved, nbytes = self._read(label, state, committed)
        app.start(saved["app"])
        ties = {name: Ties(*both) for name, both in saved.get("ties", {}).items()}
        clocks = {name: Clock(*both, *([ties[name]] if name in ties else [])) for name, both in saved["clocks"].items()}
        live = _Live(app, recipe.id, state, clocks, saved["ended"])
        state.resumed(live.tree)
        return live, nbytes

    def _read(self, label: str, state: BucketState, committed: Directory) -> tuple[dict[str, Any], int]:
        """The committed state of a bucket, and its bytes; names the queries that need it if it cannot be read."""
        try:
            whole, nbytes = state.restore(committed)
        except StorageError as error:
            names = ", ".join(query.name for query in self._recipe.share_of(label).queries)
            raise StorageError(
                f"the state of bucket {label} cannot be read, and none of its queries ({names}) can go on: {error}. "
                "Bring the file back as it was, or begin again with a new checkpoint directory"
            ) from None
        return BUCKET.read(whole), nbytes

    def _keep(self, live: _Live, label: str, query: str, batch_id: int) -> int:
        """Saves and publishes the state, and files the live app under its tag; returns the bytes written. A query over
        static data is over when its bucket is."""
        if not query:
            live.app.close()
            return 0
        directory, written = live.state.save(live.tree())
        written += self._publications.publish(label, directory)
        _live.put(directory.tag, query=query, batch=batch_id, live=live)
        return written

    def _results(self, label: str, share: Share, outputs: Iterable[Output]) -> Iterator[Row]:
        partial = share.placement.spread is Spread.PARTIALS
        for name, batch in outputs:
            if batch.num_rows == 0:
                continue
            if partial and any(query.name == name for query in share.queries):
                yield from self._partials(name, batch)
            else:
                yield _figures(
                    name=name,
                    part=zlib.crc32(label.encode()) % self._parts,
                    rows=batch.num_rows,
                    packed=encode(batch),
                )

    def _partials(self, name: str, batch: pa.RecordBatch) -> Iterator[Row]:
        """Cut so that all parts of an evaluation come to one task."""
        parts = bucket_of([batch.column("window_end")], batch.num_rows, self._parts)
        for part in range(self._parts):
            own = batch.filter(pa.array(parts == part))
            if own.num_rows:
                yield _figures(name=name, part=part, rows=own.num_rows, packed=encode(own))


def _steps(given: _Input, live: _Live) -> Iterator[tuple[str, pa.RecordBatch, pa.RecordBatch | None, int]]:
    """The packs in their order, each with what of it is late and the watermark up to which its successors hold
    nothing.

    The watermarks move within the micro-batch so that the reorder buffers never hold more than packs that overlap, and
    no stream falls behind the others. The clocks move on.
    """
    app = live.app
    reached = {name: _watermark(clock, app.lateness(name)) for name, clock in live.clocks.items()}
    arrivals = _advance(given.clocks, live)
    ceilings = {name: _watermark(clock, app.lateness(name)) for name, clock in live.clocks.items()}
    for row, following in given.packs(arrivals):
        for stream, ceiling in ceilings.items():
            before = reached.get(stream, START)
            reached[stream] = ceiling if following is None else max(before, min(ceiling, following - 1))
            if stream == row.stream:
                yield stream, *app.unpack(stream, row.payload, row.place, arrivals.get(stream)), reached[stream]
            elif reached[stream] > before:
                yield stream, app.no_events(stream), None, reached[stream]
    for stream, ceiling in ceilings.items():
        if reached.get(stream) != ceiling:
            yield stream, app.no_events(stream), None, ceiling


def _advance(rows: list[Row], live: _Live) -> dict[str, Arrivals]:
    """Moves the clocks on; returns how the events of the streams come whose sources have an order."""
    arrivals: dict[str, Arrivals] = {}
    for stream in sorted({row.stream for row in rows}):
        own = [row for row in rows if row.stream == stream]
        before = clock = live.clocks.get(stream, Clock())
        for row in own:
            clock = clock.advanced(row.t_min, row.t_max)
        told = [Told(row.place, row.t_max, decode_ties(row.payload)) for row in own if row.place is not None]
        if told:
            arrivals[stream] = Arrivals(before.last, before.ties, told, live.app.lateness(stream))
            clock = replace(clock, ties=arrivals[stream].ties())
        live.clocks[stream] = clock
    return arrivals


def _watermark(clock: Clock, lateness: int) -> int:
    watermark = clock.watermark(lateness)
    return START if watermark is None else watermark


def _figures(
    *,
    name: str | None = None,
    part: int = 0,
    rows: int = 0,
    packed: bytes | None = None,
    events: int = 0,
    late: int = 0,
    rejected: int = 0,
    state_bytes: int = 0,
    state_written: int = 0,
    bytes_read: int = 0,
    last_time: int | None = None,
    restored: int = 0,
) -> Row:
    return Row(
        name=name,
        part=part,
        rows=rows,
        packed=packed,
        events=events,
        late=late,
        rejected=rejected,
        state_bytes=state_bytes,
        state_written=state_written,
        bytes_read=bytes_read,
        last_time=last_time,
        restored=restored,
    )


def _task_of_query() -> tuple[str, int]:
    """The id of the streaming query and the number of its micro-batch, which state and segments belong to."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if not query or batch is None:
        raise InputError(
            "this micro-batch is computed where Spark does not tell which one it is: in a thread of your own inside of "
            "foreachBatch, or in foreachBatch over Spark Connect; compute it in foreachBatch's own thread, for example "
            "with persist() and count(), or write to one of Spark's sinks"
        )
    return query, int(batch)
