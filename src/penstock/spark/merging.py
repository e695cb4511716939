"""The last step of programs with partial aggregates: parts of an evaluation, from all buckets, become its rows.

All buckets close a boundary in the same micro-batch, since all have the same clock; so the parts of an evaluation meet
in one micro-batch, and merging needs no state of its own. They are brought together by `part`, a hash of window_end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.operators.merging import Merge
from penstock.operators.partial_rows import partial_schema
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode
from penstock.plan.placement import Spread
from penstock.spark.bucket_app import REJECTS, BucketMaker
from penstock.spark.failures import plainly
from penstock.spark.packing import REJECTED, decode, encode, reject_row
from penstock.store.batches import decoded
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager

TAGGED_DDL = "name string, rows bigint, packed binary"
TAGGED = pa.schema([("name", pa.string()), ("rows", pa.int64()), ("packed", pa.binary())])


class Merger:
    """Merges the tagged rows that one task gets in a micro-batch; what is not partial passes. `tasks` do so at the same
    time, so that each has its part of the memory."""

    def __init__(self, recipe: BucketMaker, tasks: int) -> None:
        self._memory = recipe.memory
        self._tasks = tasks
        self._nodes: dict[str, AggregateNode] = {
            query.name: node
            for share in recipe.shares
            if share.placement.spread is Spread.PARTIALS
            for query, node in zip(share.queries, share.nodes, strict=True)
            if isinstance(node, AggregateNode)
        }

    def budget(self) -> Budget:
        """What a task has."""
        return Budget(max(1, self._memory // self._tasks), self._tasks, "tasks that merge")

    def merge(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._nodes}
        for batch in batches:
            for name, rows, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if name in parts:
                    parts[name].append(decode(packed, partial_schema(self._nodes[name])))
                else:
                    yield _tagged(name, rows, packed)
        rejected: list[dict[str, str]] = []
        stores = StoreManager(self.budget(), None)
        resources = Resources(stores, lambda reason, row: rejected.append(reject_row(reason, row)))
        for name in self._nodes:
            for chunk in Merge(name, self._nodes[name], resources).merge(parts.pop(name)):
                yield _tagged(name, chunk.rows, encode(decoded(chunk.arrow)))
        if rejected:
            yield _tagged(REJECTS, len(rejected), encode(pa.RecordBatch.from_pylist(rejected, REJECTED)))


def merge(results: DataFrame, recipe: BucketMaker, parts: int) -> DataFrame:
    """The tagged rows `(name, part, rows, packed)` with partial ones merged."""
    merger = Merger(recipe, parts)
    together = results.repartition(parts, "part").select("name", "rows", "packed")
    return together.mapInArrow(lambda batches: plainly(merger.merge(batches)), TAGGED_DDL)


def _tagged(name: str, rows: int, packed: bytes) -> pa.RecordBatch:
    return pa.record_batch([[name], [rows], [packed]], schema=TAGGED)
