"""UNION ALL: several ordered inputs become one, in the order of (time, position in FROM, sequence).

Invariant: a row waits until every input's watermark has passed its time, for until then an earlier row may come.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.chunk import Chunk, concat
from penstock.operators.operator import Operator, Progress
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.plan.nodes import UnionNode


class Union(Operator):
    def __init__(self, name: str, node: UnionNode, resources: Resources) -> None:
        self._schema = node.schema.arrow
        self._waiting: list[Chunk] = [concat([], self._schema) for _ in node.inputs]
        self._watermarks = [START] * len(node.inputs)
        self._account = resources.account(f"{name}: rows that wait for the other inputs")

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if chunk.rows:
            named = Chunk(chunk.times, pa.RecordBatch.from_arrays(chunk.arrow.columns, names=self._schema.names))
            self._waiting[port] = concat([self._waiting[port], named], self._schema)
        self._watermarks[port] = max(self._watermarks[port], watermark)
        reached = min(self._watermarks)
        return Progress([self._release(reached)], reached)

    def _release(self, before: int) -> Chunk:
        """The waiting rows with times below `before`, merged."""
        due = []
        for port, chunk in enumerate(self._waiting):
            count = int(np.searchsorted(chunk.times, before))
            due.append(chunk.slice(0, count))
            self._waiting[port] = chunk.slice(count, chunk.rows)
        self._account.resize(sum(c.arrow.nbytes for c in self._waiting))
        merged = concat(due, self._schema)
        if sum(chunk.rows > 0 for chunk in due) < 2:
            return merged
        order = np.argsort(merged.times, kind="stable")
        return Chunk(merged.times[order], merged.arrow.take(pa.array(order)))

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return [self._release(-START)]

    def snapshot(self) -> dict[str, Any]:
        return {
            "watermarks": list(self._watermarks),
            "waiting": [{"times": c.times, "rows": _to_bytes(c.arrow)} for c in self._waiting],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._watermarks = list(snapshot["watermarks"])
        self._waiting = [Chunk(c["times"], _from_bytes(c["rows"])) for c in snapshot["waiting"]]


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
