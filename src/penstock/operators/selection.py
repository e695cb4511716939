"""The select list of a window without aggregation, evaluated when a row comes: its values are what the window keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from penstock.arrays import Bools
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column
from penstock.expressions.vector import Evaluated
from penstock.lang.query import Output
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Emitter
from penstock.operators.grouping import Grouping
from penstock.operators.resources import Resources
from penstock.plan.nodes import RelationNode
from penstock.plan.reads import GroupingKey


class Selected(NamedTuple):
    """The rows that are in the window, their values, and which of them are shown (None for all)."""

    chunk: Chunk
    values: list[Evaluated]
    keep: Bools | None


class Selection:
    """Outputs and sort keys are columns named `c0`, `c1`, ..., and the emitter reads them by these names."""

    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        emission = node.emission
        self.expressions = [o.expression for o in emission.outputs] + [o.expression for o in emission.order_by]
        self.names = [f"c{i}" for i in range(len(self.expressions))]
        self.types = [e.type for e in self.expressions]
        self._compiled = [compile_expression(e) for e in self.expressions]
        self._where = Grouping(GroupingKey(node.where, (), ()), [resources.reject])
        self._filter_first = node.filter_first
        kept = [Column(n, t) for n, t in zip(self.names, self.types, strict=True)]
        outputs, orders = kept[: len(emission.outputs)], kept[len(emission.outputs) :]
        shown = replace(
            emission,
            outputs=tuple(Output(o.name, c) for o, c in zip(emission.outputs, outputs, strict=True)),
            order_by=tuple(replace(o, expression=c) for o, c in zip(emission.order_by, orders, strict=True)),
        )
        compared = resources.account(f"{name}: rows that the next are compared with")
        self.emitter = Emitter(shown, node.schema, resources.reject, compared=compared)

    def select(self, chunk: Chunk) -> Selected:
        keep = self._where.passes(chunk)
        if keep is not None and self._filter_first:
            chunk, keep = chunk.filter(keep), None
        if chunk.rows == 0:
            return Selected(chunk, [], None)
        values = [compiled(chunk.columns) for compiled in self._compiled]
        for value in values:
            keep = self._where.without(chunk, keep, value.errors)
        return Selected(chunk, values, keep)
