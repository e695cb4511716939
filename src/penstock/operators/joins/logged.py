"""What of the rows of one side of a join goes to its log, and how it comes back.

    time | #0, #1, ... the key of the shards | the other keys | $column, ... what is kept and compared | @ the event

Keys are there as they were computed, so that a row of the log needs no other column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots, UInt64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column
from penstock.expressions.vector import Vector
from penstock.operators.chunk import Chunk
from penstock.operators.joins.rows import JoinRows
from penstock.operators.paged.hashing import key_hashes
from penstock.operators.paged.held import keys_or_null
from penstock.plan.joins.steps import Keys
from penstock.plan.nodes import JoinNode

LEFT_BEHIND = -1
"""Instead of the event, for rows that came before there was a log."""


class LoggedSide:
    """`key` is what rows go to shards by, `keys` are all that the side is looked up by, `kept` and `moments` the
    columns that are stored and compared."""

    def __init__(
        self, node: JoinNode, place: int, key: Keys, keys: Sequence[Keys], kept: Sequence[str], moments: Sequence[str]
    ) -> None:
        side = node.sides[place]
        self.window = side.window
        self.schema = node.inputs[side.input].schema
        self.input = side.input
        self.key_types = tuple(part.type for part in key)
        self.kept, self.moments = list(kept), list(moments)
        self._where = None if side.where is None else compile_expression(side.where)
        self._keys = [key, *(own for own in keys if own != key)]
        kinds = {field.name: field.type for field in self.schema}
        self._columns = {name: kinds[name] for name in dict.fromkeys([*kept, *moments])}
        parts = [part for own in self._keys for part in own]
        numbered = {f"#{i}": part.type for i, part in enumerate(parts)}
        self.computed: dict[Keys, Keys] = {}
        """In which columns of a chunk out of the log the keys are."""
        for own in self._keys:
            taken = sum(map(len, self.computed.values()))
            self.computed[own] = tuple(Column(f"#{taken + i}", part.type) for i, part in enumerate(own))
        self._expressions = [compile_expression(part) for part in parts]
        self._expressions += [compile_expression(Column(name, kind)) for name, kind in self._columns.items()]
        self._kinds = numbered | {f"${name}": kind for name, kind in self._columns.items()}
        self._names = [*numbered, *self._columns]

    @property
    def log_schema(self) -> pa.Schema:
        fields = [pa.field(name, kind.arrow) for name, kind in self._kinds.items()]
        return pa.schema([*fields, pa.field("@", pa.int64())])

    def of(self, chunk: Chunk, events: Int64s) -> tuple[Int64s, list[pa.Array]]:
        """Rows as they are logged, without those that fail the side's condition; `events` are their numbers."""
        if self._where is not None and chunk.rows:
            passing = self._where(chunk.columns).true
            chunk, events = chunk.filter(passing), events[passing]
        if chunk.rows == 0:
            return chunk.times, []
        values = [expression(chunk.columns).values for expression in self._expressions]
        return chunk.times, [*values, pa.array(events)]

    def of_held(self, rows: JoinRows, times: Int64s, data: dict[str, Data], slots: dict[Keys, Slots]) -> list[pa.Array]:
        """The same of rows that have been in memory."""
        count = len(times)
        columns: list[pa.Array] = []
        for own in self._keys:
            columns += keys_or_null(rows.indexes[own].table, slots[own], [key.type for key in own])
        for name, kind in self._columns.items():
            held = data[name] if name in data else _moments(times, rows.shifts.get(name))
            columns.append(Batch({name: kind}, {name: held}, count).column(name))
        return [*columns, pa.array(np.full(count, LEFT_BEHIND))]

    def chunk(self, batch: pa.RecordBatch) -> Chunk:
        """Rows out of the log."""
        rows = pa.RecordBatch.from_arrays(batch.columns[1:-1], names=self._names)
        times: Int64s = batch.column(0).to_numpy()
        return Chunk(times, rows)

    def places(self, batch: pa.RecordBatch, count: int) -> UInt64s:
        """Which of so many places, a power of two, each row has by its key. They go by other bits than shards."""
        keys = batch.columns[1 : 1 + len(self.key_types)]
        places: UInt64s = key_hashes(keys, self.key_types, batch.num_rows) & np.uint64(count - 1)
        return places


def events_of(batch: pa.RecordBatch) -> Int64s:
    """The numbers of the events that rows of a log are of."""
    events: Int64s = batch.column(batch.num_columns - 1).to_numpy()
    return events


def _moments(times: Int64s, shift: int | None) -> Vector:
    """A column that follows the times; where it does not, NULLs say so."""
    if shift is None:
        return Vector(times, np.zeros(len(times), np.bool_))
    return Vector(times + shift, None)
