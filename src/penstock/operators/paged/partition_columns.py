"""What of the rows of partitions goes to their log, and how an operator in memory finds it there.

    place | #0, #1, ... the keys | $0, $1, ... what is read | & | @ | +

    place       where the row is in the stream: the first column of a log, which never falls. `LEFT_BEHIND` for rows
                that were in memory before there was a log
    keys        those of the partition, and behind them those of the group
    what is read  the arguments and filters of states, or the select list and what it is ordered by
    &           whether the row passes WHERE, and nothing failed on it
    @           its time
    +           its number in its partition, 0 where it follows from the row before; only where partitions count

An operator that plays rows of a log has the same plan with columns of the log in place of expressions (`node`). So
nothing is computed twice, and nothing can fail on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s, UInt64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.tree import Column, Expression
from penstock.expressions.vector import ColumnView, Evaluated, Vector
from penstock.operators.chunk import Chunk
from penstock.operators.paged.hashing import key_hashes
from penstock.plan.nodes import AggregateNode, RelationNode, StreamNode
from penstock.plan.reads import Read, reads_of
from penstock.types import Field, Schema, SqlType
from penstock.windows.spec import RowsOf

Windowed = AggregateNode | RelationNode
"""A node over partitions."""

LEFT_BEHIND = -1

_KEPT, _TIME, _NUMBER = "&", "@", "+"


class PartitionColumns:
    """`node` is the plan of an operator that plays rows of the log. `key_types` are the types of all keys, those of the
    partition, by which rows go to shards, are the first `hashed_types`."""

    def __init__(self, node: Windowed) -> None:
        partition = node.partition_by
        keys = tuple(dict.fromkeys((*partition, *node.group_by) if isinstance(node, AggregateNode) else partition))
        self.key_types = tuple(key.type for key in keys)
        self.hashed_types = tuple(key.type for key in partition)
        self._kinds: dict[str, SqlType] = {f"#{i}": kind for i, kind in enumerate(self.key_types)}
        self._kinds |= {f"${i}": kind for i, kind in enumerate(_types_read(node))}
        self._kinds |= {_KEPT: SqlType.BOOLEAN}
        self._names = list(self._kinds)
        self.counts = (node.window.slide.events or 1) > 1
        """Whether the number of a row in its partition says when that is looked at."""
        self._kinds |= {_TIME: SqlType.BIGINT} | ({_NUMBER: SqlType.BIGINT} if self.counts else {})
        extent = node.window.extent
        self._limit = extent.limit
        self._own_limit = node.window.partition_by.index(extent.column) if isinstance(extent, RowsOf) else 0
        self.node = self._over_log(node, keys)

    def _over_log(self, node: Windowed, keys: Sequence[Expression]) -> Windowed:
        columns = {name: Column(name, kind) for name, kind in self._kinds.items()}
        key_of: dict[Expression, Expression] = {key: columns[f"#{i}"] for i, key in enumerate(keys)}
        schema = Schema(tuple(Field(name, self._kinds[name]) for name in self._names))
        log = StreamNode("", schema)
        where, partition = columns[_KEPT], tuple(key_of[key] for key in node.partition_by)
        if isinstance(node, RelationNode):
            outputs, orders = node.emission.outputs, node.emission.order_by
            emission = replace(
                node.emission,
                outputs=tuple(replace(o, expression=columns[f"${i}"]) for i, o in enumerate(outputs)),
                order_by=tuple(replace(o, expression=columns[f"${i}"]) for i, o in enumerate(orders, len(outputs))),
            )
            return replace(node, input=log, where=where, filter_first=False, partition_by=partition, emission=emission)
        places = {read.name: columns[f"${i}"] for i, read in enumerate(reads_of(node.states))}
        states = tuple(
            replace(
                state,
                args=tuple(places[Read(False, arg).name] for arg in state.args),
                filter=None if state.filter is None else places[Read(True, state.filter).name],
            )
            for state in node.states
        )
        group = tuple(key_of[key] for key in node.group_by)
        return replace(
            node, input=log, where=where, filter_first=False, partition_by=partition, group_by=group, states=states
        )

    @property
    def log_schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind.arrow) for name, kind in self._kinds.items()])

    # Rows go to the log

    def logged(
        self, keys: Sequence[Data], read: Sequence[Data], keep: Bools | None, times: Int64s, numbers: Int64s | None
    ) -> list[pa.Array]:
        """Rows as they are logged. `keep` are those that pass, None for all."""
        count = len(times)
        kept = Vector(np.ones(count, np.bool_) if keep is None else keep, None)
        data: list[Data] = [*keys, *read, kept, Vector(times, None)]
        if self.counts:
            data.append(Vector(np.zeros(count, np.int64) if numbers is None else numbers, None))
        batch = Batch(self._kinds, dict(zip(self._kinds, data, strict=True)), count)
        return [batch.column(name) for name in self._kinds]

    # Rows of the log

    def chunk(self, batch: pa.RecordBatch) -> Chunk:
        """Rows as the operator takes them."""
        count = len(self._names)
        times: Int64s = batch.column(1 + count).to_numpy()
        return Chunk(times, pa.RecordBatch.from_arrays(batch.columns[1 : 1 + count], names=self._names))

    def places(self, batch: pa.RecordBatch, count: int) -> UInt64s:
        """Which of so many places, a power of two, each row has by its partition. They go by other bits than shards."""
        keys = batch.columns[1 : 1 + len(self.hashed_types)]
        places: UInt64s = key_hashes(keys, self.hashed_types, batch.num_rows) & np.uint64(count - 1)
        return places

    def partition(self, batch: pa.RecordBatch) -> list[Evaluated]:
        """The key of each row's partition."""
        return [ColumnView(batch.column(1 + i), kind) for i, kind in enumerate(self.hashed_types)]

    def limits(self, batch: pa.RecordBatch) -> Int64s | int:
        """How many rows the partitions of rows keep."""
        if self._limit is not None:
            return self._limit
        limits: Int64s = batch.column(1 + self._own_limit).to_numpy().astype(np.int64)
        return limits

    def numbers(self, batch: pa.RecordBatch) -> Int64s | None:
        """The numbers of rows in their partitions, where they are logged."""
        return batch.column(batch.num_columns - 1).to_numpy() if self.counts else None

    def with_numbers(self, batch: pa.RecordBatch, numbers: Int64s) -> pa.RecordBatch:
        """The same rows with these numbers."""
        return batch.set_column(batch.num_columns - 1, _NUMBER, pa.array(numbers)) if self.counts else batch


def _types_read(node: Windowed) -> list[SqlType]:
    if isinstance(node, RelationNode):
        emission = node.emission
        selected = [o.expression.type for o in emission.outputs]
        return selected + [o.expression.type for o in emission.order_by]
    return [SqlType.BOOLEAN if read.is_filter else read.expression.type for read in reads_of(node.states)]
