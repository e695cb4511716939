"""Few events on Spark: how long after an event is the result that it completes in the hands of its reader?

Events come through a socket, at a fixed rate, each with the moment at which it was due as its time. The load is open:
a micro-batch that takes long keeps every event behind it waiting, and is charged for each. One event falls on every
boundary and completes the window before it; its latency ends when a callback of the sink has the rows.

The floor is measured in the same run, in turns: the same stream grouped into as many buckets, through a stateful Python
operator that does nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, Plan, micro_batches, penstock_plan, raise_failure, spark_place

_STREAM = "s"
_KEYS = 10
_SLIDE_MS = 100
_WINDOW_SECONDS = 3600
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class _Plan:
    """A round of each query is so many micro-batches, of which the first are set aside."""

    per_second: int
    micro_batches: int
    set_aside: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan(100, 3, 1, 1),
    Size.QUICK: _Plan(100, 14, 6, 2),
    Size.FULL: _Plan(100, 100, 20, 2),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ours, empty = _Observed(), _Observed()
    with spark_place(size, report) as (spark, place):
        variants = {"ours": (_ours(spark), ours), "empty": (_nothing, empty)}
        for number in range(plan.rounds):
            order = list(variants) if number % 2 == 0 else list(variants)[::-1]
            for name in order:
                report.step(f"round {number + 1}: {name}")
                results, observed = variants[name]
                _round(spark, place / f"{name}-{number}", results, plan, observed)
    latencies = np.array(ours.latencies)
    report.table(
        ("query", "micro-batch ms", "micro-batches"),
        [(name, median(o.batch_ms), len(o.batch_ms)) for name, (_, o) in variants.items()],
    )
    return {
        "p50_ms": float(np.quantile(latencies, 0.5)),
        "p99_ms": float(np.quantile(latencies, 0.99)),
        "to_empty": median(ours.batch_ms) / median(empty.batch_ms),
        "batch_ms": median(ours.batch_ms),
        "empty_batch_ms": median(empty.batch_ms),
        "results": len(latencies),
        "rate": plan.per_second,
        "keys": _KEYS,
        "window_seconds": _WINDOW_SECONDS,
        "slide_ms": _SLIDE_MS,
        "micro_batches": len(ours.batch_ms),
        "rounds": plan.rounds,
        "cores": CORES,
    }


@dataclass
class _Observed:
    """Latencies of result rows and durations of micro-batches, in milliseconds."""

    latencies: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)


def _round(spark: SparkSession, place: Path, plan: Plan, sizes: _Plan, observed: _Observed) -> None:
    """Starts the query, lets it run for so many micro-batches, and stops it."""
    arrivals: dict[int, list[float]] = {}

    def arrive(results: DataFrame, number: int) -> None:
        rows = results.collect()
        now = time.time() * 1e3
        arrivals[number] = [now - row["due_ms"] for row in rows]

    checkpoint = str(place / "checkpoint")
    with _SocketEvents(sizes.per_second) as source:
        lines = spark.readStream.format("socket").option("host", source.host).option("port", source.port).load()
        events = _parsed(lines)
        writer = plan(events, checkpoint).writeStream.foreachBatch(arrive)
        running = writer.option("checkpointLocation", checkpoint).start()
        try:
            while len(batches := micro_batches(running, after=-1)) < sizes.micro_batches:
                raise_failure(running)
                time.sleep(_POLL_SECONDS)
        finally:
            running.stop()
    for batch in batches[sizes.set_aside :]:
        observed.latencies.extend(arrivals[batch.number])
        observed.batch_ms.append(batch.seconds * 1e3)


def _ours(spark: SparkSession) -> Plan:
    text = (
        f"SELECT k, SUM(v) AS total, COUNT(*) AS n "
        f"FROM {_STREAM} [RANGE {_WINDOW_SECONDS} SECONDS SLIDE {_SLIDE_MS} MILLISECONDS] GROUP BY k"
    )
    by_key = penstock_plan(spark, _STREAM, text)

    def results(events: DataFrame, checkpoint: str) -> DataFrame:
        due = (F.unix_micros("window_end") / 1000.0).alias("due_ms")
        return by_key(events, checkpoint).select(due, "k", "total", "n")

    return results


def _parsed(lines: DataFrame) -> DataFrame:
    parts = F.split("value", ",")
    return lines.select(
        F.timestamp_micros(parts[0].cast("bigint")).alias("t"),
        parts[1].cast("int").alias("k"),
        parts[2].cast("double").alias("v"),
    )


class _Nothing(StatefulProcessor):
    """A stateful operator without state that takes its rows and gives none."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """It keeps nothing."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        for _ in rows:
            pass
        return iter(())


def _nothing(events: DataFrame, checkpoint: str) -> DataFrame:
    buckets = events.select((F.col("k") % CORES).alias("bucket"), "v").groupBy("bucket")
    return buckets.transformWithState(_Nothing(), "due_ms double", "Append", "None")


class _SocketEvents:
    """A server on a port of its own that sends events `time,key,value` to each client, each when it is due."""

    def __init__(self, per_second: int) -> None:
        self._interval = 1_000_000 // per_second
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listening.getsockname()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> _SocketEvents:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return  # the bench ended before anyone connected
        with connection:
            try:
                self._send(connection)
            except OSError:
                return  # the query has been stopped

    def _send(self, connection: socket.socket) -> None:
        due = time.time_ns() // 1000 // self._interval * self._interval
        number = 0
        while not self._stopped.is_set():
            due += self._interval
            time.sleep(max(0.0, due / 1e6 - time.time()))
            connection.sendall(f"{due},{number % _KEYS},{number * 0.5}\n".encode())
            number += 1
