"""UNION ALL: several ordered inputs become one, in the order of (time, position in FROM, sequence)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.chunk import Chunk, concat
from penstock.operators.operator import Operator, Progress
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.plan.nodes import UnionNode


class Union(Operator):
    def __init__(self, name: str, node: UnionNode, resources: Resources) -> None:
        self._schema = node.schema.arrow
        self._nothing = concat([], self._schema)
        account = resources.account(f"{name}: rows that wait for the other inputs")
        self._ports = Ports(len(node.inputs), account)

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if chunk.rows:
            chunk = Chunk(chunk.times, pa.RecordBatch.from_arrays(chunk.arrow.columns, names=self._schema.names))
        reached = self._ports.put(port, chunk, watermark)
        due = self._ports.take_due()
        return Progress([self._merged(due) if due else self._nothing], reached)

    def waits_for(self, port: int, watermark: int) -> bool:
        return bool(self._ports.heads)

    def _merged(self, due: Due) -> Chunk:
        merged = concat([chunk for port in sorted(due) for chunk in due[port]], self._schema)
        if len(due) < 2:
            return merged
        order = np.argsort(merged.times, kind="stable")
        return Chunk(merged.times[order], merged.arrow.take(pa.array(order)))

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return [self._merged(self._ports.take(-START))]

    def snapshot(self) -> dict[str, Any]:
        return self._ports.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._ports.restore(snapshot)
