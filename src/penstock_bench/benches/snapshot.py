"""What a checkpoint writes beside what there is: SUM and COUNT of a million groups, of which few change in between.

Between two checkpoints come 10,000 events. Their keys are drawn evenly, or by Zipf's law with the exponent 1.5. The
window of an hour holds all groups, and as many rows leave as enter. `bytes_to_state` are the bytes that a checkpoint
writes, as a part of those that it would write as a whole; blocks of the window are not among them. `pause_ms` is the
longest wait of a push around a checkpoint that is written beside the events, which is taken after every hundredth push
of 100 events: the median over the checkpoints. `pause_whole_ms` is the same for the first checkpoint of an app, which
writes the whole state. `pause_waiting_ms` and `pause_waiting_whole_ms` are those of checkpoints that are waited for, in
turns with the others. `spark_bytes_to_state` is the part that a micro-batch writes on Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock.instruments import Figures
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, penstock_plan, spark_place, write_parquet

_STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
_QUERY = "SELECT k, SUM(x) AS total, COUNT(*) AS n FROM s [RANGE 1 HOUR] GROUP BY k;"
_HOUR = 3600 * 1_000_000
_ZIPF = 1.5

Keys = Callable[[int], NDArray[np.int64]]


@dataclass(frozen=True)
class _Plan:
    groups: int
    updates: int
    pushes: int
    checkpoints: int
    wholes: int
    spark_batches: int


_PLANS = {
    Size.TINY: _Plan(2000, 20, 2, 3, 1, 2),
    Size.QUICK: _Plan(1_000_000, 10_000, 100, 20, 5, 3),
    Size.FULL: _Plan(1_000_000, 10_000, 100, 100, 20, 8),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    random = np.random.default_rng(1)

    def evenly(count: int) -> NDArray[np.int64]:
        return random.integers(0, plan.groups, count)

    def skewed(count: int) -> NDArray[np.int64]:
        return np.minimum(random.zipf(_ZIPF, count), plan.groups) - 1

    even = _embedded(plan, evenly, report, "evenly")
    skew = _embedded(plan, skewed, report, "by Zipf's law")
    whole = _wholes(plan, evenly, report)
    spark = _spark(plan, evenly, size, report)
    found = {
        "bytes_to_state": even["bytes_to_state"],
        "bytes_to_state_skewed": skew["bytes_to_state"],
        "pause_ms": even["pause_ms"],
        "pause_ms_skewed": skew["pause_ms"],
        "pause_whole_ms": whole["pause_ms"],
        "pause_waiting_ms": even["pause_waiting_ms"],
        "pause_waiting_whole_ms": whole["pause_waiting_ms"],
        "checkpoint_ms": even["checkpoint_ms"],
        "state_bytes": even["state_bytes"],
        "spark_bytes_to_state": spark,
    }
    report.table(("figure", "value"), list(found.items()))
    parameters = {"groups": plan.groups, "updates": plan.updates, "checkpoints": plan.checkpoints, "cores": CORES}
    return {**found, **parameters}


def _batch(keys: NDArray[np.int64], first: int, interval: int) -> pa.RecordBatch:
    """Events from number `first` on, one every so many microseconds."""
    times = (first + np.arange(len(keys))) * interval
    columns = [pa.array(times).view(pa.timestamp("us", "UTC")), pa.array(keys), pa.array(keys % 97 / 8)]
    return pa.RecordBatch.from_arrays(columns, names=["t", "k", "x"])


class _Measured:
    """Groups in a full window, and checkpoints of them, in an app of its own."""

    def __init__(self, plan: _Plan, keys: Keys, directory: Path) -> None:
        self._plan, self._keys, self._interval = plan, keys, _HOUR // plan.groups
        self._pushed = plan.groups
        self.directory = directory
        self.app = App(_STREAM + _QUERY, memory="1GB", checkpoint=directory)
        self.app.subscribe(self.app.queries[0], lambda results: None)
        self.app.push("s", _batch(np.random.default_rng(2).permutation(plan.groups), 0, self._interval))

    def checkpoint(self, *, wait: bool) -> tuple[float, float]:
        """Seconds for a checkpoint, and for the longest push of those that follow."""
        began = time.perf_counter()
        taken = self.app.checkpoint(wait=wait)
        checkpoint, longest = time.perf_counter() - began, 0.0
        for _ in range(self._plan.pushes):
            batch = _batch(self._keys(self._plan.updates // self._plan.pushes), self._pushed, self._interval)
            self._pushed += batch.num_rows
            began = time.perf_counter()
            self.app.push("s", batch)
            longest = max(longest, time.perf_counter() - began)
        while self.app.last_checkpoint != taken:
            time.sleep(0.001)
        return checkpoint, longest


def _embedded(plan: _Plan, keys: Keys, report: Report, how: str) -> dict[str, float]:
    """Checkpoints of what has changed. The window is full after one event of each group."""
    with TemporaryDirectory(prefix="penstock-bench-") as place:
        report.step(f"{plan.groups:,} groups, {how}")
        measured = _Measured(plan, keys, Path(place) / "checkpoint")
        with measured.app:
            measured.checkpoint(wait=True)
            whole = (measured.directory / "state").stat().st_size
            written, pauses, waiting, taken = [], [], [], []
            for number in range(plan.checkpoints + 1):
                pause = sum(measured.checkpoint(wait=False))
                before = _files(measured.directory)
                checkpoint, longest = measured.checkpoint(wait=True)
                if number:  # the first one finds kernels that were not loaded
                    pauses.append(pause)
                    waiting.append(checkpoint + longest)
                    taken.append(checkpoint)
                    written.append(sum(n for file, n in _files(measured.directory).items() if before.get(file) != n))
    return {
        "bytes_to_state": float(np.mean(written)) / whole,
        "pause_ms": float(np.median(pauses)) * 1e3,
        "pause_waiting_ms": float(np.median(waiting)) * 1e3,
        "checkpoint_ms": float(np.median(taken)) * 1e3,
        "state_bytes": whole,
    }


def _wholes(plan: _Plan, keys: Keys, report: Report) -> dict[str, float]:
    """First checkpoints."""
    report.step(f"{plan.groups:,} groups, whole checkpoints")
    pauses: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(plan.wholes):
        for wait, found in pauses.items():
            with TemporaryDirectory(prefix="penstock-bench-") as place:
                measured = _Measured(plan, keys, Path(place) / "checkpoint")
                with measured.app:
                    found.append(sum(measured.checkpoint(wait=wait)))
    return {
        "pause_ms": float(np.median(pauses[False])) * 1e3,
        "pause_waiting_ms": float(np.median(pauses[True])) * 1e3,
    }


def _files(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in directory.iterdir() if file.is_file()}


def _spark(plan: _Plan, keys: Keys, size: Size, report: Report) -> float:
    """The first micro-batch has one event of each group, and is followed by small ones."""
    interval = _HOUR // plan.groups
    with spark_place(size, report) as (spark, place):
        query = FedQuery(
            spark, place / "query", "t TIMESTAMP, k BIGINT, x DOUBLE", penstock_plan(spark, "s", _QUERY, "1GB")
        )
        report.step(f"{plan.groups:,} groups on Spark")
        first = np.random.default_rng(2).permutation(plan.groups)
        query.feed(write_parquet(_batch(first, 0, interval), place / "first"))
        pushed, parts, seen = plan.groups, [], Figures()
        for number in range(plan.spark_batches):
            query.feed(write_parquet(_batch(keys(plan.updates), pushed, interval), place / f"later-{number}"))
            pushed += plan.updates
            seen.read(query.running)
            parts.append(seen.state_written / seen.state_bytes)
        query.stop()
    return float(np.mean(parts))
