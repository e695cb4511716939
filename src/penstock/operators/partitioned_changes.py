"""ISTREAM, DSTREAM and rules over the last n rows of each partition, from the groups that rows have entered or left.

An evaluation is of one partition and is compared with the evaluation before of the same partition, so `Changes` plays
the rows with the segments of their partitions. At a boundary of time all partitions are evaluated; only those with
groups that have changed can show something, so only these are played.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.components import component
from penstock.operators.aggregation import RowRun
from penstock.operators.changes import Changes
from penstock.operators.chunk import Chunk
from penstock.operators.evaluation import RowMoves
from penstock.operators.partitioned_operator import PartitionedOperator
from penstock.operators.partitioned_rows import PartitionedRows
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode


@component("PartitionedChanges")
class PartitionedChanges(PartitionedOperator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._rows = PartitionedRows(name, node, node.states, resources)
        super().__init__(name, node, self._rows.partitions, self._rows.count, resources)
        self._changes = Changes(
            name,
            node,
            self._rows.intake,
            resources,
            owners=lambda: self._rows.owners,
            shown_keys=self._rows.shown_keys,
        )
        self._show = self._changes.show(node, node.answers, self._reject)
        self._outgoing = self._show.outgoing
        self._none = RowRun(0, np.empty(0, np.int32), self._rows.intake.no_columns())

    def _per_event(self, chunk: Chunk) -> None:
        self._enter(chunk, evaluates=True)

    def _only_enter(self, chunk: Chunk) -> None:
        self._enter(chunk, evaluates=False)

    def _enter(self, chunk: Chunk, *, evaluates: bool) -> None:
        partitions, due, added, removed, gone_upto, starts, _ = self._rows.enter(chunk)
        looks = due if evaluates else np.zeros(chunk.rows, np.bool_)
        turn = RowMoves(added, removed, np.arange(1, chunk.rows + 1), gone_upto, looks, starts, chunk.times)
        self._changes.play_partitions(turn, partitions)
        self._rows.forget(removed)

    def _evaluate_all(self, boundary: int) -> None:
        due = self._partitions.due_at_boundary()
        partitions = due[self._changes.changed(due)]
        if len(partitions) == 0:
            return
        nothing = np.zeros(len(partitions), np.int64)
        starts = self._partitions.queues.oldest[partitions]
        turn = RowMoves(self._none, self._none, nothing, nothing, nothing == 0, starts, nothing + boundary)
        self._changes.play_partitions(turn, partitions)

    def snapshot(self) -> dict[str, Any]:
        return {
            "changes": self._changes.snapshot(),
            "show": self._show.snapshot(),
            "rows": self._rows.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._rows.restore(snapshot["rows"])
        self._changes.restore(snapshot["changes"])
        self._show.restore(snapshot["show"])
