"""Generated streams: every row once, in micro-batches of the size asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.generated import generated_stream
from penstock.types import Field, Schema, SqlType

SCHEMA = Schema((Field("n", SqlType.BIGINT, False), Field("name", SqlType.STRING, False)))


def numbers() -> Any:
    """Made inside a function, so that it travels to the workers by value: they do not know this file."""

    class Numbers:
        def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch:
            values = range(start, start + count)
            data = {"n": pa.array(values), "name": pa.array([f"row {n}" for n in values], pa.string())}
            return pa.record_batch(data).select(columns)

    return Numbers


@pytest.mark.slow
def test_every_row_comes_once_and_batches_are_bounded(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[list[tuple[int, str]]] = []

    def collect(frame: DataFrame, _batch: int) -> None:
        batches.append([(row.n, row.name) for row in frame.collect()])

    frame = generated_stream(spark, numbers(), SCHEMA, rows=1000, rows_per_batch=300, tasks=2)
    writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    assert sorted(row for batch in batches for row in batch) == [(n, f"row {n}") for n in range(1000)]


def test_without_an_end_it_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    batches: dict[int, list[int]] = {}

    def collect(frame: DataFrame, batch: int) -> None:
        batches[batch] = sorted(row.n for row in frame.collect())

    frame = generated_stream(spark, numbers(), SCHEMA, rows=None, rows_per_batch=10, tasks=2)
    running = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path)).start()
    try:
        while len(batches) < 3:
            assert running.isActive, running.exception()
            time.sleep(0.05)
    finally:
        running.stop()
    assert [batches[batch] for batch in range(3)] == [list(range(10 * i, 10 * i + 10)) for i in range(3)]
