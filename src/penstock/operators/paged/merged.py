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
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode, Answer
from penstock.types import SqlType


class ShownGroups:
    """The columns that the queries of `shows` ask for. Queries may come and go. If they are some of those that have the
    runs together, these are `among`."""

    def __init__(
        self, node: AggregateNode, shows: Sequence[ResultShow], among: Sequence[ResultShow] | None = None
    ) -> None:
        self._node = node
        self.shows = shows
        self._among = shows if among is None else among

    @property
    def answers(self) -> list[Answer]:
        """What the queries ask for that have the runs, each once."""
        return list(dict.fromkeys(answer for show in self._among for answer in show.answers))

    def rows(
        self, keys: list[Data], played: EvaluatedGroups, upto: Int64s | None
    ) -> tuple[pa.RecordBatch, Bools | None]:
        """Groups of evaluations that were played, which end at `upto` if that is known, and which of them some query
        may have results of; None for all."""
        kinds, count = self._kinds, len(played.slots)
        data: dict[str, Data] = {f"#{i}": key for i, key in enumerate(keys)}
        answers = self.answers
        data |= {f"${i}": played.column(answer) for i, answer in enumerate(answers)}
        for i, answer in enumerate(answers):
            if f"!{i}" in kinds:
                failed = played.failed((answer,))
                data[f"!{i}"] = Vector(np.zeros(count, np.bool_) if failed is None else failed, None)
        batch = Batch(kinds, data, count)
        columns = [batch.column(name) for name in kinds]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), may_show(self.shows, keys, played, upto)

    def joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        whole = pa.Table.from_batches(batches, self._schema).combine_chunks().to_batches()
        return whole[0] if whole else pa.RecordBatch.from_pylist([], self._schema)

    def keys(self, batch: pa.RecordBatch) -> list[Data]:
        return list(batch.columns[: len(self._node.group_by)])

    @property
    def _kinds(self) -> dict[str, SqlType]:
        answers = self.answers
        kinds = {f"#{i}": key.type for i, key in enumerate(self._node.group_by)}
        kinds |= {f"${i}": answer.type for i, answer in enumerate(answers)}
        return kinds | {f"!{i}": SqlType.BOOLEAN for i, answer in enumerate(answers) if self._can_fail(answer)}

    def _can_fail(self, answer: Answer) -> bool:
        if answer.state < 0:
            return False
        state = self._node.states[answer.state]
        return state.traits.can_fail(tuple(arg.type for arg in state.args))

    @property
    def names(self) -> list[str]:
        """Those of the columns."""
        return list(self._kinds)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind.arrow) for name, kind in self._kinds.items()])


def may_show(
    shows: Sequence[ResultShow], keys: list[Data], played: EvaluatedGroups, upto: Int64s | None
) -> Bools | None:
    """The groups that some of the queries may have results of; None for all."""
    found: Bools = np.zeros(len(played.slots), np.bool_)
    for show in shows:
        some = show.may_show(keys, played, upto)
        if some is None:
            return None
        found |= some
    return found


class MergedGroups(EvaluatedGroups):
    """Groups out of runs, as `ResultShow` takes them."""

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
