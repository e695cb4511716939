"""The stateful operator driven by hand: micro-batches cut, shuffled, failed and moved to other workers at random.

A committed state is what Spark would hand to the next attempt. Everything else a real run does, without its seconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.spark import processor as module
from penstock.spark.live import LiveObjects
from penstock.spark.packing import END_OF_TIME, Packer, clock_rows, decode
from penstock.spark.placement import place
from penstock.spark.processor import BucketProcessor
from penstock.spark.recipe import QueryRecipe
from penstock.types import Schema

from .runs import embedded, in_order

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t LATENESS 5 SECONDS);"
QUERIES = [
    "SELECT k, COUNT(*) AS c, SUM(v) AS a, SUM(n) AS b FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "SELECT k, MIN(v) AS a, MAX(n) AS b FROM s [RANGE 1 MINUTE SLIDE 7 SECONDS] GROUP BY k",
    "SELECT k, LAST(n) AS a, COUNT(DISTINCT n) AS b FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k",
    "SELECT k, n % 2 AS o, AVG(v) AS a FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] WHERE n > 1 GROUP BY k, n % 2 DRAIN",
]
LABELS = (12, 6, 2)


class Value:
    """A ValueState whose changes can be thrown away."""

    def __init__(self) -> None:
        self.committed: tuple[Any, ...] | None = None
        self.written: tuple[Any, ...] | None = None

    def get(self) -> tuple[Any, ...] | None:
        return self.written

    def update(self, value: tuple[Any, ...]) -> None:
        self.written = value


@dataclass
class Bucket:
    label: int
    states: dict[str, Value] = field(default_factory=dict)

    def getValueState(self, name: str, _schema: str) -> Value:
        return self.states.setdefault(name, Value())

    def settle(self, *, commit: bool) -> None:
        for state in self.states.values():
            if commit:
                state.committed = state.written
            else:
                state.written = state.committed


class Run:
    """One query over all buckets, one micro-batch after the other."""

    def __init__(self, program: str, segments: Path | None) -> None:
        parsed = parse(program)
        (found,), (stream,) = parsed.queries, parsed.streams
        node = build(found.body)
        needed = needed_columns(stream, [node])
        stream = replace(stream, schema=Schema(tuple(f for f in stream.schema if f.name in needed)))
        self._packer = Packer(stream, place(node).keys, LABELS)
        self._recipe = QueryRecipe(node, stream, len(LABELS), 6_000_000, str(segments) if segments else None, retain=2)
        self._schema = node.schema.arrow
        self._source = parsed.streams[0].schema.arrow
        self.buckets = [Bucket(label) for label in LABELS]
        self.tables: list[pa.Table] = []

    def attempt(self, batch_id: int, tasks: list[list[dict[str, Any]]] | None, shuffle: random.Random) -> list[Any]:
        """What the buckets give for a micro-batch; without tasks it is the end of the stream."""
        packed = [clock_rows(LABELS, END_OF_TIME, END_OF_TIME)] if tasks is None else list(self._pack(tasks))
        rows = [Row(**row) for batch in packed for row in batch.to_pylist()]
        shuffle.shuffle(rows)
        results: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_task_of_query", lambda: ("query", batch_id))
            for bucket in self.buckets:
                own = [row for row in rows if row.bucket == bucket.label]
                if own:
                    operator = BucketProcessor(self._recipe)
                    operator.init(bucket)
                    results += [row for row in operator.handleInputRows((bucket.label,), iter(own), None) if row.result]
        return results

    def _pack(self, tasks: list[list[dict[str, Any]]]) -> Iterator[pa.RecordBatch]:
        for events in tasks:
            yield from self._packer.pack(iter([pa.RecordBatch.from_pylist(events, self._source)]))

    def settle(self, results: list[Any], *, commit: bool) -> None:
        for bucket in self.buckets:
            bucket.settle(commit=commit)
        if commit:
            self.tables += [pa.Table.from_batches([decode(row.result, self._schema)]) for row in results]

    @property
    def rows(self) -> list[Any]:
        return in_order(pa.concat_tables(self.tables)) if self.tables else []


events = st.lists(
    st.builds(
        lambda gap, ahead, k, v, n: {"gap": gap, "ahead": ahead, "k": k, "v": v, "n": n},
        st.integers(0, 8 * SECOND),
        st.integers(0, 4 * SECOND),
        st.sampled_from(["a", "b", "c", "d", None]),
        st.none() | st.floats(-1e9, 1e9) | st.sampled_from([1e16, -1e16, 1e-16]),
        st.none() | st.integers(-5, 5),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(events, st.sampled_from(QUERIES), st.integers(0, 2**32), st.booleans())
def test_rows_do_not_depend_on_how_it_ran(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, Any]], select: str, seed: int, on_disk: bool
) -> None:
    stream: list[dict[str, Any]] = []
    now = 100 * SECOND
    for number, event in enumerate(drawn):
        now += event["gap"]
        # No two events have the same time: among those the order of arrival would decide what LAST is.
        time = (now + event["ahead"]) // 100 * 100 + number
        stream.append({"t": time, "k": event["k"], "v": event["v"], "n": event["n"]})
    program = f"{STREAM} {select}"
    chance = random.Random(seed)
    run = Run(program, tmp_path_factory.mktemp("segments") if on_disk else None)
    at = batch_id = 0
    while at <= len(stream):
        size = chance.randrange(1, 12)
        piece = stream[at : at + size]
        split = chance.randrange(len(piece) + 1)
        tasks = [task for task in (piece[:split], piece[split:]) if task] if piece else None
        while chance.random() < 0.2:
            run.settle(run.attempt(batch_id, tasks, chance), commit=False)
        if chance.random() < 0.3:
            module._live = LiveObjects()
        run.settle(run.attempt(batch_id, tasks, chance), commit=True)
        batch_id += 1
        at = at + size if piece else len(stream) + 1
        if piece and at > len(stream):
            at = len(stream)
    assert run.rows == embedded(program, stream)
