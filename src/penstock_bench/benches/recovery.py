"""A query on Spark is killed with a large window in its state: how long until the restarted one has its next result?

Another process fills the window and is killed with all that it started, by a signal that cannot be caught. This one
then starts Spark and the same query with the same checkpoint, and gives it one more slide of events. The clock runs
from the start of Spark to the commit of the first results. `bytes_read` is what the buckets read of their state and of
segments until then. The files of the checkpoint are taken out of the system's cache before, and `disk_bytes_read` is
what the new processes read from the disk as Linux counts it, which reads ahead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from pyspark.sql import SparkSession

from penstock.instruments import Figures
from penstock_bench.benches.callcentre_feed import KPI_COLUMNS, STREAM, CallCentre, kpis
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, penstock_plan, spark_place, spark_processes

_PER_SECOND = 1000
_SLIDE_SECONDS = 10
_FULL = "the window is full"


@dataclass(frozen=True)
class _Plan:
    window_seconds: int
    batch_events: int

    @property
    def window_events(self) -> int:
        return _PER_SECOND * self.window_seconds

    @property
    def slide_events(self) -> int:
        return _PER_SECOND * _SLIDE_SECONDS

    def stream(self, place: Path, share_rows: int, first: int) -> CallCentre:
        """The events from number `first` on."""
        times = evenly(1_000_000 // _PER_SECOND)
        return CallCentre(place, KPI_COLUMNS, lambda row, count: times(first + row, count), share_rows)

    def query(self, spark: SparkSession, place: Path) -> FedQuery:
        """A new query, or the one that ran in this place before."""
        columns = self.stream(place, 1, 0).ddl
        text = kpis(f"RANGE {self.window_seconds} SECONDS SLIDE {_SLIDE_SECONDS} SECONDS")
        return FedQuery(spark, place / "query", columns, penstock_plan(spark, STREAM, text))


_PLANS = {
    Size.TINY: _Plan(60, 60_000),
    Size.QUICK: _Plan(3000, 1_500_000),
    Size.FULL: _Plan(64_000, 4_000_000),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    with TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        report.step(f"filling a window of {plan.window_events:,} events in another process")
        _fill_and_kill(place, size)
        window_bytes = _bytes_under(place / "query/checkpoint/penstock/segments")
        # Its last event is past the boundary at which the rows of one slide leave.
        (next_slide,) = plan.stream(place / "next", plan.slide_events + 2, plan.window_events).shares(1)
        _forget(place / "query/checkpoint")
        report.step(f"killed with {window_bytes:,} bytes of window; starting again")
        began = time.perf_counter()
        with spark_place(size, report, place / "restarted") as (spark, _):
            with_spark, read_before = time.perf_counter(), _read_from_disk()
            restarted = plan.query(spark, place)
            batch = restarted.feed(next_slide)
            ended = time.perf_counter()
            figures = Figures()
            figures.read(restarted.running)
            disk_bytes_read = _read_from_disk() - read_before
            restarted.stop()
    rows = {
        "seconds": ended - began,
        "bytes_read": figures.bytes_read,
        "window_bytes": window_bytes,
        "seconds_without_starting_spark": ended - with_spark,
        "first_batch_seconds": batch.wall,
        "disk_bytes_read": disk_bytes_read,
        "state_bytes": figures.state_bytes,
        "next_slide_bytes": window_bytes * plan.slide_events // plan.window_events,
        "results": figures.results,
    }
    report.table(("figure", "value"), list(rows.items()))
    return {**rows, "window_events": plan.window_events, "slide_events": plan.slide_events, "cores": CORES}


def _fill_and_kill(place: Path, size: Size) -> None:
    """Runs `fill` in another process and kills it, Spark and the workers as soon as the window is full."""
    command = [sys.executable, "-m", "penstock_bench.benches.recovery", str(place), size.value]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as filling:
        assert filling.stdout is not None
        told = filling.stdout.readline().strip()
        below = psutil.Process(filling.pid).children(recursive=True) if told == _FULL else []
        for process in (*below, filling):
            process.kill()
        psutil.wait_procs(below, timeout=60)
    if told != _FULL:
        raise subprocess.CalledProcessError(filling.returncode, command)


def fill(place: Path, size: Size) -> None:
    """Fills the window, says so, and waits to be killed."""
    plan = _PLANS[size]
    with spark_place(size, Report("filling", quiet=True), place / "filling") as (spark, _):
        fed = plan.query(spark, place)
        for share in plan.stream(place / "made", plan.batch_events, 0).shares(plan.window_events):
            fed.feed(share)
        print(_FULL, flush=True)
        fed.running.awaitTermination()


def _bytes_under(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _forget(directory: Path) -> None:
    """Takes the files out of the system's cache: the next read comes from the disk."""
    for file in directory.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _read_from_disk() -> int:
    """Bytes that Spark and its workers have caused to be read, the system's reading ahead included."""
    return sum(process.io_counters().read_bytes for process in spark_processes())


if __name__ == "__main__":
    fill(Path(sys.argv[1]), Size(sys.argv[2]))
