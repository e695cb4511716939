"""Where the condition of a rule becomes true: rows at which it holds and did not at the row before of the same key.

    key        a  b  a  a  b  a  a
    condition  1  0  1  0  1  0  1
    fires      a           b     a

Invariants:
1. `_groups.counts[slot]` is 1 for a key whose condition held at its last row, and 0 for the other keys. The other keys
   are forgotten between chunks, once there are enough of them: only keys whose condition holds are kept.
2. A row on which the condition or a key cannot be computed is rejected and counts as if it had not come.
3. What comes out depends on the rows of a key in their order, and not on how they were cut into chunks.

Why: docs/decisions/rules-are-queries.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.vector import Evaluated, RowErrors
from penstock.jit import kernel
from penstock.operators.chunk import NO_EVENTS, Chunk
from penstock.operators.grouping import without
from penstock.operators.groups import GroupTable
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.plan.nodes import EdgeNode


@kernel
def _rise(slots: Slots, holds: Bools, held: Int64s, fires: Int64s) -> tuple[int, int]:
    """Puts the rows that fire into `fires`; returns how many these are, and how many rows left their key without
    state."""
    fired = fell = 0
    for row in range(len(slots)):
        slot = slots[row]
        if slot < 0:
            continue
        if holds[row]:
            if held[slot] == 0:
                fires[fired] = row
                fired += 1
            held[slot] = 1
        else:
            held[slot] = 0
            fell += 1
    return fired, fell


@component("EdgeOperator")
class EdgeOperator(Operator):
    def __init__(self, name: str, node: EdgeNode, resources: Resources) -> None:
        self._condition = None if node.condition is None else compile_expression(node.condition)
        self._keys = [compile_expression(key) for key in node.keys]
        self._outputs = [compile_expression(output.expression) for output in node.outputs]
        self._names = node.schema.arrow.names
        self._reject = resources.reject
        account = resources.account(f"{name}: keys for which the condition is true")
        self._groups = GroupTable(tuple(key.type for key in node.keys), account)

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        results = [made for part, _ in chunk.parts(watermark) if part.rows and (made := self._fire(part)).rows]
        return Progress(results, watermark)

    def _fire(self, chunk: Chunk) -> Chunk:
        keep: Bools | None = None
        holds = np.ones(chunk.rows, np.bool_)
        if self._condition is not None:
            tested = self._condition(chunk.columns)
            keep = self._without(chunk, keep, tested.errors)
            holds = tested.true
        keys: list[Evaluated] = []
        for compiled in self._keys:
            key = compiled(chunk.columns)
            keep = self._without(chunk, keep, key.errors)
            keys.append(key)
        slots = self._groups.assign(keys, chunk.rows, keep)
        fires = np.empty(chunk.rows, np.int64)
        fired, fell = _rise(slots, holds, self._groups.counts, fires)
        self._groups.collect(fell)
        return self._shown(chunk, fires[:fired]) if fired else NO_EVENTS

    def _shown(self, whole: Chunk, fires: Int64s) -> Chunk:
        chunk = Chunk(whole.times[fires], whole.arrow.take(pa.array(fires)))
        keep: Bools | None = None
        columns = []
        for compiled in self._outputs:
            value = compiled(chunk.columns)
            keep = self._without(chunk, keep, value.errors)
            columns.append(value.values)
        shown = Chunk(chunk.times, pa.RecordBatch.from_arrays(columns, names=self._names))
        return shown if keep is None else shown.filter(keep)

    def _without(self, chunk: Chunk, keep: Bools | None, errors: RowErrors | None) -> Bools | None:
        return keep if errors is None else without(chunk, keep, errors, [self._reject])

    @property
    def heeds_time(self) -> bool:
        return False

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return []

    def snapshot(self) -> dict[str, Any]:
        return {"groups": self._groups.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._groups.restore(snapshot["groups"])
