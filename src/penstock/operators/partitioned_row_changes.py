"""ISTREAM and DSTREAM with every event of plain rows per partition.

A partition's evaluation differs from the one before by the arriving row and the row that leaves for it. If both are
equal nothing changes; else ISTREAM is the one and DSTREAM the other, each if it passes WHERE.
`plan.aggregations.changes_by_one_row` says which nodes it serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools
from penstock.components import component
from penstock.lang.query import Emit
from penstock.operators.chunk import Chunk
from penstock.operators.columns import image_of
from penstock.operators.emitter import as_chunk
from penstock.operators.partitioned_operator import in_memory
from penstock.operators.partitioned_relation import PartitionedRelation
from penstock.operators.resources import Resources
from penstock.operators.zero_signs import ZeroSigns
from penstock.plan.nodes import RelationNode


@component("PartitionedRowChanges", 2, in_memory)
class PartitionedRowChanges(PartitionedRelation):
    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        super().__init__(name, node, resources)
        self._names = node.schema.names
        self._inserts = node.emission.emit is Emit.ISTREAM
        self._types = [output.expression.type for output in node.emission.outputs]
        self._signs: ZeroSigns | None = None
        if not self._inserts and any(kind.is_floating for kind in self._types):
            self._signs = ZeroSigns(self._types, resources.account(f"{name}: zeros among rows"))

    def _per_event(self, chunk: Chunk) -> None:
        partitions, _, columns = self._take(chunk)
        left, left_upto, oldest = self._partitions.enter(partitions, columns)
        gone = np.diff(left_upto, prepend=0) > 0
        events = np.flatnonzero(gone)
        same = self._equal(left, [column.at(events) for column in columns])
        if self._inserts:
            shown = columns[1].values != 0
            shown[events] &= ~same
            rows, chosen = columns, np.flatnonzero(shown)
            events = chosen
        else:
            rows = list(left)
            if self._signs is not None:
                leaves = np.where(gone, left_upto - 1, -1)
                rows[2:] = self._signs.exchange(leaves, partitions, left[1:], columns[1:])
            chosen = np.flatnonzero((left[1].values != 0) & ~same)
            events = events[chosen]
        if len(chosen):
            batch = self._kept.batch([column.at(chosen) for column in rows])
            self._outgoing.put(as_chunk(self._names, batch.columns, oldest[events], chunk.times[events]))
        self._kept.leave(left)

    def _equal(self, some: Sequence[Argument], others: Sequence[Argument]) -> Bools:
        """Which rows are shown on both sides and have equal values."""
        equal: Bools = (some[1].values != 0) & (others[1].values != 0)
        for one, other, kind in zip(some[2:], others[2:], self._types, strict=True):
            (values, valid), (other_values, other_valid) = image_of(one, kind), image_of(other, kind)
            if valid is None and other_valid is None:
                equal &= values == other_values
            else:
                there = np.ones(len(values), np.bool_) if valid is None else valid
                other_there = np.ones(len(values), np.bool_) if other_valid is None else other_valid
                equal &= (there == other_there) & (~there | (values == other_values))
        return equal

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"signs": None if self._signs is None else self._signs.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        if self._signs is not None:
            self._signs.restore(snapshot["signs"])
