"""A program on Spark without Spark: events packed, shuffled, run in buckets and merged as there, without its seconds.

A committed state is what Spark would hand to the next attempt.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import streams
from penstock.plan.placement import Spread, place
from penstock.spark import processor as module
from penstock.spark.arrival import PLACE
from penstock.spark.bucket_app import REJECTS, BucketMaker
from penstock.spark.calls import call_schemas
from penstock.spark.merging import Merger
from penstock.spark.packing import REJECTED, decode, end_rows, packers
from penstock.spark.processor import BucketProcessor
from penstock.spark.shares import share_out

Events = list[dict[str, Any]]
BUCKETS, PARTS = 3, 2


class Value:
    """A ValueState whose changes can be thrown away."""

    nothing = None

    def __init__(self, committed: tuple[Any, ...] | None = None) -> None:
        self.committed = self.written = committed

    def get(self) -> tuple[Any, ...] | None:
        return self.written

    def update(self, value: tuple[Any, ...]) -> None:
        self.written = value

    def clear(self) -> None:
        self.written = None


class Map:
    """A MapState of the same kind."""

    nothing: Mapping[tuple[Any, ...], tuple[Any, ...]] = {}

    def __init__(self, committed: Mapping[tuple[Any, ...], tuple[Any, ...]] | None = None) -> None:
        self.committed = self.written = committed or {}

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(sorted(self.written.items(), reverse=True))

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.written = {**self.written, key: value}

    def clear(self) -> None:
        self.written = {}


@dataclass
class Bucket:
    label: str
    states: dict[str, Any] = field(default_factory=dict)

    def getValueState(self, name: str, _schema: str) -> Value:
        found: Value = self.states.setdefault(name, Value())
        return found

    def getMapState(self, name: str, _key: str, _value: str) -> Map:
        found: Map = self.states.setdefault(name, Map())
        return found

    def settle(self, *, commit: bool) -> None:
        for state in self.states.values():
            if commit:
                state.committed = state.written
            else:
                state.written = state.committed


class Run:
    """A program over all buckets, one micro-batch after the other; the order of everything that Spark gives no order
    is drawn from `chance`. `in_order` if the source knows the order in which events come: task by task."""

    def __init__(
        self,
        program: str,
        chance: random.Random,
        segments: Path | None = None,
        memory: int = 12_000_000,
        *,
        in_order: bool = False,
    ) -> None:
        parsed = parse(program)
        nodes = {query.name: build(query.body) for query in parsed.queries}
        read = set().union(*map(streams, nodes.values()))
        declared = tuple(stream for stream in parsed.streams if stream.name in read)
        shares = tuple(
            replace(
                share,
                labels=tuple(
                    f"{share.id}.{i}" for i in range(1 if share.placement.spread is Spread.ONE_PLACE else BUCKETS)
                ),
            )
            for share in share_out(
                declared,
                parsed.queries,
                nodes,
                place(parsed.queries, nodes),
                in_order=[stream.name for stream in declared] if in_order else (),
            )
        )
        sinks = tuple(sink.name for sink in parsed.sinks)
        self._chance = chance
        self._in_order = in_order
        self.late = 0
        """How many events of the last micro-batch were late."""
        self.recipe = BucketMaker(shares, sinks, (), memory, str(segments) if segments else None, retain=2)
        self._packers = packers(declared, shares)
        self._merger = Merger(self.recipe, 1)
        self._sources = {stream.name: stream.schema.arrow for stream in declared}
        self._schemas = {query.name: nodes[query.name].schema.arrow for query in parsed.queries}
        self._schemas |= {stream.late_into: stream.schema.arrow for stream in declared if stream.late_into is not None}
        self._schemas |= {name: schema.arrow for name, schema in call_schemas(parsed.queries).items()}
        self._schemas[REJECTS] = REJECTED
        self.spreads = {query.name: share.placement.spread for share in shares for query in share.queries}
        self.buckets = [Bucket(label) for share in shares for label in share.labels]
        self._batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._schemas}

    def attempt(self, batch_id: int, tasks: list[Mapping[str, Events]] | None) -> list[Any]:
        """What comes out of a micro-batch that some tasks read; without tasks it is the end of the streams."""
        if tasks is None:
            packed = [end_rows(tuple(bucket.label for bucket in self.buckets))]
        else:
            packed = [
                batch
                for number, task in enumerate(tasks)
                for packer in self._packers
                for batch in packer.pack(iter(self._source(packer.stream.name, task, number)))
            ]
        rows = [Row(**row) for batch in packed for row in batch.to_pylist()]
        self._chance.shuffle(rows)
        outputs: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_task_of_query", lambda: ("query", batch_id))
            for bucket in self.buckets:
                own = [row for row in rows if row.bucket == bucket.label]
                if own:
                    operator = BucketProcessor(self.recipe, PARTS, streaming=True)
                    operator.init(bucket)
                    outputs += operator.handleInputRows((bucket.label,), iter(own), None)
        self.late = sum(row.late for row in outputs)
        outputs = [row for row in outputs if row.packed]
        self._chance.shuffle(outputs)
        return [out for part in range(PARTS) for out in self._merged([row for row in outputs if row.part == part])]

    def _source(self, stream: str, task: Mapping[str, Events], number: int) -> list[pa.RecordBatch]:
        """What a task reads; in order it is cut into stretches."""
        events = pa.RecordBatch.from_pylist(task.get(stream, []), self._sources[stream])
        if not self._in_order:
            return [events]
        places = pa.array(np.arange(events.num_rows) + (number << 40))
        events = events.append_column(PLACE, places)
        cut = self._chance.randrange(events.num_rows + 1)
        return [events.slice(0, cut), events.slice(cut)]

    def _merged(self, rows: list[Any]) -> list[Any]:
        batch = pa.RecordBatch.from_pylist([{"name": r.name, "rows": r.rows, "packed": r.packed} for r in rows])
        return [row for out in self._merger.merge(iter([batch])) for row in out.to_pylist()] if rows else []

    def settle(self, results: list[Any], *, commit: bool) -> None:
        for bucket in self.buckets:
            bucket.settle(commit=commit)
        for row in results if commit else ():
            self._batches[row["name"]].append(decode(row["packed"], self._schemas[row["name"]]))

    def forget(self) -> None:
        """What has come out so far; `table` has what comes from now on."""
        for batches in self._batches.values():
            batches.clear()

    def table(self, name: str) -> pa.Table:
        return pa.Table.from_batches(self._batches[name], self._schemas[name])
