"""Windows of several inputs joined: the operator, and what aggregates over it need to know of its windows."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.operators.chunk import Chunk
from penstock.operators.joins.core import NO_EVENTS, JoinCore
from penstock.operators.joins.rate_sizing import MatchWaits, RateSizer
from penstock.operators.joins.view import JoinView
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive
from penstock.operators.resources import Resources
from penstock.plan.nodes import JoinNode

_TIMESTAMP = pa.timestamp("us", tz="UTC")


class Join(Operator):
    """A query's part of a join. It has a core of its own, or shares one that the engine saves (`engine.join_cores`)."""

    def __init__(self, name: str, node: JoinNode, resources: Resources, core: JoinCore | None = None) -> None:
        self._owns = core is None
        self._core = core or JoinCore(name, [node], resources.apart())
        same = [view for view in self._core.views if isinstance(view, JoinView) and view.node == node]
        self._view = same[0] if same else JoinView(name, node, self._core)
        self._reader = self._core.add(self._view)
        self._lag = node.sides[0].window.lag
        resources.at_end(lambda: self._core.drop(self._reader))

    def note_starts(self) -> deque[tuple[Int64s, Int64s]]:
        """The ends and starts of windows that are evaluated from now on. The caller removes what it has read."""
        self._reader.starts = deque()
        return self._reader.starts

    @property
    def sizing(self) -> tuple[dict[str, RateSizer], MatchWaits]:
        """What sizes its windows, by side, and how long rows wait in them for a match."""
        return self._view.sizers, self._view.waits

    def send_to(self, receive: Receive) -> None:
        self._reader.inbox.receiver = receive

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        chunks, reached = self._core.process(self._reader, chunk, watermark, port)
        return Progress(chunks, reached - self._lag)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return self._core.finish(self._reader, last_time)

    def snapshot(self) -> dict[str, Any]:
        return {"view": self._view.snapshot(), "core": self._core.snapshot() if self._owns else None}

    def restore(self, snapshot: dict[str, Any]) -> None:
        if self._owns:
            self._core.restore(snapshot["core"])
        self._view.restore(snapshot["view"])


class OverJoin(Operator):
    """An aggregation over the relation of a join. Its rows carry the windows of the join and not the stretch of time
    in which the relation came.

    Invariant: `starts` has the windows of all boundaries that the join has seen and the aggregation has not, for the
    join may have been called several times before its rows come here.
    """

    def __init__(self, operator: Operator, join: Join) -> None:
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
