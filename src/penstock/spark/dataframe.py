"""The DataFrame of a program: pack, shuffle to buckets, run the buckets, merge what is partial.

    stream a ─ prune ─ pack ─┐
    stream b ─ prune ─ pack ─┼─ union ─ groupBy(bucket).transformWithState ─ observe ─ [merge] ─ observe ─ tagged rows
    end of the streams ──────┘

A tagged row is `(name, rows, packed)`: some result rows of the query `name`, as one Arrow record batch. `packed` has
the schema of each name in its metadata, so that `spark.write` can take the DataFrame apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.plan.placement import Spread
from penstock.spark.arrival import PLACE
from penstock.spark.bucket_app import BucketMaker
from penstock.spark.calls import CALLS
from penstock.spark.failures import plainly
from penstock.spark.merging import merge
from penstock.spark.packing import PACKED_DDL, REJECT_REASON, REJECT_ROW, Packer, end_rows
from penstock.spark.processor import OUTPUT_DDL, BucketProcessor
from penstock.spark.pushdown import common_comparisons, is_one_source, pushed_down, reads_columnar_files
from penstock.spark.schema import conform, ddl
from penstock.types import Schema

METRICS = "penstock"
"""The name under which a query's figures are in `StreamingQueryProgress.observedMetrics`."""

RESULTS = "penstock results"
"""The same for the number of results, which is known after merging."""

SCHEMAS = "penstock"
"""The key under which the schemas of all names are in the metadata of column `packed`, each as Spark's DDL."""

END_DDL = "ended boolean"


def run_in_buckets(
    frames: Mapping[str, DataFrame],
    packers: list[Packer],
    recipe: BucketMaker,
    schemas: Mapping[str, Schema],
    end_directory: str | None = None,
    calls: str | None = None,
) -> DataFrame:
    """The tagged results of `recipe` over the frames; streaming if they are. `calls` is the id of the functions that
    its rules call, if there are any."""
    packed = [_packed(frames[packer.stream.name], packer) for packer in packers]
    end = _end_of(next(iter(frames.values())), end_directory)
    if end is not None:
        packed.append(_end_rows(end, tuple(label for share in recipe.shares for label in share.labels)))
    rows = reduce(DataFrame.unionByName, packed)
    parts = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if not rows.isStreaming:
        # Spark starts the coordinator of its state stores with the manager of streaming queries: ask for that.
        _ = rows.sparkSession.streams.active
        # A bucket then reads its packs as it goes and need not hold them all.
        rows = rows.repartition(parts, "bucket").sortWithinPartitions("bucket", "kind", "t_min", "t_max", "payload")
    processor = BucketProcessor(recipe, parts, streaming=rows.isStreaming)
    output = rows.groupBy("bucket").transformWithState(processor, OUTPUT_DDL, "Append", "None")
    observed = output.observe(
        METRICS,
        F.sum("events").alias("events"),
        F.sum("late").alias("late"),
        F.sum("rejected").alias("rejected"),
        F.sum("state_bytes").alias("state_bytes"),
        F.sum("state_written").alias("state_written"),
        F.sum("bytes_read").alias("bytes_read"),
        F.max("last_time").alias("last_time"),
        F.sum("restored").alias("restored"),
    )
    results = observed.where("packed IS NOT NULL").select("name", "part", "rows", "packed")
    if any(share.placement.spread is Spread.PARTIALS for share in recipe.shares):
        results = merge(results, recipe, parts)
    told: dict[str, Any] = {SCHEMAS: {name: ddl(schema) for name, schema in schemas.items()}}
    if calls is not None:
        told[CALLS] = calls
    queries = [query.name for share in recipe.shares for query in share.queries]
    counted = results.observe(RESULTS, F.sum(F.when(F.col("name").isin(queries), F.col("rows"))).alias("results"))
    return counted.select("name", "rows", F.col("packed").alias("packed", metadata=told))


def _packed(events: DataFrame, packer: Packer) -> DataFrame:
    """The packed rows of a stream; with comparisons that the source can take, its clock is read by itself."""
    stream = packer.stream
    chosen = conform(events, stream.name, stream.schema, (REJECT_REASON, REJECT_ROW, PLACE))
    comparisons = common_comparisons(stream, packer.shares)
    # A row that the source rejects must not move the clock.
    if comparisons and REJECT_REASON not in events.columns and reads_columnar_files(events):
        times = conform(events, stream.name, Schema(tuple(f for f in stream.schema if f.name == stream.event_time)))
        matching = pushed_down(chosen, stream, comparisons)
        packed = _mapped(matching, lambda batches: packer.pack(batches, tell_time=False))
        both = packed.unionByName(_mapped(times, packer.tell_time))
        if is_one_source(both):
            return both
    return _mapped(chosen, packer.pack)


def _mapped(frame: DataFrame, pack: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    """The packed rows of a frame. `mapInArrow` takes no names with dots or backticks, so columns are numbered."""
    names = frame.columns
    numbered = frame.toDF(*(f"c{index}" for index in range(len(names))))

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return plainly(pack(batch.rename_columns(names) for batch in batches))

    return numbered.mapInArrow(packed, PACKED_DDL)


def _end_of(events: DataFrame, directory: str | None) -> DataFrame | None:
    """A DataFrame with a row once the streams have ended: at once for static data, else by a file in `directory`."""
    spark = events.sparkSession
    if not events.isStreaming:
        return spark.range(1)
    return None if directory is None else spark.readStream.schema(END_DDL).json(directory)


def _end_rows(end: DataFrame, labels: tuple[str, ...]) -> DataFrame:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield end_rows(labels)

    return end.mapInArrow(tell, PACKED_DDL)
