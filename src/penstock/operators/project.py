"""SELECT without a window: rows are filtered and projected one by one, and keep their times."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.expressions.evaluate import compile_expression
from penstock.operators.chunk import Chunk
from penstock.operators.grouping import Grouping
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.plan.nodes import ProjectNode
from penstock.plan.reads import GroupingKey


class Project(Operator):
    def __init__(self, node: ProjectNode, resources: Resources) -> None:
        self._where = Grouping(GroupingKey(node.where, (), ()), [resources.reject])
        self._outputs = [compile_expression(o.expression) for o in node.outputs]
        self._schema = node.schema.arrow

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if chunk.rows == 0:
            return Progress([], watermark)
        keep = self._where.passes(chunk)
        if keep is not None and not keep.all():
            chunk = chunk.filter(keep)
        keep = None
        columns = []
        for output in self._outputs:
            result = output(chunk.columns)
            keep = self._where.without(chunk, keep, result.errors)
            columns.append(result.values)
        projected = Chunk(chunk.times, pa.RecordBatch.from_arrays(columns, names=self._schema.names))
        return Progress([projected if keep is None else projected.filter(keep)], watermark)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return []

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        pass
