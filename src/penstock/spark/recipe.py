"""The pipeline of a bucket: reordering and the query's operators over the bucket's own stores.

Invariants:
1. Stores are part of every snapshot and are restored before the operators that read them.
2. The watermark is always the one that the clock of the whole stream gives, never the bucket's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.engine.ingest import Ingest
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import StreamDef
from penstock.operators.emitter import Reject
from penstock.operators.pipeline import Pipeline
from penstock.operators.reorder import START, Reorder
from penstock.operators.resources import Resources
from penstock.plan.nodes import Node
from penstock.spark.stores import BucketStores
from penstock.store.budget import Budget

_UNSORTED = 1
"""Any lateness above zero tells the reorder operator that a batch need not be in order, which ours need not be."""


@dataclass(frozen=True)
class QueryRecipe:
    """`stream` has just the columns that are read; `memory` is for all buckets together."""

    node: Node
    stream: StreamDef
    buckets: int
    memory: int
    segments: str | None
    retain: int

    @property
    def fingerprint(self) -> str:
        return fingerprint((self.node, replace(self.stream, uri=None), self.buckets))

    @property
    def input_schema(self) -> pa.Schema:
        return _ingest(self.stream, _ignore).schema

    @property
    def lateness(self) -> int:
        return self.stream.lateness

    def create(self, bucket: int) -> BucketQuery:
        stores = BucketStores(Budget(self.memory // self.buckets), self.segments, bucket, retain=self.retain)
        return BucketQuery(self.node, self.stream, stores)


class BucketQuery:
    def __init__(self, node: Node, stream: StreamDef, stores: BucketStores) -> None:
        self._stream = stream
        self._stores = stores
        self.late = 0
        self.rejected = 0
        self._ingest = _ingest(stream, self._reject)
        resources = Resources(stores, self._reject)
        self._reorder = Reorder(stream.name, self._ingest.schema, _UNSORTED, stream.sequence, resources)
        self._pipeline = Pipeline("query", node, resources)

    def begin(self, batch: int) -> None:
        """A micro-batch begins, so the state of the one before is committed."""
        self._stores.commit()
        self._stores.begin(batch)

    def process(self, batch: pa.RecordBatch, watermark: int | None) -> list[pa.RecordBatch]:
        times, batch = self._ingest.times(batch, None)
        released = self._reorder.process(times, batch, START if watermark is None else watermark)
        if released.late is not None:
            self.late += released.late.num_rows
        progress = self._pipeline.push(self._stream.name, [released.chunk], released.watermark)
        return [chunk.columns for chunk in progress.chunks]

    def finish(self, last_time: int) -> list[pa.RecordBatch]:
        results = self.process(pa.RecordBatch.from_pylist([], self._ingest.schema), last_time)
        return results + [chunk.columns for chunk in self._pipeline.finish(last_time)]

    def snapshot(self) -> dict[str, Any]:
        saved = {"reorder": self._reorder.snapshot(), "pipeline": self._pipeline.snapshot()}
        saved["stores"] = self._stores.snapshot()
        self._stores.sync()
        return saved

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._stores.restore(snapshot["stores"])
        self._reorder.restore(snapshot["reorder"])
        self._pipeline.restore(snapshot["pipeline"])

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self.rejected += 1


def _ingest(stream: StreamDef, reject: Reject) -> Ingest:
    return Ingest(stream, stream.schema.fields, reject)


def _ignore(reason: str, row: dict[str, Any]) -> None:
    """For a recipe that only wants to know the schema."""
