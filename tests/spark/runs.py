"""Runs one query on both runtimes, so that tests can compare their rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock import App
from penstock.connect.encode import json_lines
from penstock.connect.opening import reading_of
from penstock.lang import parse
from penstock.lang.query import StreamDef
from penstock.spark import query, run
from penstock.spark.dataframe import SCHEMAS
from penstock.spark.files import file_stream
from penstock.spark.packing import decode
from penstock.spark.progress import Figures
from penstock.spark.schema import ddl, schema_of

Events = Sequence[dict[str, Any]]
Row = tuple[Any, ...]


def stream_of(program: str) -> StreamDef:
    (stream, *_) = parse(program).streams
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


def write_batches(directory: Path, declared: str | StreamDef, batches: Iterable[Events], first: int = 0) -> None:
    """One Parquet file per micro-batch: Spark takes files in the order of their modification times. The stream is
    given by itself, or as the first of a program."""
    stream = stream_of(declared) if isinstance(declared, str) else declared
    directory.mkdir(parents=True, exist_ok=True)
    for number, events in enumerate(batches, first):
        file = directory / f"{number:04}.parquet"
        hidden = directory / f".{file.name}"  # a query that runs must not see the file before it has its time
        pq.write_table(pa.Table.from_pylist(list(events), stream.schema.arrow), hidden)
        os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
        hidden.rename(file)


def read_batches(spark: SparkSession, directory: Path, declared: str | StreamDef) -> DataFrame:
    """A stream of the files, each a micro-batch of its own."""
    stream = stream_of(declared) if isinstance(declared, str) else declared
    reader = spark.readStream.schema(ddl(stream.schema)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


class Collected:
    """A sink that keeps the rows of each micro-batch; a batch that is run again replaces its rows."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}
        self.frame: DataFrame | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.frame = self.frame or frame
        self.batches[batch] = frame.toArrow()

    def write(self, frame: DataFrame) -> Any:
        self.frame = frame
        return frame.writeStream.foreachBatch(self)

    @property
    def rows(self) -> list[Row]:
        return in_order(pa.concat_tables(self.batches.values())) if self.batches else []

    def tables(self) -> dict[str, pa.Table]:
        """The rows under each name, where what was written is a tagged DataFrame."""
        assert self.frame is not None
        frame = self.frame
        schemas = {
            name: schema_of(StructType.fromDDL(text)).arrow
            for name, text in frame.schema["packed"].metadata[SCHEMAS].items()
        }
        found: dict[str, list[pa.RecordBatch]] = {name: [] for name in schemas}
        for table in self.batches.values():
            for name, packed in zip(table["name"].to_pylist(), table["packed"].to_pylist(), strict=True):
                found[name].append(decode(packed, schemas[name]))
        return {name: pa.Table.from_batches(batches, schemas[name]) for name, batches in found.items()}


def static_frames(spark: SparkSession, program: str, events: Mapping[str, Events]) -> dict[str, DataFrame]:
    return {
        stream.name: spark.createDataFrame(
            pa.Table.from_pylist(list(events.get(stream.name, [])), stream.schema.arrow), ddl(stream.schema)
        )
        for stream in parse(program).streams
    }


def static_run(spark: SparkSession, program: str, events: Events, sink: Collected, **options: Any) -> None:
    stream = stream_of(program)
    sink(query(spark, static_frames(spark, program, {stream.name: events}), program, **options), 0)


def bounded_streams(
    spark: SparkSession,
    program: str,
    events: Mapping[str, Events],
    sink: Collected,
    directory: Path,
    micro_batches: int,
    **options: Any,
) -> None:
    """All streams of a program, each cut into so many micro-batches."""
    frames = {}
    for stream in parse(program).streams:
        own = events.get(stream.name, [])
        size = max(1, -(-len(own) // micro_batches))
        files = directory / stream.name
        write_batches(files, stream, [own[i : i + size] for i in range(0, len(own), size)])
        frames[stream.name] = read_batches(spark, files, stream)
    run(spark, frames, program, sink.write, str(directory / "checkpoint"), **options)


def streams_in_order(
    spark: SparkSession, program: str, events: Mapping[str, Events], directory: Path, batch_bytes: int = 400
) -> dict[str, DataFrame]:
    """All streams of a program, read from files by our own source: the first half of the events as JSON lines, the
    others as Parquet. A micro-batch has so many bytes of them, and two tasks."""
    frames = {}
    for stream in parse(program).streams:
        files = directory / stream.name
        files.mkdir(parents=True)
        rows = pa.RecordBatch.from_pylist(list(events.get(stream.name, [])), stream.schema.arrow)
        half = rows.num_rows // 2
        (files / "0.jsonl").write_bytes(json_lines(rows.slice(0, half)))
        pq.write_table(pa.Table.from_batches([rows.slice(half)]), files / "1.parquet", row_group_size=1)
        reading = reading_of(replace(stream, uri=str(files)))
        frames[stream.name] = file_stream(spark, reading, follow=False, tasks=2, batch_bytes=batch_bytes, task_bytes=1)
    return frames


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
