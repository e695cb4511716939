"""Random columns that can be entered anywhere: row i is the same however the rows are cut and whatever else is read.

Rows come in chunks of a fixed size. Each (seed, column, chunk) has a counter-based random generator of its own, so a
chunk is made without those before it and a column without its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.types import Schema

CHUNK_ROWS = 1 << 16

Rows = NDArray[np.int64]
"""The numbers of the rows of a chunk."""


def random_source(seed: int, column: int, chunk: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, column], counter=[0, 0, 0, chunk]))


class ChunkedGenerator:
    """The first `rows` rows of a schema (None: without end); `make[name](chunk, rows)` gives a column of a chunk."""

    def __init__(self, schema: Schema, rows: int | None, make: Mapping[str, Callable[[int, Rows], pa.Array]]) -> None:
        self._schema = schema
        self._rows = rows
        self._make = make
        self._chunk = -1
        self._made: dict[str, pa.Array] = {}

    @property
    def schema(self) -> pa.Schema:
        return self._schema.arrow

    @property
    def rows(self) -> int | None:
        return self._rows

    def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch:
        pieces: list[list[pa.Array]] = [[] for _ in columns]
        at = start
        while at < start + count:
            chunk, inside = divmod(at, CHUNK_ROWS)
            length = min(CHUNK_ROWS - inside, start + count - at)
            for piece, name in zip(pieces, columns, strict=True):
                piece.append(self._column(chunk, name).slice(inside, length))
            at += length
        arrays = [piece[0] if len(piece) == 1 else pa.concat_arrays(piece) for piece in pieces]
        return pa.record_batch(arrays, schema=pa.schema([self.schema.field(name) for name in columns]))

    def _column(self, chunk: int, name: str) -> pa.Array:
        """Keeps the columns of the last chunk, so that small batches do not make it again and again."""
        if chunk != self._chunk:
            self._chunk, self._made = chunk, {}
        if name not in self._made:
            first = chunk * CHUNK_ROWS
            made = self._make[name](chunk, np.arange(first, first + CHUNK_ROWS))
            self._made[name] = made.cast(self.schema.field(name).type)
        return self._made[name]


def event_times(start: int, rate: int, rows: Rows) -> Rows:
    """Evenly spaced: row i happens i/rate seconds after the start, in whole microseconds."""
    seconds, within = np.divmod(rows, rate)
    times: Rows = start + seconds * 1_000_000 + within * 1_000_000 // rate
    return times
