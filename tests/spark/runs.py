"""Runs one query on both runtimes, so that tests can compare their rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock import App
from penstock.lang import parse
from penstock.lang.query import StreamDef
from penstock.spark import query, run
from penstock.spark.progress import Figures
from penstock.spark.schema import ddl

Events = Sequence[dict[str, Any]]
Row = tuple[Any, ...]


def stream_of(program: str) -> StreamDef:
    (stream,) = parse(program).streams
    return stream


def embedded(program: str, events: Events) -> list[Row]:
    stream = stream_of(program)
    with App(program) as app:
        app.push(stream.name, pa.RecordBatch.from_pylist(list(events), stream.schema.arrow))
        app.finish()
        return in_order(app.results("q1"))


def in_order(table: pa.Table) -> list[Row]:
    """The rows with times in microseconds, in an order that only depends on what they are."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True)) if table.num_rows else []
    return sorted(rows, key=repr)


def write_batches(directory: Path, program: str, batches: Iterable[Events], first: int = 0) -> None:
    """One Parquet file per micro-batch: Spark takes files in the order of their modification times."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, events in enumerate(batches, first):
        file = directory / f"{number:04}.parquet"
        pq.write_table(pa.Table.from_pylist(list(events), stream_of(program).schema.arrow), file)
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))


def read_batches(spark: SparkSession, directory: Path, program: str) -> DataFrame:
    """A stream of the files, each a micro-batch of its own."""
    reader = spark.readStream.schema(ddl(stream_of(program).schema)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


class Collected:
    """A sink that keeps the rows of each micro-batch; a batch that is run again replaces its rows."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = frame.toArrow()

    def write(self, frame: DataFrame) -> Any:
        return frame.writeStream.foreachBatch(self)

    @property
    def rows(self) -> list[Row]:
        return in_order(pa.concat_tables(self.batches.values())) if self.batches else []


def static_run(spark: SparkSession, program: str, events: Events, sink: Collected, **options: Any) -> None:
    stream = stream_of(program)
    table = pa.Table.from_pylist(list(events), stream.schema.arrow)
    frame = spark.createDataFrame(table, ddl(stream.schema))
    sink(query(spark, {stream.name: frame}, program, **options), 0)


def bounded_run(
    spark: SparkSession, program: str, batches: Iterable[Events], sink: Collected, directory: Path, **options: Any
) -> Figures:
    """Each batch is a micro-batch of its own; a second call on the same directory adds batches and goes on."""
    files = directory / "in"
    write_batches(files, program, batches, first=len(list(files.glob("*.parquet"))))
    figures = Figures()
    frame = read_batches(spark, files, program)
    streams = {stream_of(program).name: frame}
    run(spark, streams, program, sink.write, str(directory / "checkpoint"), watch=figures.read, **options)
    return figures
