"""`penstock run --engine spark`: the application's one query as a bounded run in Spark's local mode.

Sources are generated streams and directories of Parquet, CSV or JSON files; results are written by Spark, as a
directory of files in the format that the sink's name tells, or shown at the end when the query has no sink.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console

import penstock.workloads  # noqa: F401  makes the generators known
from penstock.connect.conform import check_types, match_names
from penstock.connect.files import format_by_name, local_path
from penstock.connect.generate import make_generator
from penstock.connect.stdout import StdoutSink
from penstock.errors import InputError
from penstock.lang import parse
from penstock.lang.query import Program, StreamDef, columns_of
from penstock.spark import run, session
from penstock.spark.generated import generated_stream
from penstock.spark.progress import ProgressDisplay
from penstock.spark.schema import ddl
from penstock.types import Schema

ROWS_PER_BATCH = 1_000_000
_SPARK_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}


def run_on_spark(text: str, *, memory: str, checkpoint: Path | None, quiet: bool) -> None:
    program = parse(text)
    spark = session("penstock", "local[*]")
    try:
        frames = {stream.name: _frame(spark, stream) for stream in program.streams}
        with tempfile.TemporaryDirectory(prefix="penstock-") as temporary:
            target, style = _target(program, temporary)
            display = ProgressDisplay(Console(stderr=True, quiet=quiet), _known_rows(program))

            def write(results: DataFrame) -> DataStreamWriter:
                return results.writeStream.format(style).option("path", target).option("header", "true")

            with display:
                run(
                    spark,
                    frames,
                    text,
                    write,
                    str(checkpoint or f"{temporary}/state"),
                    memory=memory,
                    watch=display.watch,
                )
            if target.startswith(temporary):
                _show(spark, program, target)
    finally:
        spark.stop()


def _frame(spark: SparkSession, stream: StreamDef) -> DataFrame:
    uri = stream.uri or ""
    if uri.startswith("generate:"):
        rows = make_generator(uri).rows
        if rows is None:
            raise InputError(f"stream {stream.name}: on Spark a generated stream needs an end; give it seconds=")
        tasks = spark.sparkContext.defaultParallelism
        return generated_stream(
            spark, partial(_Generated, uri, stream.schema), stream.schema, rows, ROWS_PER_BATCH, tasks
        )
    options = dict(stream.options)
    path = local_path(uri, f"stream {stream.name}", "generate:")
    style = options.pop("format", None) or format_by_name(path) or _format_inside(path, stream)
    reader = spark.readStream.schema(ddl(stream.schema)).format(_SPARK_FORMATS[style])
    return reader.option("header", options.get("header", "true")).load(str(path))


class _Generated:
    """A generator's rows as declared. Workers find it by its module, which makes the generators known to them too."""

    def __init__(self, uri: str, declared: Schema) -> None:
        self._generator = make_generator(uri)
        self._declared = declared
        found = self._generator.schema
        self._places = match_names(declared, found.names, uri)
        check_types(declared, {name: found.field(i).type for name, i in self._places.items()}, uri)

    def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch:
        schema = pa.schema([self._declared.arrow.field(name) for name in columns])
        names = [self._generator.schema.names[self._places[name]] for name in columns]
        made = self._generator.batch(start, count, names)
        return pa.record_batch([made.column(i).cast(f.type) for i, f in enumerate(schema)], schema=schema)


def _format_inside(path: Path, stream: StreamDef) -> str:
    found = {format_by_name(file) for file in path.iterdir()} - {None} if path.is_dir() else set()
    if len(found) != 1:
        raise InputError(
            f"stream {stream.name}: on Spark '{path}' must be a directory with files of one format; "
            "or add the option format 'csv', 'jsonl' or 'parquet'"
        )
    return str(found.pop())


def _target(program: Program, temporary: str) -> tuple[str, str]:
    """Where the results go and as what; into the temporary directory when they are to be shown."""
    sinks = {sink.name: sink for sink in program.sinks}
    into = program.queries[0].into if program.queries else None
    if into is None or into not in sinks:
        return f"{temporary}/results", "parquet"
    path = local_path(sinks[into].uri, f"sink {into}", "no other")
    return str(path), _SPARK_FORMATS[format_by_name(path) or "parquet"]


def _known_rows(program: Program) -> int | None:
    uri = program.streams[0].uri if program.streams else None
    return make_generator(uri).rows if uri and uri.startswith("generate:") else None


def _show(spark: SparkSession, program: Program, target: str) -> None:
    schema = columns_of(program.queries[0].body).arrow
    sink = StdoutSink(schema, "jsonl")
    for batch in spark.read.parquet(target).orderBy("window_end").toArrow().cast(schema).to_batches():
        sink.write(batch)
