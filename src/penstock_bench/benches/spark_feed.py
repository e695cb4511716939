"""Streaming queries over Parquet files that a bench feeds, one micro-batch at a time.

Several queries wait in one session and take turns: the query that is fed runs one micro-batch, the others have nothing
to do. The time of a micro-batch is what Spark reports, from the trigger to the commit; the wait between two
micro-batches is not counted.

Invariants:
1. The files of a micro-batch appear together, by the renaming of a directory, so that Spark never takes half of them.
2. A stopped query has no thread left in Spark that would disturb the next, or `stop` says that it has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.instruments import SHORT_RUN
from penstock.spark import query, session
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing

CORES = 2

SETTINGS = {
    # A waiting query looks for new files so often, which costs the others some time; Spark's default is 10 ms.
    "spark.sql.streaming.pollingDelay": "100",
    # Spark forgets what it said of earlier micro-batches than these; a bench asks for a few hundred.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # `stop` waits for a query that cannot be interrupted no longer than this.
    "spark.sql.streaming.stopTimeout": "5000",
}

_POLL_SECONDS = 0.1
"""Asking Spark how far it is takes some of its time."""

_MILLISECOND = 1e-3

Plan = Callable[[DataFrame, str], DataFrame]
"""The results of a query over a DataFrame; the text is the directory of its checkpoint."""


@contextmanager
def spark_place(size: Size, report: Report, place: Path | None = None) -> Iterator[tuple[SparkSession, Path]]:
    """A session on `CORES` cores, the one that runs already if there is one, and a directory for the bench's files.

    With a `place` that is the directory; else there is one that goes with the session.
    """
    with TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as temporary:
        directory = place or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        if SparkSession.getActiveSession() is not None:
            yield session("penstock bench", f"local[{CORES}]", SETTINGS), directory
            return
        report.step("starting Spark")
        settings = {**SETTINGS, **({} if size is Size.FULL else SHORT_RUN), "spark.local.dir": str(directory)}
        spark = session("penstock bench", f"local[{CORES}]", settings, log_file=str(directory / "spark.log"))
        try:
            yield spark, directory
        finally:
            spark.stop()


def penstock_plan(spark: SparkSession, stream: str, text: str, memory: str = "64MB") -> Plan:
    """A query of ours, with its blocks beside the checkpoint."""

    def results(events: DataFrame, checkpoint: str) -> DataFrame:
        return query(spark, {stream: events}, text, memory=memory, checkpoint=checkpoint)

    return results


@dataclass(frozen=True)
class MicroBatch:
    """What Spark says of one: the rows it read, and the seconds from the trigger to the commit."""

    number: int
    rows: int
    seconds: float
    parts: dict[str, float]


def micro_batches(running: StreamingQuery, after: int) -> list[MicroBatch]:
    """Those with input that ended after the micro-batch with this number, as far as Spark remembers them."""
    ended: list[dict[str, Any]] = [dict(progress) for progress in running.recentProgress]
    return [
        MicroBatch(
            number=progress["batchId"],
            rows=progress["numInputRows"],
            seconds=progress["durationMs"]["triggerExecution"] * _MILLISECOND,
            parts={name: millis * _MILLISECOND for name, millis in progress["durationMs"].items()},
        )
        for progress in ended
        if progress["batchId"] > after and progress["numInputRows"]
    ]


def raise_failure(running: StreamingQuery) -> None:
    """Raises what a query died of."""
    failure = running.exception()
    if failure is not None:
        raise failure


@dataclass(frozen=True)
class Share:
    """The input of one micro-batch: a directory of Parquet files."""

    directory: Path
    events: int

    @property
    def files(self) -> list[Path]:
        return sorted(self.directory.iterdir())


class FedQuery:
    """A running query over a directory into which shares are moved; its results are dropped.

    In a place where one ran before it goes on from the checkpoint.
    """

    def __init__(self, spark: SparkSession, place: Path, columns: str, plan: Plan) -> None:
        self._inbox = place / "input"
        self._inbox.mkdir(parents=True, exist_ok=True)
        checkpoint = str(place / "checkpoint")
        events = spark.readStream.schema(columns).option("recursiveFileLookup", "true").parquet(str(self._inbox))
        writer = plan(events, checkpoint).writeStream.format("noop").outputMode("append")
        self.running = writer.option("checkpointLocation", checkpoint).start()
        self._last = -1
        self._shares = sum(1 for _ in self._inbox.iterdir())

    def feed(self, share: Share) -> Timing:
        """One micro-batch over these files."""
        taken = self.feed_within(share, None)
        assert taken is not None, "there was no limit"
        return taken

    def feed_within(self, share: Share, seconds: float | None) -> Timing | None:
        """The same; None if the micro-batch has not ended after so many seconds."""
        cpu = _spark_cpu_seconds()
        began = time.perf_counter()
        self._hand_over(share)
        if seconds is None:
            self.running.processAllAvailable()
        while not (ended := micro_batches(self.running, self._last)):
            if seconds is not None and time.perf_counter() - began > seconds:
                return None
            raise_failure(self.running)
            time.sleep(_POLL_SECONDS)
        (batch,) = ended
        self._last = batch.number
        return Timing(share.events, batch.seconds, _spark_cpu_seconds() - cpu)

    def stop(self) -> bool:
        """Whether the query could be stopped."""
        try:
            self.running.stop()
        except Py4JJavaError:
            # Spark gave up waiting after its stopTimeout.
            return False
        return True

    def _hand_over(self, share: Share) -> None:
        draft = self._inbox.parent / "draft"
        draft.mkdir()
        for file in share.files:
            os.link(file, draft / file.name)
        draft.rename(self._inbox / f"{self._shares:06d}")
        self._shares += 1


def spark_processes() -> list[psutil.Process]:
    """Spark and its Python workers: they are below this process."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def _spark_cpu_seconds() -> float:
    total = 0.0
    for process in spark_processes():
        with suppress(psutil.Error):  # a worker that has just ended
            times = process.cpu_times()
            total += times.user + times.system
    return total


def write_parquet(batch: pa.RecordBatch, directory: Path, files: int = CORES) -> Share:
    """A share with the rows of `batch` cut into so many files, which Spark reads in as many tasks."""
    directory.mkdir(parents=True)
    cuts = [batch.num_rows * part // files for part in range(files + 1)]
    for part in range(files):
        rows = pa.Table.from_batches([batch.slice(cuts[part], cuts[part + 1] - cuts[part])])
        pa.parquet.write_table(rows, directory / f"{part}.parquet")
    return Share(directory, batch.num_rows)
