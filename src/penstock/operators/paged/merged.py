"""Groups that shards show, as columns of a run: the keys, the aggregates that queries ask for, where one overflowed.

#0, #1, ... the keys | $0, $1, ... the answers, in their order | !0, !3, ... of those that can fail, whether it did
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.vector import Vector
from penstock.operators.aggregation import EvaluatedGroups
from penstock.plan.nodes import AggregateNode, Answer
from penstock.types import SqlType


def _kinds(node: AggregateNode, answers: Sequence[Answer]) -> dict[str, SqlType]:
    kinds = {f"#{i}": key.type for i, key in enumerate(node.group_by)}
    kinds |= {f"${i}": answer.type for i, answer in enumerate(answers)}
    return kinds | {f"!{i}": SqlType.BOOLEAN for i, answer in enumerate(answers) if _can_fail(node, answer)}


def _can_fail(node: AggregateNode, answer: Answer) -> bool:
    if answer.state < 0:
        return False
    state = node.states[answer.state]
    return state.traits.can_fail(tuple(arg.type for arg in state.args))


def shown_schema(node: AggregateNode, answers: Sequence[Answer]) -> pa.Schema:
    return pa.schema([pa.field(name, kind.arrow) for name, kind in _kinds(node, answers).items()])


def shown_rows(
    node: AggregateNode, answers: Sequence[Answer], keys: Sequence[Data], played: EvaluatedGroups
) -> pa.RecordBatch:
    """The groups of evaluations that were played."""
    kinds, rows = _kinds(node, answers), len(played.slots)
    data: dict[str, Data] = {f"#{i}": key for i, key in enumerate(keys)}
    data |= {f"${i}": played.column(answer) for i, answer in enumerate(answers)}
    for i, answer in enumerate(answers):
        if f"!{i}" in kinds:
            failed = played.failed((answer,))
            data[f"!{i}"] = Vector(np.zeros(rows, np.bool_) if failed is None else failed, None)
    batch = Batch(kinds, data, rows)
    return pa.RecordBatch.from_arrays([batch.column(name) for name in kinds], schema=shown_schema(node, answers))


class MergedGroups(EvaluatedGroups):
    """Groups out of runs, as those who show them take them."""

    def __init__(self, batch: pa.RecordBatch, answers: Sequence[Answer], upto: Int64s) -> None:
        super().__init__(np.arange(batch.num_rows, dtype=np.int32), upto, np.empty(0, np.int64), (), ())
        self._failed: dict[Answer, Bools] = {}
        for i, answer in enumerate(answers):
            self.give(answer, batch.column(f"${i}"))
            if f"!{i}" in batch.schema.names:
                self._failed[answer] = batch.column(f"!{i}").to_numpy(zero_copy_only=False)

    def failed(self, answers: tuple[Answer, ...]) -> Bools | None:
        found = [self._failed[answer] for answer in answers if answer in self._failed]
        return np.logical_or.reduce(found) if found else None
