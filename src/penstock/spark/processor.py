"""The stateful operator: one bucket's share of the query, called once per bucket and micro-batch.

What is committed with Spark's checkpoint, per bucket:
- `tag`: a name unique to the attempt that wrote the state, and the fingerprint of the query that it belongs to;
- `state`: the clock and the pipeline's snapshot, in the one format of `store.state`.

Invariants:
1. Spark commits both or neither. A live pipeline is used again only if its tag is the committed one (`spark.live`).
2. Every bucket is called in every micro-batch that has events, since every bucket gets clock rows.
3. All events of a micro-batch enter before the watermark passes any of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.errors import CheckpointError
from penstock.spark.clock import Clock
from penstock.spark.live import LiveObjects
from penstock.spark.packing import decode, encode
from penstock.store import state as state_format

OUTPUT_DDL = (
    "result binary, results bigint, events bigint, late bigint, rejected bigint, state_bytes bigint, "
    "last_time bigint, restored int"
)
"""Rows that carry packed results, and one row of figures per bucket and micro-batch."""


class BucketPipeline(Protocol):
    """What a bucket runs: the operators of one query over the bucket's share of the events."""

    def begin(self, batch: int) -> None:
        """A micro-batch begins; what was written in the one before is committed."""

    def process(self, batch: pa.RecordBatch, watermark: int | None) -> list[pa.RecordBatch]:
        """Takes events in any order; returns what became due. No watermark: nothing may be released yet."""

    def finish(self, last_time: int) -> list[pa.RecordBatch]:
        """The results up to the first boundary after `last_time`, the greatest time of the whole stream."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...

    @property
    def late(self) -> int:
        """Late events since the pipeline was made or restored."""

    @property
    def rejected(self) -> int:
        """Rejected events since the pipeline was made or restored."""


class PipelineRecipe(Protocol):
    """Makes the pipeline of a bucket in a worker. Travels to the workers, so it holds no open files."""

    @property
    def fingerprint(self) -> str:
        """State with another fingerprint does not fit."""

    @property
    def input_schema(self) -> pa.Schema: ...

    @property
    def lateness(self) -> int: ...

    def create(self, bucket: int) -> BucketPipeline: ...


@dataclass
class _Live:
    pipeline: BucketPipeline
    clock: Clock


_live: LiveObjects[_Live] = LiveObjects()
"""One per Python worker, for all queries that it serves."""


class BucketProcessor(StatefulProcessor):
    def __init__(self, recipe: PipelineRecipe) -> None:
        self._recipe = recipe

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tag = handle.getValueState("tag", "tag string, fingerprint string")
        self._state = handle.getValueState("state", "state binary")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        (bucket,) = key
        query, batch_id = _task_of_query()
        live, restored = self._take(bucket)
        live.pipeline.begin(batch_id)
        clock = live.clock
        packs: list[Row] = []
        for row in rows:
            if row.events is None:
                clock = clock.advanced(row.t_min, row.t_max)
            else:
                packs.append(row)
        if live.clock.ended and packs:
            raise CheckpointError(
                "this stream was ended: its windows are closed and cannot take more events; "
                "start again with a new checkpoint directory"
            )
        late, rejected = live.pipeline.late, live.pipeline.rejected
        events = 0
        for batch, watermark in _steps(packs, live.clock, clock, self._recipe):
            events += batch.num_rows
            yield from _results(live.pipeline.process(batch, watermark))
        if clock.ended and not live.clock.ended and clock.last is not None:
            yield from _results(live.pipeline.finish(clock.last))
        live.clock = clock
        yield Row(
            result=None,
            results=0,
            events=events,
            late=live.pipeline.late - late,
            rejected=live.pipeline.rejected - rejected,
            state_bytes=self._keep(live, query, batch_id),
            last_time=clock.last,
            restored=restored,
        )

    def _take(self, bucket: int) -> tuple[_Live, int]:
        """The bucket's live pipeline, and 1 if it had to be restored from its state."""
        committed = self._tag.get()
        if committed is None:
            return _Live(self._recipe.create(bucket), Clock()), 0
        tag, fingerprint = committed
        if fingerprint != self._recipe.fingerprint:
            raise CheckpointError(
                "the checkpoint belongs to another query, stream, lateness or number of buckets; "
                "use the query that it was made with, or a new checkpoint directory"
            )
        live = _live.take(tag)
        if live is not None:
            return live, 0
        saved_state = self._state.get()
        assert saved_state is not None, "the tag and the state are committed together"
        saved = state_format.decode(bytes(saved_state[0]))
        pipeline = self._recipe.create(bucket)
        pipeline.restore(saved["pipeline"])
        return _Live(pipeline, Clock(saved["first"], saved["last"], saved["ended"])), 1

    def _keep(self, live: _Live, query: str, batch_id: int) -> int:
        """Writes the state and files the live pipeline under its tag; returns the bytes written."""
        payload = state_format.encode(
            {
                "first": live.clock.first,
                "last": live.clock.last,
                "ended": live.clock.ended,
                "pipeline": live.pipeline.snapshot(),
            }
        )
        tag = uuid.uuid4().hex
        self._tag.update((tag, self._recipe.fingerprint))
        self._state.update((payload,))
        _live.put(tag, query=query, batch=batch_id, live=live)
        return len(payload)


def _steps(
    packs: list[Row], before: Clock, after: Clock, recipe: PipelineRecipe
) -> Iterable[tuple[pa.RecordBatch, int | None]]:
    """The packs in the order of time, each with the watermark up to which its successors hold nothing.

    The watermark moves within the micro-batch so that the reorder buffer never holds more than packs that overlap.
    """
    schema = recipe.input_schema
    floor = before.watermark(recipe.lateness)
    ceiling = after.watermark(recipe.lateness)
    # The bytes break ties, so that the order does not depend on the shuffle's.
    packs.sort(key=lambda row: (row.t_min is not None, row.t_min or 0, row.t_max or 0, row.events))
    for index, row in enumerate(packs):
        following = packs[index + 1].t_min if index + 1 < len(packs) else None
        watermark = floor
        if ceiling is not None and following is not None:
            watermark = min(ceiling, following - 1)
            watermark = watermark if floor is None else max(floor, watermark)
        yield decode(row.events, schema), watermark
    if ceiling is not None:
        yield pa.RecordBatch.from_pylist([], schema), ceiling


def _results(batches: list[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        if batch.num_rows:
            yield Row(
                result=encode(batch),
                results=batch.num_rows,
                events=0,
                late=0,
                rejected=0,
                state_bytes=0,
                last_time=None,
                restored=0,
            )


def _task_of_query() -> tuple[str, int]:
    """The id of the streaming query and of its micro-batch; a batch query has neither."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    return query or "", int(batch or 0)
