"""SELECT without a window: rows are filtered and projected one by one, and keep their times."""

from __future__ import annotations

from typing import Any

from penstock.components import component
from penstock.expressions.batch import Row
from penstock.expressions.evaluate import UNCERTAIN, compile_expression
from penstock.expressions.tree import columns
from penstock.operators.chunk import Chunk, computed
from penstock.operators.grouping import Grouping
from penstock.operators.operator import Operator, Progress
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.row_selection import RowSelection
from penstock.plan.nodes import ProjectNode
from penstock.plan.reads import GroupingKey


@component("Project")
class Project(Operator):
    def __init__(self, node: ProjectNode, resources: Resources) -> None:
        self._where = Grouping(GroupingKey(node.where, (), ()), [resources.reject])
        self._outputs = [compile_expression(o.expression) for o in node.outputs]
        self._names = node.schema.arrow.names
        self._of_one_row = RowSelection(node.where, self._names, [o.expression for o in node.outputs])
        self.row_filter = self._of_one_row.where
        self._nothing = Progress([], START)
        self._reads = sorted({name for output in node.outputs for name in columns(output.expression)})

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        rows = chunk.columns
        if isinstance(rows, Row):
            try:
                shown = self._of_one_row.shown(rows.values)
            except UNCERTAIN:
                return self._process(chunk, watermark)
            if shown is not None:
                return Progress([Chunk(chunk.times, shown)], watermark)
            if self._nothing.watermark != watermark:
                self._nothing = Progress([], watermark)
            return self._nothing
        return self._process(chunk, watermark) if chunk.rows else Progress([], watermark)

    def _process(self, chunk: Chunk, watermark: int) -> Progress:
        passed = self._where.passes(chunk)
        rows = chunk
        if passed is not None and not passed.all():
            if not passed.any():
                return Progress([], watermark)
            rows = self._with_what_is_read(chunk).filter(passed)
        keep = None
        values = []
        for output in self._outputs:
            result = output(rows.columns)
            if result.errors is not None:
                whole = chunk if rows is chunk or passed is None else chunk.filter(passed)
                keep = self._where.without(whole, keep, result.errors)
            values.append(result)
        projected = computed(rows.times, self._names, values)
        return Progress([projected if keep is None else projected.filter(keep)], watermark)

    def _with_what_is_read(self, chunk: Chunk) -> Chunk:
        """What no output reads need not be copied."""
        if not self._reads or len(self._reads) == chunk.arrow.num_columns:
            return chunk
        return Chunk(chunk.times, chunk.arrow.select(self._reads))

    @property
    def heeds_time(self) -> bool:
        return False

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return []

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        pass
