"""Trials on Spark in local mode, in real time, through files.

The reports of each second are Parquet files that were written before; at the beginning of their second they are moved,
together, into the directory that the streaming query reads. Its micro-batches follow each other without a pause. An
answer's response time is from the beginning of its report's second until the sink's callback has it. The answers of a
second come when Spark has seen the next one, which tells that the second is over: a second is in every response time.

Micro-batches follow each other without a pause under any load, so how busy Spark is cannot be seen from its pauses: it
counts as busy as the slowest answer is near to the limit. The stretch is longer than that of the embedded engine, so
that falling behind shows.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.instruments import ddl, decode_results, result_schemas
from penstock_bench.benches.linear_road_load import Part, Stretch
from penstock_bench.benches.linear_road_rating import LIMIT, Trial
from penstock_bench.benches.spark_feed import CORES, raise_failure, write_parquet
from penstock_bench.workloads.linear_road.application import LAYOUTS, on_spark
from penstock_bench.workloads.linear_road.reports import REPORT

_GIVE_UP = 2 * LIMIT
_POLL_SECONDS = 0.1
_ONE_FILE = 20_000
"""Fewer rows than these are not worth a second task."""


def trial(spark: SparkSession, place: Path, stretch: Stretch, roads: int, memory: str = "4GB") -> Trial:
    """So many expressways in real time, in a directory of their own."""
    inbox, ready = place / "input", place / "ready"
    inbox.mkdir(parents=True)
    tolls = place / "tolls.csv"
    part = Part(roads)
    stretch.write_tolls(tolls, part)
    lead_up = pa.Table.from_batches(stretch.lead_up_of(part)).combine_chunks()
    write_parquet(lead_up.to_batches()[0], ready / "lead_up", 1)
    batches = stretch.reports_of(part)
    for second, batch in enumerate(batches):
        write_parquet(batch, ready / f"{second:06d}", _files(batch))
    checkpoint = str(place / "checkpoint")
    rows = spark.readStream.schema(ddl(REPORT)).option("recursiveFileLookup", "true").parquet(str(inbox))
    tagged = on_spark(spark, rows, tolls, memory=memory, checkpoint=checkpoint)
    sink = Arrivals(tagged)
    running = tagged.writeStream.foreachBatch(sink.take).option("checkpointLocation", checkpoint).start()
    try:
        (ready / "lead_up").rename(inbox / "lead_up")
        running.processAllAvailable()
        sink.clear()
        began = time.time()
        for second in range(len(batches)):
            time.sleep(max(0.0, began + second - time.time()))
            (ready / f"{second:06d}").rename(inbox / f"{second:06d}")
        # The answers of the last second wait for one that does not come.
        last = stretch.begin + len(batches) - 2
        while sink.newest < last and time.time() - began < len(batches) + _GIVE_UP:
            raise_failure(running)
            time.sleep(_POLL_SECONDS)
    finally:
        running.stop()
    responses = sink.responses(began, stretch.begin)
    if sink.newest < last:
        responses = np.append(responses, time.time() - began - (sink.newest + 1 - stretch.begin))
    reports = sum(batch.num_rows for batch in batches)
    busy = float(responses.max()) / LIMIT if len(responses) else math.inf
    return Trial(roads, len(batches), reports, responses, busy)


def _files(batch: pa.RecordBatch) -> int:
    return min(CORES, 1 + int(batch.num_rows) // _ONE_FILE)


class Arrivals:
    """When answers were with the sink, and the seconds of the reports that asked."""

    def __init__(self, tagged: DataFrame) -> None:
        self._schemas = {name: schema.arrow for name, schema in result_schemas(tagged).items() if name in LAYOUTS}
        self.clear()

    def clear(self) -> None:
        self._came: list[tuple[float, np.ndarray[Any, Any]]] = []
        self.newest = -1
        """The latest second that was answered."""

    def take(self, results: DataFrame, number: int) -> None:
        """As a callback of `foreachBatch`."""
        rows = results.where(F.col("name").isin(list(self._schemas))).select("name", "packed").collect()
        now = time.time()
        for row in rows:
            seconds = decode_results(bytes(row["packed"]), self._schemas[row["name"]]).column("time").to_numpy()
            if len(seconds):
                self._came.append((now, seconds))
                self.newest = max(self.newest, int(seconds.max()))

    def responses(self, began: float, first_second: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Of the answers to reports from that second on, which came at `began`: what led up to it is answered late."""
        waits = [at - began - (seconds[seconds >= first_second] - first_second) for at, seconds in self._came]
        found = np.concatenate(waits) if waits else np.empty(0)
        return found
