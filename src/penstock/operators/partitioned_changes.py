"""ISTREAM, DSTREAM and rules over the last n rows of each partition, from the groups that rows have entered or left.

An evaluation is of one partition and is compared with the evaluation before of the same partition, so `Changes` plays
the rows with the segments of their partitions. At a boundary of time all partitions are evaluated; only those with
groups that have changed can show something, so only these are played.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.operators.aggregation import Run
from penstock.operators.changes import Changes
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.evaluation import Turn
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive
from penstock.operators.partitioned_rows import PartitionedRows
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode


class PartitionedChanges(Operator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._rows = PartitionedRows(name, node, node.states, resources)
        self._partitions = self._rows.partitions
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
        self._reject_to = resources.reject
        self._rejected = 0
        self._none = Run(0, np.empty(0, np.int32), self._rows.intake.no_columns())

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        chunk = self._partitions.admitted(chunk)
        if not self._partitions.by_time:
            for part, _ in chunk.parts(watermark, self._rows.count):
                if part.rows:
                    self._enter(part)
            return Progress(self._outgoing.take(), watermark - 1)
        for step in self._partitions.walk(chunk, watermark, lambda: self._outgoing.made + self._rejected):
            if isinstance(step, int):
                self._evaluate_all(step)
            else:
                self._enter(step)
        return Progress(self._outgoing.take(), watermark)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    @property
    def heeds_time(self) -> bool:
        return self._partitions.by_time

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self._rejected += 1
        self._reject_to(reason, row)

    def _enter(self, chunk: Chunk) -> None:
        """Rows enter; without a slide of time each may make its partition due."""
        partitions, due, added, removed, gone_upto, starts, _ = self._rows.enter(chunk)
        evaluates = np.zeros(chunk.rows, np.bool_) if self._partitions.by_time else due
        turn = Turn(added, removed, np.arange(1, chunk.rows + 1), gone_upto, evaluates, starts, chunk.times)
        self._changes.play_partitions(turn, partitions)
        self._rows.forget(removed)

    def _evaluate_all(self, boundary: int) -> None:
        """One evaluation for each partition with changes that is due, in the order of their keys."""
        due = self._partitions.due_at_boundary()
        partitions = due[self._changes.changed(due)]
        if len(partitions) == 0:
            return
        nothing = np.zeros(len(partitions), np.int64)
        starts = self._partitions.queues.oldest[partitions]
        turn = Turn(self._none, self._none, nothing, nothing, nothing == 0, starts, nothing + boundary)
        self._changes.play_partitions(turn, partitions)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._partitions.last_boundary(last_time)
        return [] if end is None else self.process(Chunk(np.empty(0, np.int64), NO_ROWS), end).chunks

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
