"""Bounded runs: process what the sources hold, then say that the streams have ended, so that their last windows close.

A run that was killed in between just goes on, see `spark.end_mark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.aggregates.user import UserAggregate
from penstock.spark.calls import Functions
from penstock.spark.end_mark import mark_end
from penstock.spark.file_system import qualified
from penstock.spark.program import Program
from penstock.spark.query import SpreadBy, query
from penstock.spark.running import Watch, run_to_end

Write = Callable[[DataFrame], DataStreamWriter]
"""Says where results go: `lambda df: df.writeStream.format("parquet").option("path", "out")`."""


def run(
    spark: SparkSession,
    streams: Mapping[str, DataFrame],
    text: str | Program,
    write: Write,
    checkpoint: str,
    *,
    memory: str | int = "64MB",
    buckets: int | None = None,
    spread: SpreadBy = "keys",
    event_time: str | None = None,
    lateness: str | int = 0,
    sequence: str | None = None,
    aggregates: Iterable[UserAggregate] = (),
    functions: Functions | None = None,
    tagged: bool | None = None,
    watch: Watch = lambda query: None,
) -> None:
    """Runs a program over everything that `streams` hold now and closes every window up to the first boundary after
    the last event; the other settings are those of `query`. `watch` is called a few times per second with the running
    streaming query.

    The checkpoint's windows are closed then: with more events start again with another checkpoint.
    """
    place = qualified(spark, checkpoint)
    results = query(
        spark,
        streams,
        text,
        memory=memory,
        buckets=buckets,
        spread=spread,
        event_time=event_time,
        lateness=lateness,
        sequence=sequence,
        aggregates=aggregates,
        functions=functions,
        checkpoint=place,
        bounded=True,
        tagged=tagged,
    )
    run_to_end(write(results).trigger(availableNow=True), place, watch)
    mark_end(place)
    run_to_end(write(results).trigger(availableNow=True), place, watch)
