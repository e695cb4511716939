"""From a declared stream to the streaming DataFrame that its URI names.

Generated streams and files are read as embedded, and each event has its place in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.connect.conform import check_types, match_names
from penstock.connect.generate import Generator, make_generator
from penstock.connect.opening import reading_of
from penstock.engine.builder import quoted
from penstock.errors import InputError
from penstock.lang.query import StreamDef
from penstock.spark.arrival import PLACE
from penstock.spark.files import file_stream
from penstock.spark.generated import generated_stream
from penstock.spark.packing import REJECT_REASON, REJECT_ROW
from penstock.types import Schema, SqlType

ROWS_PER_BATCH = 1_000_000


def open_stream(
    spark: SparkSession, stream: StreamDef, columns: Sequence[str], *, follow: bool, max_ahead: float | None = None
) -> DataFrame:
    """The given columns of a stream; `follow` as in `file_stream`. Refuses what only one process can read.

    Events more than `max_ahead` seconds ahead of the clock are rejected; generated ones are never.
    """
    reading = reading_of(stream, columns=columns)
    tasks = spark.sparkContext.defaultParallelism
    if reading.uri in ("-", "stdin:"):
        raise InputError(
            f"stream {stream.name} reads standard input, which a cluster does not have and which cannot be read twice; "
            "run it with --engine embedded"
        )
    if reading.uri.startswith("generate:"):
        generator = make_generator(reading.uri)
        make = partial(_Generated, generator, stream.schema, reading.uri)
        make()
        return generated_stream(spark, make, reading.fields, generator.rows, ROWS_PER_BATCH, tasks)
    frame = file_stream(spark, reading, follow=follow, tasks=tasks)
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
    columns = [name for name in frame.columns if name not in (REJECT_REASON, REJECT_ROW, PLACE)]
    reason = F.lit(f"stream {stream.name}: event time is too far ahead of the clock")
    told = F.to_json(F.struct(*map(quoted, columns)))
    return frame.withColumns(
        {name: F.when(bad, new).otherwise(F.col(name)) for name, new in ((REJECT_REASON, reason), (REJECT_ROW, told))}
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
