"""The same question as `stores`, for the stores that the engine itself has: columns in blocks, a batch at a time.

`stores` takes single items through the paper's interface. Here a window over the last position reports, whose leaving
rows are subtracted from the statistics of their segments, lies in the store that `StoreManager.create` makes from the
same three sets of properties:

    baseline            RANDOM update, any read     queues of rows, linked: a row may leave from anywhere
    + update pattern    FIFO update, random read    blocks in order, a row's values side by side, rows found one by one
    + read pattern      FIFO update, sequential     blocks in order, columns read as views

The engine derives the third from the plan of such a window. Then the two queries of the paper's sharing experiment as
SQL, over windows of two minutes: in one app, which stores a report once for both, and in an app each.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock.arrays import Int64s
from penstock.instruments import (
    Argument,
    Budget,
    ColumnSpec,
    FifoStore,
    Properties,
    ReadPattern,
    RowQueues,
    StoreManager,
    UpdatePattern,
)
from penstock_bench.benches.timing import Timing, cpu_rate, cpu_ratio, in_turns, timed

_BUDGET = 256_000_000
_BATCH = 2000
"""Reports that come together: the engine's stores are made for batches."""
_CELLS = 200
"""Segments of both directions."""
_COLUMNS = [ColumnSpec(name, np.dtype(np.int64), False) for name in ("time", "cell", "speed")]

TOLD = {
    "baseline": Properties(update=UpdatePattern.RANDOM, read=(ReadPattern.CLUSTERED,)),
    "+ update pattern": Properties(update=UpdatePattern.FIFO, read=(ReadPattern.RANDOM,)),
    "+ read pattern": Properties(update=UpdatePattern.FIFO, read=(ReadPattern.SEQUENTIAL,)),
}
"""What the store of the window is told, under the names of the paper's Table 6."""

_SPEED_ZERO = "CREATE QUERY standing AS SELECT COUNT(*) AS cars FROM reports [RANGE 2 MINUTES SLIDE 1 MINUTE]"
_SPEED_ZERO += " WHERE speed = 0;"
_STATISTICS = "CREATE QUERY statistics AS SELECT cell, AVG(speed) AS mean, COUNT(*) AS cars"
_STATISTICS += " FROM reports [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY cell;"
_STREAM = "CREATE STREAM reports (time BIGINT, cell BIGINT, speed BIGINT, EVENT TIME time UNIT SECONDS);"


@dataclass(frozen=True)
class Reports:
    """Position reports as columns; `cell` is the segment and the direction."""

    time: Int64s
    cell: Int64s
    speed: Int64s

    @property
    def batches(self) -> list[tuple[Int64s, Int64s, Int64s]]:
        cuts = np.arange(_BATCH, len(self.time), _BATCH)
        columns = [np.split(column, cuts) for column in (self.time, self.cell, self.speed)]
        return list(zip(*columns, strict=True))


def cell(direction: Int64s, segment: Int64s) -> Int64s:
    return direction * (_CELLS // 2) + segment


def measure(reports: Reports, rounds: int) -> dict[str, Any]:
    window = max(1, len(reports.time) // 3)
    batches = reports.batches
    sums: list[Int64s] = []
    steps = in_turns({name: partial(_pass_through, told, batches, window, sums) for name, told in TOLD.items()}, rounds)
    peaks: dict[str, int] = {}
    both = {"shared": [_SPEED_ZERO + _STATISTICS], "not shared": [_SPEED_ZERO, _STATISTICS]}
    sharing = in_turns({name: partial(_in_apps, texts, batches, peaks, name) for name, texts in both.items()}, rounds)
    return {
        "engine_steps": [
            {"stores": name, "report_ns": median(t.cpu / t.events for t in taken) * 1e9}
            for name, taken in steps.items()
        ],
        "engine_speedup": cpu_ratio(steps["+ read pattern"], steps["baseline"]),
        "engine_rates": {name: cpu_rate(taken) for name, taken in sharing.items()},
        "engine_shared_to_unshared": cpu_ratio(sharing["shared"], sharing["not shared"]),
        "engine_memory_mb": {name: peak / 1e6 for name, peak in peaks.items()},
        "engine_answers_equal": all(np.array_equal(one, sums[0]) for one in sums),
    }


def _pass_through(
    told: Properties, batches: Sequence[tuple[Int64s, Int64s, Int64s]], window: int, sums: list[Int64s]
) -> Timing:
    """`sums` gets what is in the window at the end: the reports of each segment, and their speeds."""
    gc.collect()
    manager = StoreManager(Budget(_BUDGET), None)
    store = manager.create("car positions", told, _COLUMNS)
    assert isinstance(store, FifoStore | RowQueues)
    enter = _queue(store, window) if isinstance(store, RowQueues) else _ordered(store, window, told)
    totals = np.zeros((2, _CELLS), np.int64)
    taken = timed(sum(len(batch[0]) for batch in batches), lambda: _play(batches, enter, totals))
    sums.append(totals)
    manager.close()
    return taken


Enter = Callable[[Sequence[Argument]], tuple[Argument, ...]]
"""Takes a batch into a store, and gives the rows that leave the window for it."""


def _play(batches: Sequence[tuple[Int64s, Int64s, Int64s]], enter: Enter, totals: Int64s) -> None:
    for batch in batches:
        left = enter([Argument(column, None) for column in batch])
        for (_, cell, speed), sign in ((batch, 1), ([column.values for column in left], -1)):
            totals[0] += sign * np.bincount(cell, minlength=_CELLS)
            np.add.at(totals[1], cell, sign * speed)


def _queue(store: RowQueues, window: int) -> Enter:
    store.ensure(1)
    return lambda columns: store.enter(np.zeros(len(columns[0].values), np.int32), columns, window).left


def _ordered(store: FifoStore, window: int, told: Properties) -> Enter:
    everything = range(len(_COLUMNS))
    cursor = store.cursor()
    in_order = told.read == (ReadPattern.SEQUENTIAL,)

    def enter(columns: Sequence[Argument]) -> tuple[Argument, ...]:
        store.append(columns)
        first, upto = store.tail, max(store.tail, store.head - window)
        if in_order:
            views = []
            while cursor.position < upto:
                view = cursor.view(upto)
                views.append(view.columns)
                cursor.advance(view.count)
            left = _joined(views)
        else:
            left = store.gather(np.arange(first, upto), everything)
            cursor.seek(upto)
        store.release(upto)
        return left

    return enter


def _joined(views: Sequence[tuple[Argument, ...]]) -> tuple[Argument, ...]:
    if len(views) == 1:
        return views[0]
    empty = np.empty(0, np.int64)
    columns = ([view[place].values for view in views] or [empty] for place in range(len(_COLUMNS)))
    return tuple(Argument(np.concatenate(column), None) for column in columns)


def _in_apps(
    texts: Sequence[str], batches: Sequence[tuple[Int64s, Int64s, Int64s]], peaks: dict[str, int], name: str
) -> Timing:
    gc.collect()
    names = [column.name for column in _COLUMNS]
    rows = [pa.RecordBatch.from_arrays([pa.array(column) for column in batch], names) for batch in batches]
    peaks[name] = 0

    def run() -> None:
        for text in texts:
            with App(_STREAM + text, strategy="window") as app:
                for batch in rows:
                    app.push("reports", batch)
                app.finish()
                peaks[name] += app.metrics.memory_peak

    return timed(sum(len(batch) for batch in rows), run)
