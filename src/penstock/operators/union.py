"""UNION ALL: several ordered inputs become one, in the order of (time, position in FROM, sequence).

Invariant: a row waits until every input's watermark has passed its time, for until then an earlier row may come.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.chunk import Chunk, concat, from_bytes, to_bytes
from penstock.operators.operator import Operator, Progress
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.plan.nodes import UnionNode


class Union(Operator):
    def __init__(self, name: str, node: UnionNode, resources: Resources) -> None:
        self._schema = node.schema.arrow
        self._waiting: list[deque[Chunk]] = [deque() for _ in node.inputs]
        self._watermarks = [START] * len(node.inputs)
        self._account = resources.account(f"{name}: rows that wait for the other inputs")
        self._held = 0

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if chunk.rows:
            rows = pa.RecordBatch.from_arrays(chunk.arrow.columns, names=self._schema.names)
            self._waiting[port].append(Chunk(chunk.times, rows))
            self._held += rows.nbytes
        self._watermarks[port] = max(self._watermarks[port], watermark)
        reached = min(self._watermarks)
        return Progress([self._release(reached)], reached)

    def _release(self, before: int) -> Chunk:
        """The waiting rows with times below `before`, merged."""
        due: list[Chunk] = []
        ports = 0
        for waiting in self._waiting:
            taken = len(due)
            while waiting and waiting[0].times[0] < before:
                chunk = waiting.popleft()
                self._held -= chunk.arrow.nbytes
                count = int(np.searchsorted(chunk.times, before))
                due.append(chunk.slice(0, count))
                if count < chunk.rows:
                    waiting.appendleft(chunk.slice(count, chunk.rows))
                    self._held += waiting[0].arrow.nbytes
            ports += len(due) > taken
        self._account.resize(self._held)
        merged = concat(due, self._schema)
        if ports < 2:
            return merged
        order = np.argsort(merged.times, kind="stable")
        return Chunk(merged.times[order], merged.arrow.take(pa.array(order)))

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return [self._release(-START)]

    def snapshot(self) -> dict[str, Any]:
        return {
            "watermarks": list(self._watermarks),
            "waiting": [
                [{"times": chunk.times, "rows": to_bytes(chunk.arrow)} for chunk in waiting]
                for waiting in self._waiting
            ],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._watermarks = list(snapshot["watermarks"])
        self._waiting = [
            deque(Chunk(c["times"], from_bytes(c["rows"])) for c in saved) for saved in snapshot["waiting"]
        ]
        self._held = sum(chunk.arrow.nbytes for waiting in self._waiting for chunk in waiting)
        self._account.resize(self._held)
