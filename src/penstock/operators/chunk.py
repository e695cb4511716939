"""A run of events in (time, sequence) order, as operators hand it on: Arrow columns and their times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Bools, Int64s

CHUNK_ROWS = 8192
"""Operators work on at most so many rows at a time, so that their columns stay in the processor's cache."""


class Chunk(NamedTuple):
    times: Int64s
    columns: pa.RecordBatch

    @property
    def rows(self) -> int:
        return len(self.times)

    def slice(self, start: int, stop: int) -> Chunk:
        return Chunk(self.times[start:stop], self.columns.slice(start, stop - start))

    def filter(self, keep: Bools) -> Chunk:
        return Chunk(self.times[keep], self.columns.filter(pa.array(keep)))


def concat(chunks: list[Chunk], schema: pa.Schema) -> Chunk:
    """One chunk of all rows in the order given."""
    chunks = [c for c in chunks if c.rows]
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        return Chunk(np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema))
    table = pa.Table.from_batches([c.columns for c in chunks]).combine_chunks()
    return Chunk(np.concatenate([c.times for c in chunks]), table.to_batches()[0])
