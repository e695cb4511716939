"""A run of events in (time, sequence) order, as operators hand it on: columns and their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch, Data, Rows, arrow_of
from penstock.expressions.time_texts import time_texts
from penstock.expressions.vector import Evaluated, Vector
from penstock.store.batches import decoded
from penstock.types import SqlType

CHUNK_ROWS = 32768
"""Operators work on at most so many rows at a time, so that their columns stay in the processor's cache."""


class Chunk(NamedTuple):
    times: Int64s
    columns: Rows

    @property
    def rows(self) -> int:
        return len(self.times)

    @property
    def arrow(self) -> pa.RecordBatch:
        return arrow_of(self.columns)

    def row(self, index: int) -> dict[str, Any]:
        """One row as Python values, for messages."""
        return readable(self.arrow.slice(index, 1))[0]

    def parts(self, watermark: int, count: Callable[[Int64s, int], int] | None = None) -> Iterator[tuple[Chunk, int]]:
        """The chunk cut in parts, each with the watermark that holds once it is in: the time of the next row, so that a
        window that is over closes before the rows of the next one enter. `count` says, before each part, how many rows
        of these times it has that begins at a place. A chunk without rows is one part."""
        if self.rows <= 1 or (count is None and self.rows <= CHUNK_ROWS):
            yield self, watermark
            return
        start = 0
        while start < self.rows:
            stop = min(start + (CHUNK_ROWS if count is None else count(self.times, start)), self.rows)
            if stop - start == self.rows:
                yield self, watermark
                return
            part = self.slice(start, stop)
            yield part, watermark if stop == self.rows else min(watermark, int(self.times[stop]))
            start = stop

    def slice(self, start: int, stop: int) -> Chunk:
        return Chunk(self.times[start:stop], self.arrow.slice(start, stop - start))

    def filter(self, keep: Bools) -> Chunk:
        if keep.all():
            return self
        return Chunk(self.times[keep], self.arrow.filter(pa.array(keep)))


def computed(times: Int64s, names: Sequence[str], values: Sequence[Evaluated]) -> Chunk:
    """Rows of columns that were computed. A single row stays as it is held: Arrow would cost more than the query."""
    if len(times) != 1:
        return Chunk(times, pa.RecordBatch.from_arrays([value.values for value in values], names=names))
    kinds = dict(zip(names, [value.type for value in values], strict=True))
    data = {name: _of_one_row(value) for name, value in zip(names, values, strict=True)}
    return Chunk(times, Batch(kinds, data, 1))


def _of_one_row(value: Evaluated) -> Data:
    held: Data = value.held
    if isinstance(held, Vector) and (held.errors is not None or value.type in (SqlType.STRING, SqlType.NULL)):
        return value.values
    return held


NO_ROWS = pa.RecordBatch.from_arrays([pa.nulls(0)], names=[""])
NO_EVENTS = Chunk(np.empty(0, np.int64), NO_ROWS)
"""A chunk without rows, for calls that tell only the time."""


def concat(chunks: list[Chunk], schema: pa.Schema) -> Chunk:
    """One chunk of all rows in the order given."""
    chunks = [c for c in chunks if c.rows]
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        return Chunk(np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema))
    return Chunk(np.concatenate([c.times for c in chunks]), joined([c.arrow for c in chunks]))


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all rows. Strings may be dictionary-encoded in some batches and plain in others, as they were
    pushed."""
    batches = [batch for batch in batches if batch.num_rows] or batches[:1]
    if len(batches) == 1:
        return batches[0]
    if any(batch.schema != batches[0].schema for batch in batches):
        batches = [decoded(batch) for batch in batches]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def readable(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python values; times that Python's calendar does not know are texts, as sinks write them."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        if batch.num_rows > 1:  # the others' times are as they would be in another batch
            return [row for i in range(batch.num_rows) for row in readable(batch.slice(i, 1))]
        columns = [time_texts(c) if pa.types.is_temporal(c.type) else c for c in batch.columns]
        rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return rows


def to_bytes(batch: pa.RecordBatch) -> bytes:
    """A batch as it is kept in saved state."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
