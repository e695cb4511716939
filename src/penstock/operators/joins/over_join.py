"""Aggregation over a join: its rows have the windows of the join."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.chunk import NO_EVENTS, Chunk
from penstock.operators.joins.core import JoinOutput
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive

_TIMESTAMP = pa.timestamp("us", tz="UTC")


class OverJoin(Operator):
    """An aggregation over the relation of a join. Its rows carry the windows of the join and not the stretch of time
    in which the relation came.

    Invariant: `starts` has the windows of all boundaries that the join has seen and the aggregation has not, for the
    join may have been called several times before its rows come here.
    """

    def __init__(self, operator: Operator, join: JoinOutput) -> None:
        self._operator = operator
        self._starts = join.note_starts()

    def send_to(self, receive: Receive) -> None:
        self._operator.send_to(lambda chunks: receive([self._placed(chunk) for chunk in chunks]))

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        chunks, reached = self._operator.process(chunk, watermark, port)
        placed = [self._placed(chunk) for chunk in chunks]
        while self._starts and self._starts[0][0][-1] <= watermark:
            self._starts.popleft()
        return Progress(placed, reached)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        """Up to the last boundary of the join, where its relation may be empty."""
        chunks: list[Chunk] = []
        if self._starts:
            ends, _ = self._starts[-1]
            chunks = self._operator.process(NO_EVENTS, int(ends[-1])).chunks
        return [self._placed(chunk) for chunk in chunks + self._operator.finish(last_time)]

    def end(self, last_time: int | None = None) -> int | None:
        return self._operator.end(last_time)

    def _placed(self, chunk: Chunk) -> Chunk:
        if chunk.rows == 0:
            return chunk
        ends = np.concatenate([ends for ends, _ in self._starts])
        starts = np.concatenate([starts for _, starts in self._starts])
        at = np.searchsorted(ends, chunk.times + 1)
        known = np.minimum(at, len(ends) - 1)
        assert (ends[known] == chunk.times + 1).all(), "a boundary that the join has not seen"
        rows = chunk.arrow
        return Chunk(chunk.times, rows.set_column(0, rows.schema.names[0], pa.array(starts[known], _TIMESTAMP)))

    def snapshot(self) -> dict[str, Any]:
        return self._operator.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._operator.restore(snapshot)
