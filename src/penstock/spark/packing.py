"""Packing: many events travel through Spark's shuffle as one binary row, and results come out the same way.

A packed row is `(bucket, t_min, t_max, events)`. There are two kinds:

- *events*: the events of one bucket out of one stretch of the input, as one Arrow record batch, with their least and
  greatest time (both NULL for events that are to be rejected);
- *clock* (`events` is NULL): the least and greatest time of everything one task has read in this micro-batch. Every
  bucket gets one from every task, so each knows the progress of the whole stream, its own silence included. The end
  of the stream is a clock row at `END_OF_TIME`.

The shuffle does not keep the order of rows, but all packed rows of a micro-batch reach their bucket together.
No column here is a watermark of Spark's, which would drop late events before they could be counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine.ingest import Ingest
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.lang.query import StreamDef
from penstock.spark.buckets import bucket_of

Int64s = NDArray[np.int64]
PackedRow = tuple[int, int | None, int | None, bytes | None]

END_OF_TIME = 2**63 - 1

PACKED_DDL = "bucket int, t_min bigint, t_max bigint, events binary"

PACKED = pa.schema([("bucket", pa.int32()), ("t_min", pa.int64()), ("t_max", pa.int64()), ("events", pa.binary())])

STRETCH_BYTES = 8 << 20
"""Input is packed in stretches of about this size: large enough to make rows few, small enough to hold in memory."""


@dataclass(frozen=True)
class Packer:
    """Turns the batches that one task reads into packed rows.

    `stream` has just the columns that are read, `keys` decide the bucket, `labels[i]` is the label of bucket i.
    """

    stream: StreamDef
    keys: tuple[Expression, ...]
    labels: tuple[int, ...]

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The events in stretches, then one clock row per bucket.

        Events without a proper time move no clock. They go to the first bucket, which rejects and counts them.
        """
        rejected: list[dict[str, Any]] = []
        ingest = Ingest(self.stream, self.stream.schema.fields, lambda reason, row: rejected.append(row))
        keys = [compile_expression(key) for key in self.keys]
        least, greatest = END_OF_TIME, -END_OF_TIME
        for stretch in _stretches(batches):
            conformed = stretch.select(ingest.schema.names).cast(ingest.schema)
            times, events = ingest.times(conformed, None)
            if len(times):
                least, greatest = min(least, int(times.min())), max(greatest, int(times.max()))
                buckets = bucket_of([key(events).values for key in keys], len(times), len(self.labels))
                yield self._pack_stretch(events, times, buckets)
            if rejected:
                unfit = pa.RecordBatch.from_pylist(rejected, ingest.schema)
                yield _packed([(self.labels[0], None, None, encode(unfit))])
                rejected.clear()
        if least <= greatest:
            yield clock_rows(self.labels, least, greatest)

    def _pack_stretch(self, events: pa.RecordBatch, times: Int64s, buckets: Int64s) -> pa.RecordBatch:
        if len(self.labels) > 1:
            # A stable sort keeps the order of arrival within a bucket.
            order = np.argsort(buckets, kind="stable")
            events, times = events.take(pa.array(order)), times[order]
        ends = np.cumsum(np.bincount(buckets, minlength=len(self.labels)))
        rows: list[PackedRow] = []
        start = 0
        for label, end in zip(self.labels, ends.tolist(), strict=True):
            if end > start:
                own = times[start:end]
                rows.append((label, int(own.min()), int(own.max()), encode(events.slice(start, end - start))))
            start = end
        return _packed(rows)


def clock_rows(labels: tuple[int, ...], t_min: int, t_max: int) -> pa.RecordBatch:
    return _packed([(label, t_min, t_max, None) for label in labels])


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
