"""Packing: many events travel through Spark's shuffle as one binary row, and results come out the same way.

A packed row is `(bucket, kind, stream, place, t_min, t_max, payload)`. There are four kinds, in the order in which a
bucket takes them:

- *clock*: the least and greatest time of a stretch of the input. Every bucket that reads the stream gets one of every
  stretch, so each knows the progress of the whole stream, its own silence included;
- *rejects*: what cannot be an event, each with the reason, for the bucket that reports them;
- *events*: the events of one stream for one bucket out of one stretch of the input, as one Arrow record batch, with
  their least and greatest time;
- *end*: the streams have ended.

Where the source has an order, the rows of a stretch have its `place` in it, clock rows the stretch's ties, and events
their marks: see `arrival`.

The shuffle does not keep the order of rows, but all packed rows of a micro-batch reach their bucket together.
No column here is a watermark of Spark's, which would drop late events before they could be counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Int64s
from penstock.engine.ingest import Ingest
from penstock.expressions.evaluate import compile_expression
from penstock.lang.query import StreamDef
from penstock.plan.placement import Spread
from penstock.spark.arrival import MARK, PLACE, encode_ties, marks, sequences_of, ties
from penstock.spark.buckets import bucket_of
from penstock.spark.shares import Share, StreamPart
from penstock.types import Schema

PackedRow = tuple[str, int, str | None, int | None, int | None, int | None, bytes | None]

CLOCK, REJECTS, EVENTS, END = range(4)

PACKED_DDL = "bucket string, kind int, stream string, place bigint, t_min bigint, t_max bigint, payload binary"

PACKED = pa.schema(
    [
        ("bucket", pa.string()),
        ("kind", pa.int32()),
        ("stream", pa.string()),
        ("place", pa.int64()),
        ("t_min", pa.int64()),
        ("t_max", pa.int64()),
        ("payload", pa.binary()),
    ]
)

REJECTED = pa.schema([("source", pa.string()), ("reason", pa.string()), ("row", pa.string())])
"""A row that is no event or could not be computed: where it comes from, why, and the row as JSON or as it was read."""

REJECT_REASON, REJECT_ROW = "_reject_reason", "_reject_row"
"""Columns by which a source says that it could not read a row: the reason, and the text; NULL for good rows."""

STRETCH_BYTES = 8 << 20
"""Input is packed in stretches of about this size: large enough to make rows few, small enough to hold in memory."""


@dataclass(frozen=True)
class Packer:
    """Turns the batches that one task reads of one stream into packed rows for the shares that read it.

    `stream` has the columns that some share reads.
    """

    stream: StreamDef
    shares: tuple[Share, ...]

    def pack(self, batches: Iterator[pa.RecordBatch], *, tell_time: bool = True) -> Iterator[pa.RecordBatch]:
        """The events in stretches, each with its clock rows. What is rejected moves no clock."""
        rejected: list[dict[str, Any]] = []

        def reject(reason: str, row: dict[str, Any]) -> None:
            stream, _, why = reason.removeprefix("stream ").partition(": ")
            rejected.append(reject_row(why, row, stream))

        ingest = Ingest(self.stream, self.stream.schema.fields, reject)
        routes = [_Route(self.stream.name, share) for share in self.shares]
        for stretch in _stretches(batches):
            unread, readable = _unreadable(stretch, self.stream.name)
            rejected += unread
            times, events = ingest.times(readable.select(ingest.schema.names).cast(ingest.schema), None)
            if len(times):
                place, told = None, None
                if PLACE in stretch.schema.names:
                    place = pc.min(stretch.column(PLACE)).as_py()
                    events, told = self._marked(events, times)
                for route in routes:
                    yield route.pack(events, times, place)
                if tell_time:
                    yield self._clock_rows(place, int(times.min()), int(times.max()), told)
            if rejected:
                yield _packed([self._report(pa.RecordBatch.from_pylist(rejected, REJECTED))])
                rejected.clear()

    def tell_time(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Just the clock rows, of batches with the time column alone."""
        field = self.stream.schema.find(self.stream.event_time)
        assert field is not None
        ingest = Ingest(self.stream, (field,), lambda reason, row: None)
        for stretch in _stretches(batches):
            times, _ = ingest.times(stretch.cast(ingest.schema), None)
            if len(times):
                yield self._clock_rows(None, int(times.min()), int(times.max()), None)

    def _marked(self, events: pa.RecordBatch, times: Int64s) -> tuple[pa.RecordBatch, bytes | None]:
        """The events with their marks, and the ties of the stretch."""
        sequences = sequences_of(events, self.stream.sequence)
        found = marks(times, sequences, self.stream.lateness)
        return events.append_column(MARK, pa.array(found)), encode_ties(ties(times, sequences, self.stream.lateness))

    def _clock_rows(self, place: int | None, t_min: int, t_max: int, told: bytes | None) -> pa.RecordBatch:
        labels = [label for share in self.shares for label in share.labels]
        return _packed([(label, CLOCK, self.stream.name, place, t_min, t_max, told) for label in labels])

    def _report(self, rejected: pa.RecordBatch) -> PackedRow:
        (reporter,) = (share for share in self.shares if _part(share, self.stream.name).reports)
        return (reporter.labels[0], REJECTS, self.stream.name, None, None, None, encode(rejected))


