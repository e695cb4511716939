"""Packing: many events travel through Spark's shuffle as one binary row, and results come out the same way.

A packed row is `(bucket, t_min, t_max, events)`. There are two kinds:

- *events*: the events of one bucket out of one stretch of the input, as one Arrow record batch, with their least and
  greatest time (both NULL if no event has a time);
- *clock* (`events` is NULL): the least and greatest time of everything one task has read in this micro-batch. Every
  bucket gets one from every task, so each knows the progress of the whole stream, its own silence included. The end
  of the stream is a clock row at `END_OF_TIME`.

The shuffle does not keep the order of rows, but all packed rows of a micro-batch reach their bucket together.
No column here is a watermark of Spark's, which would drop late events before they could be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.buckets import bucket_of

END_OF_TIME = 2**63 - 1

PACKED_DDL = "bucket int, t_min bigint, t_max bigint, events binary"

PACKED = pa.schema([("bucket", pa.int32()), ("t_min", pa.int64()), ("t_max", pa.int64()), ("events", pa.binary())])

STRETCH_BYTES = 8 << 20
"""Input is packed in stretches of about this size: large enough to make rows few, small enough to hold in memory."""

KeyColumns = Callable[[pa.RecordBatch], list[pa.Array]]
"""Computes the columns whose values decide the bucket."""


@dataclass(frozen=True)
class Packer:
    """Turns the batches that one task reads into packed rows; `labels[i]` is the label of bucket i."""

    schema: pa.Schema
    event_time: str
    time_unit: int
    keys: KeyColumns
    labels: tuple[int, ...]

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The events in stretches, then one clock row per bucket."""
        least: list[int] = []
        greatest: list[int] = []
        for stretch in _stretches(batches):
            conformed = stretch.select(self.schema.names).cast(self.schema)
            times = self._times(conformed)
            if times.null_count < len(times):
                extremes = pc.min_max(times)
                least.append(extremes["min"].as_py())
                greatest.append(extremes["max"].as_py())
            yield self._pack_stretch(conformed, times)
        if least:
            yield clock_rows(self.labels, min(least), max(greatest))

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self.event_time).cast(pa.int64())
        return column if self.time_unit == 1 else pc.multiply(column, self.time_unit)

    def _pack_stretch(self, batch: pa.RecordBatch, times: pa.Array) -> pa.RecordBatch:
        buckets = bucket_of(self.keys(batch), batch.num_rows, len(self.labels))
        # A stable sort keeps the order of arrival within a bucket.
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=len(self.labels)))
        if len(self.labels) > 1:
            batch, times = batch.take(pa.array(order)), times.take(pa.array(order))
        rows: list[tuple[int, int | None, int | None, bytes]] = []
        start = 0
        for label, end in zip(self.labels, ends.tolist(), strict=True):
            if end > start:
                extremes = pc.min_max(times.slice(start, end - start))
                packed = encode(batch.slice(start, end - start))
                rows.append((label, extremes["min"].as_py(), extremes["max"].as_py(), packed))
            start = end
        columns = zip(*rows, strict=True)
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, PACKED, strict=True)], schema=PACKED)


def clock_rows(labels: tuple[int, ...], t_min: int, t_max: int) -> pa.RecordBatch:
    count = len(labels)
    return pa.record_batch(
        [
            pa.array(labels, pa.int32()),
            pa.array([t_min] * count, pa.int64()),
            pa.array([t_max] * count, pa.int64()),
            pa.nulls(count, pa.binary()),
        ],
        schema=PACKED,
    )


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
