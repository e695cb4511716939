"""From a declared stream to the streaming DataFrame that its URI names.

Generated streams, CSV and JSON lines are read as embedded. Parquet is read by Spark itself, so that only the columns
that are asked for are read; its files must have the declared types, and are taken in the order of their modification
times.
"""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.connect.conform import check_types, match_names
from penstock.connect.files import FileSet, format_by_name, local_path
from penstock.connect.generate import Generator, make_generator
from penstock.connect.opening import reading_of
from penstock.connect.source import Reading
from penstock.engine.builder import quoted
from penstock.errors import InputError
from penstock.lang.query import StreamDef
from penstock.spark.generated import generated_stream
from penstock.spark.packing import REJECT_REASON, REJECT_ROW
from penstock.spark.schema import ddl
from penstock.spark.text_files import BYTES_PER_BATCH, text_stream
from penstock.types import Schema, SqlType

ROWS_PER_BATCH = 1_000_000


def open_stream(
    spark: SparkSession, stream: StreamDef, columns: Sequence[str], *, follow: bool, max_ahead: float | None = None
) -> DataFrame:
    """The given columns of a stream; `follow` as in `text_stream`. Refuses what only one process can read.

    Events more than `max_ahead` seconds ahead of the clock are rejected; generated ones are never.
    """
    reading = reading_of(stream, columns=columns)
    tasks = spark.sparkContext.defaultParallelism
    if reading.uri in ("-", "stdin:"):
        raise InputError(
            f"stream {stream.name} reads standard input, which a cluster does not have and nobody can read twice; "
            "run it with --engine embedded"
        )
    if reading.uri.startswith("generate:"):
        generator = make_generator(reading.uri)
        make = partial(_Generated, generator, stream.schema, reading.uri)
        make()
        return generated_stream(spark, make, reading.fields, generator.rows, ROWS_PER_BATCH, tasks)
    if _format(reading) == "parquet":
        frame = _parquet_stream(spark, reading, follow)
    else:
        frame = text_stream(spark, reading, follow=follow, tasks=tasks)
    return frame if max_ahead is None else reject_ahead(frame, stream, max_ahead)


def reject_ahead(frame: DataFrame, stream: StreamDef, seconds: float) -> DataFrame:
    """Marks events as rejected whose time is more than `seconds` ahead of the clock.

    The clock is that of the micro-batch, which Spark keeps with it: a batch that is run again rejects the same.
    """
    time = F.col(quoted(stream.event_time))
    field = stream.schema.find(stream.event_time)
    if field is not None and field.type is SqlType.TIMESTAMP:
        time = F.unix_micros(time)
    latest = F.unix_micros(F.current_timestamp()) + int(seconds * 1e6)
    bad = time > F.floor(latest / stream.time_unit)
    columns = [name for name in frame.columns if name not in (REJECT_REASON, REJECT_ROW)]
    has_rejects = REJECT_REASON in frame.columns
    reason, row = (F.col(name) if has_rejects else F.lit(None) for name in (REJECT_REASON, REJECT_ROW))
    told = F.to_json(F.struct(*map(quoted, columns)))
    return frame.withColumns(
        {
            REJECT_REASON: F.when(bad, f"stream {stream.name}: event time is too far ahead of the clock").otherwise(
                reason
            ),
            REJECT_ROW: F.when(bad, told).otherwise(row),
        }
    )


class _Generated:
    """A generator's rows as declared."""

    def __init__(self, generator: Generator, declared: Schema, uri: str) -> None:
        self._generator = generator
        self._declared = declared
        found = generator.schema
        self._places = match_names(declared, found.names, uri)
        check_types(declared, {name: found.field(i).type for name, i in self._places.items()}, uri)

    def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch:
        schema = pa.schema([self._declared.arrow.field(name) for name in columns])
        names = [self._generator.schema.names[self._places[name]] for name in columns]
        made = self._generator.batch(start, count, names)
        return pa.record_batch([made.column(i).cast(f.type) for i, f in enumerate(schema)], schema=schema)


def _format(reading: Reading) -> str:
    """parquet or text; a directory must not have both, for they are read by different readers."""
    files = FileSet(reading)
    path = local_path(reading.uri, f"stream {reading.stream.name}", "stdin: and generate:")
    told = reading.options.get("format") or format_by_name(path)
    if told is None:
        kinds = {"parquet" if files.format_of(file) == "parquet" else "text" for file in files.list()}
        if len(kinds) > 1:
            raise InputError(
                f"stream {reading.stream.name}: '{path}' has Parquet and text files; on Spark put them apart, "
                "or run it with --engine embedded"
            )
        told = kinds.pop() if kinds else None
    if told is None:
        raise InputError(f"{files.nothing_found()}; add the option format 'csv', 'jsonl' or 'parquet' to wait for some")
    return "parquet" if told == "parquet" else "text"


def _parquet_stream(spark: SparkSession, reading: Reading, follow: bool) -> DataFrame:
    files = FileSet(reading)
    listing = files.list()
    if not listing and not follow:
        raise InputError(files.nothing_found())
    for file in listing:
        _check_parquet(file, reading)
    times = [file.stat().st_mtime for file in listing]
    if times != sorted(times):
        warnings.warn(
            f"stream {reading.stream.name}: Spark reads Parquet files in the order of their modification times, "
            "which is not that of their names; events may be late that are not with --engine embedded",
            stacklevel=2,
        )
    path = local_path(reading.uri, f"stream {reading.stream.name}", "generate:").absolute()
    reader = spark.readStream.schema(ddl(reading.stream.schema)).option("maxBytesPerTrigger", BYTES_PER_BATCH)
    if path.is_file():
        # Spark wants directories, and is told which file of it.
        reader = reader.option("pathGlobFilter", re.sub(r"([\[\]{}*?\\])", r"\\\1", path.name))
        path = path.parent
    elif "format" not in reading.options and not glob.has_magic(str(path)):
        # Other names are files in the making.
        reader = reader.option("pathGlobFilter", "*.parquet")
    return reader.parquet(str(path)).select([quoted(name) for name in reading.fields.names])


def _check_parquet(file: Path, reading: Reading) -> None:
    """Spark gives NULL for a column that is not there, and fails in the middle of a run where types differ."""
    try:
        found = parquet.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: cannot be read as Parquet: {error}") from None
    places = match_names(reading.stream.schema, found.names, str(file))
    check_types(reading.stream.schema, {name: found.field(i).type for name, i in places.items()}, str(file))
    for field in reading.fields:
        stored = found.field(places[field.name]).type
        if not _same(stored, field.type):
            raise InputError(
                f"{file}: column '{field.name}' is {stored} there and {field.type} in CREATE STREAM; on Spark declare "
                "it as it is and CAST it in the query, or run it with --engine embedded"
            )


def _same(stored: pa.DataType, declared: SqlType) -> bool:
    if pa.types.is_dictionary(stored):
        return _same(stored.value_type, declared)
    if declared is SqlType.STRING:
        return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored) or pa.types.is_string_view(stored))
    if declared is SqlType.TIMESTAMP:
        return bool(pa.types.is_timestamp(stored) and stored.unit == "us" and stored.tz is not None)
    return bool(stored == declared.arrow)
