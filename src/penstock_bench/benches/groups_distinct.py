"""Distinct values beyond memory: COUNT(DISTINCT x) over an hour without groups, for more values than memory holds.

Each value comes once in an hour, in a scattered order; the window slides every ten minutes and every result is checked.
`distinct_values` is how many were counted in the budget, `distinct_events_per_second` the rate of the slide after the
window has been filled. `distinct_paged_to_memory` is the rate of the median slide of an app whose table is several
times its budget, beside one that holds all of it in memory, in turns.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, ratio

_STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, x BIGINT NOT NULL, EVENT TIME t);"
_QUERY = "SELECT COUNT(DISTINCT x) AS n FROM s [RANGE 1 HOUR SLIDE 10 MINUTES];"
_HOUR = 3600 * 1_000_000
_SLIDES = 6
"""Slides in a window."""

_BATCH_ROWS = 1 << 16
_SCATTER = 0x9E3779B1
"""A prime: multiples of it go through all values."""


@dataclass(frozen=True)
class _Plan:
    memory: int
    values: int
    compared: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan(4_000_000, 120_000, 120_000, 1),
    Size.QUICK: _Plan(16_000_000, 1_500_000, 900_000, 2),
    Size.FULL: _Plan(256_000_000, 50_000_000, 16_000_000, 4),
}


def measure_distinct(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    report.step(f"{plan.values:,} distinct values in {plan.memory / 1e6:,.0f} MB")
    fed = _Fed(plan.values, plan.memory)
    with fed.app:
        fed.fill()
        events_per_second = fed.slide().rate
    _check(fed, plan.memory)
    return {
        "distinct_values": plan.values,
        "distinct_events_per_second": events_per_second,
        "distinct_paged_to_memory": _compared(plan, report),
    }


class _Fed:
    """An app, and the events that go to it: as many in an hour as there are values."""

    def __init__(self, values: int, memory: int) -> None:
        self.app = App(_STREAM + _QUERY, memory=memory)
        self.app.subscribe(self.app.queries[0], self._take)
        self._values = values
        self._rows = 0
        self.results = 0
        self.wrong = 0

    def _take(self, results: pa.RecordBatch) -> None:
        """A window has each value once; the first ones are not full yet."""
        for counted in results.column("n").to_pylist():
            self.results += 1
            expected = self._values * min(self.results, _SLIDES) / _SLIDES
            self.wrong += abs(counted - expected) > 1

    def push(self, events: int) -> Timing:
        """So many events; what it takes to make them does not count."""
        end = self._rows + events
        wall = cpu = 0.0
        while self._rows < end:
            batch = self._batch(min(_BATCH_ROWS, end - self._rows))
            wall_before, cpu_before = time.perf_counter(), time.process_time()
            self.app.push("s", batch)
            wall, cpu = wall + time.perf_counter() - wall_before, cpu + time.process_time() - cpu_before
            self._rows += batch.num_rows
        return Timing(events, wall, cpu)

    def _batch(self, rows: int) -> pa.RecordBatch:
        numbers = np.arange(self._rows, self._rows + rows)
        times = pa.array(numbers * _HOUR // self._values).view(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays([times, pa.array(numbers * _SCATTER % self._values)], names=["t", "x"])

    def fill(self) -> None:
        self.push(self._values)

    def slide(self) -> Timing:
        """The events up to the next evaluation, and the evaluation."""
        return self.push(max(1, self._values // _SLIDES))


def _compared(plan: _Plan, report: Report) -> float:
    report.step(f"{plan.compared:,} distinct values, paged and in memory, in turns")
    with ExitStack() as apps:
        paged, resident = (_Fed(plan.compared, memory) for memory in (plan.memory // 2, 100 * plan.memory))
        for fed in (paged, resident):
            apps.enter_context(fed.app)
            fed.fill()
        taken = in_turns({"paged": paged.slide, "memory": resident.slide}, plan.rounds)
    _check(paged, plan.memory)
    _check(resident, 100 * plan.memory)
    return ratio(taken["paged"], taken["memory"])


def _check(fed: _Fed, memory: int) -> None:
    if fed.wrong or not fed.results:
        raise AssertionError(f"{fed.wrong:,} of {fed.results:,} results were wrong")
    if fed.app.metrics.memory_peak > memory:
        raise AssertionError("more than the budget was taken")
