"""On Spark a bucket stays with its process: nothing is read back from the state store, whatever worker Spark takes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from penstock.spark import mark_end, query
from penstock.spark.live import SETTLED_AFTER

from .handing_over import wait_for_end
from .runs import Collected, embedded, read_batches, write_batches

PROGRAM = """CREATE STREAM s (t TIMESTAMP, k BIGINT, v BIGINT, EVENT TIME t);
    SELECT k, SUM(v) AS total, COUNT(*) AS events FROM s [RANGE 60 SECONDS SLIDE 5 SECONDS] GROUP BY k"""
BUCKETS = 2


def events(first: int, count: int) -> list[dict[str, Any]]:
    return [{"t": i * 100_000, "k": i % 7, "v": i * i % 101} for i in range(first, first + count)]


class Run:
    """A query that is fed one micro-batch at a time."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._input = directory / "in"
        self._checkpoint = str(directory / "checkpoint")
        self._fed = 0
        self.sink = Collected()
        write_batches(self._input, PROGRAM, [])
        frames = {"s": read_batches(spark, self._input, PROGRAM)}
        results = query(spark, frames, PROGRAM, checkpoint=self._checkpoint, buckets=BUCKETS, bounded=True)
        self._query = self.sink.write(results).option("checkpointLocation", self._checkpoint).start()

    def feed(self) -> int:
        """Returns how many buckets were read back."""
        write_batches(self._input, PROGRAM, [events(100 * self._fed, 100)], first=self._fed)
        self._fed += 1
        self._query.processAllAvailable()
        while len(ended := [one for one in self._query.recentProgress if one["numInputRows"]]) < self._fed:
            time.sleep(0.01)  # Spark tells of a micro-batch a moment after its end
        return int(ended[-1]["observedMetrics"]["penstock"]["restored"])

    @property
    def events(self) -> list[dict[str, Any]]:
        return events(0, 100 * self._fed)

    def finish(self) -> None:
        mark_end(self._checkpoint)
        self._query.processAllAvailable()
        self._query.stop()


def keepers() -> list[psutil.Process]:
    """Of the Python processes below Spark's those whose parent's parent is the daemon; workers have no children."""
    below = {process.pid: process for process in psutil.Process().children(recursive=True)}
    java = {pid for pid, process in below.items() if process.name() == "java"}
    daemons = {pid for pid, process in below.items() if process.ppid() in java}
    forked = {pid for pid, process in below.items() if process.ppid() in daemons}
    return [process for process in below.values() if process.ppid() in forked]


def test_nothing_is_read_back_until_a_keeper_dies(spark: SparkSession, tmp_path: Path) -> None:
    """Each process drops what it has once, when most kernels are loaded (`spark.live`)."""
    run = Run(spark, tmp_path)
    warm_up = [run.feed() for _ in range(SETTLED_AFTER + 1)]
    assert sum(warm_up) <= BUCKETS
    assert [run.feed() for _ in range(4)] == [0] * 4
    victims = keepers()
    assert len(victims) >= BUCKETS
    for victim in victims:
        os.kill(victim.pid, signal.SIGKILL)
    assert wait_for_end([victim.pid for victim in victims])
    assert run.feed() == BUCKETS, "other processes have read the state"
    assert [run.feed() for _ in range(2)] == [0] * 2
    run.finish()
    assert run.sink.rows == embedded(PROGRAM, run.events)


def test_other_tasks_run_in_the_workers_that_spark_has_for_them(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path)
    for _ in range(2):
        run.feed()
        ran = spark.sparkContext.parallelize(range(4), 4).map(lambda _: os.getppid()).distinct().collect()
        assert len(ran) == 1, "forked by the daemon"
        assert keepers()
        assert {psutil.Process(keeper.ppid()).ppid() for keeper in keepers()} == set(ran)
    run.finish()
    assert run.sink.rows == embedded(PROGRAM, run.events)
