"""SELECT without a window: rows are filtered and projected one by one, and keep their times."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.expressions.evaluate import compile_expression
from penstock.operators.chunk import Chunk
from penstock.operators.intake import Intake
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.plan.nodes import ProjectNode


class Project(Operator):
    def __init__(self, node: ProjectNode, resources: Resources) -> None:
        self._intake = Intake(node.where, (), (), node.input.schema, resources.reject)
        self._outputs = [compile_expression(o.expression) for o in node.outputs]
        self._schema = node.schema.arrow

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if chunk.rows == 0:
            return Progress([], watermark)
        keep = self._intake.passes(chunk)
        if keep is not None and not keep.all():
            chunk = chunk.filter(keep)
        keep = None
        columns = []
        for output in self._outputs:
            result = output(chunk.columns)
            keep = self._intake.without(chunk, keep, result.errors)
            columns.append(result.values)
        projected = Chunk(chunk.times, pa.RecordBatch.from_arrays(columns, names=self._schema.names))
        return Progress([projected if keep is None else projected.filter(keep)], watermark)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return []

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        pass