class _Route:
    """How the events of a stream get to the buckets of one share."""

    def __init__(self, stream: str, share: Share) -> None:
        self._stream = stream
        self._labels = share.labels
        self._columns = _part(share, stream).stream.schema.names
        self._by_key = share.placement.spread is Spread.BY_KEY
        keys = share.placement.keys_of(stream) if self._by_key else ()
        self._keys = [compile_expression(key) for key in keys]

    def pack(self, events: pa.RecordBatch, times: Int64s, place: int | None) -> pa.RecordBatch:
        own = events.select([*self._columns, *([] if place is None else [MARK])])
        if self._by_key and len(self._labels) > 1:
            return self._dealt(own, times, place, [key(events).values for key in self._keys])
        return self._cut(own, times, place)

    def _dealt(self, events: pa.RecordBatch, times: Int64s, place: int | None, keys: list[pa.Array]) -> pa.RecordBatch:
        """Each event to the bucket of its key."""
        count = len(self._labels)
        buckets = bucket_of(keys, len(times), count)
        # A stable sort keeps the order of arrival within a bucket.
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=count)).tolist()
        return self._rows(events.take(pa.array(order)), times[order], place, ends, 0)

    def _cut(self, events: pa.RecordBatch, times: Int64s, place: int | None) -> pa.RecordBatch:
        """To each bucket a piece, where it does not matter which. The first piece goes to any bucket, so that small
        stretches do not all go to the same."""
        count = len(self._labels)
        ends = [len(times) * (index + 1) // count for index in range(count)]
        return self._rows(events, times, place, ends, int(bucket_of([pa.array(times[:1])], 1, count)[0]))

    def _rows(
        self, events: pa.RecordBatch, times: Int64s, place: int | None, ends: list[int], first: int
    ) -> pa.RecordBatch:
        rows: list[PackedRow] = []
        for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                label = self._labels[(first + index) % len(ends)]
                t_min, t_max = int(times[start:end].min()), int(times[start:end].max())
                payload = encode(events.slice(start, end - start))
                rows.append((label, EVENTS, self._stream, place, t_min, t_max, payload))
        return _packed(rows)


def packers(declared: tuple[StreamDef, ...], shares: tuple[Share, ...]) -> list[Packer]:
    """One for each stream that is read."""
    made = []
    for stream in declared:
        readers = tuple(share for share in shares if share.part(stream.name) is not None)
        read = set().union(*(_part(share, stream.name).stream.schema.names for share in readers))
        if readers:
            schema = Schema(tuple(field for field in stream.schema if field.name in read))
            made.append(Packer(replace(stream, schema=schema, uri=None, options=()), readers))
    return made


def end_rows(labels: tuple[str, ...]) -> pa.RecordBatch:
    return _packed([(label, END, None, None, None, None, None) for label in labels])


def reject_row(reason: str, row: dict[str, Any], source: str = "computed") -> dict[str, str]:
    return {"source": source, "reason": reason, "row": json.dumps(row, default=str, ensure_ascii=False)}


def _unreadable(stretch: pa.RecordBatch, stream: str) -> tuple[list[dict[str, Any]], pa.RecordBatch]:
    """What the source could not read, and the rest."""
    if REJECT_REASON not in stretch.schema.names:
        return [], stretch
    reasons = stretch.column(REJECT_REASON)
    if reasons.null_count == len(reasons):
        return [], stretch
    bad = stretch.filter(reasons.is_valid())
    told = zip(bad.column(REJECT_REASON).to_pylist(), bad.column(REJECT_ROW).to_pylist(), strict=True)
    rejects = [{"source": stream, "reason": reason, "row": text} for reason, text in told]
    return rejects, stretch.filter(reasons.is_null())


def _part(share: Share, stream: str) -> StreamPart:
    part = share.part(stream)
    assert part is not None, "a packer has the shares that read its stream"
    return part


def _packed(rows: list[PackedRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, PACKED, strict=True)], schema=PACKED)


def encode(batch: pa.RecordBatch) -> bytes:
    """A record batch without its schema, which both ends know."""
    encoded: bytes = batch.serialize().to_pybytes()
    return encoded


def decode(packed: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(packed), schema)


def _stretches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches into larger ones; empty ones vanish."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= STRETCH_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)
