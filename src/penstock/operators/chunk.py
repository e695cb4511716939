"""A run of events in (time, sequence) order, as operators hand it on: Arrow columns and their times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Bools, Int64s
from penstock.expressions.batch import Rows, arrow_of

CHUNK_ROWS = 16384
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
        found: dict[str, Any] = self.arrow.slice(index, 1).to_pylist()[0]
        return found

    def parts(self, watermark: int) -> Iterator[tuple[Chunk, int]]:
        """The chunk cut to `CHUNK_ROWS`, each part with the watermark that holds once it is in: rows of later parts
        may still enter windows that the final watermark closes. A chunk without rows is one part."""
        if self.rows <= CHUNK_ROWS:
            yield self, watermark
            return
        for start in range(0, self.rows, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, self.rows)
            part = self.slice(start, stop)
            yield part, watermark if stop == self.rows else min(watermark, int(part.times[-1]))

    def slice(self, start: int, stop: int) -> Chunk:
        return Chunk(self.times[start:stop], self.arrow.slice(start, stop - start))

    def filter(self, keep: Bools) -> Chunk:
        return Chunk(self.times[keep], self.arrow.filter(pa.array(keep)))


NO_ROWS = pa.RecordBatch.from_arrays([pa.nulls(0)], names=[""])


def concat(chunks: list[Chunk], schema: pa.Schema) -> Chunk:
    """One chunk of all rows in the order given."""
    chunks = [c for c in chunks if c.rows]
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        return Chunk(np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema))
    table = pa.Table.from_batches([c.arrow for c in chunks]).combine_chunks()
    return Chunk(np.concatenate([c.times for c in chunks]), table.to_batches()[0])
