"""The DataFrame of a query: pack, shuffle to buckets, run the buckets, unpack.

    events ─ prune ─ pack ─┐
                           ├─ union ─ groupBy(bucket).transformWithState ─ observe ─ unpack ─ results
    end of the stream ─────┘

Everything here is generic in the pipeline that a bucket runs; `spark.query` fills it in.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.packing import END_OF_TIME, PACKED_DDL, Packer, clock_rows, decode
from penstock.spark.processor import OUTPUT_DDL, BucketProcessor, PipelineRecipe

METRICS = "penstock"
"""The name under which a query's figures are in `StreamingQueryProgress.observedMetrics`."""

END_DDL = "ended boolean"


def run_in_buckets(
    events: DataFrame,
    packer: Packer,
    recipe: PipelineRecipe,
    result_schema: pa.Schema,
    result_ddl: str,
    end_directory: str | None = None,
) -> DataFrame:
    """The results of `recipe` over `events` as an ordinary DataFrame, streaming if `events` is."""
    packed = events.mapInArrow(lambda batches: packer.pack(batches), PACKED_DDL)
    end = _end_of(events, end_directory)
    if end is not None:
        packed = packed.unionByName(_end_rows(end, packer.labels))
    output = packed.groupBy("bucket").transformWithState(BucketProcessor(recipe), OUTPUT_DDL, "Append", "None")
    observed = output.observe(
        METRICS,
        F.sum("results").alias("results"),
        F.sum("events").alias("events"),
        F.sum("late").alias("late"),
        F.sum("rejected").alias("rejected"),
        F.sum("state_bytes").alias("state_bytes"),
        F.max("last_time").alias("last_time"),
        F.sum("restored").alias("restored"),
    )

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed_result in batch.column("result").drop_null():
                yield decode(packed_result.as_py(), result_schema)

    return observed.select("result").mapInArrow(unpack, result_ddl)


def _end_of(events: DataFrame, directory: str | None) -> DataFrame | None:
    """A DataFrame with a row once the stream has ended: at once for static data, else by a file in `directory`."""
    spark = events.sparkSession
    if not events.isStreaming:
        return spark.range(1)
    return None if directory is None else spark.readStream.schema(END_DDL).json(directory)


def _end_rows(end: DataFrame, labels: tuple[int, ...]) -> DataFrame:
    """A clock row at the end of time for every bucket."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield clock_rows(labels, END_OF_TIME, END_OF_TIME)

    return end.mapInArrow(tell, PACKED_DDL)
