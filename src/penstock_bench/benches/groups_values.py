"""Values beyond memory: COUNT(DISTINCT x) and percentiles over an hour without groups, for more than memory holds.

Each value comes once in an hour, in a scattered order; the window slides every ten minutes and every result of a full
window is checked. `distinct_values` and `percentile_values` are how many were in the window in the budget,
`…_events_per_second` the rate of the slide after the window has been filled. `…_paged_to_memory` is the rate of the
median slide of an app whose values take several times its budget, beside one that holds all of them in memory, in
turns. `percentile_paged_to_memory_events` is the same with percentiles at every event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
_HOUR = 3600 * 1_000_000
_SLIDES = 6
"""Slides in a window."""

_BATCH_ROWS = 1 << 16
_SCATTER = 0x9E3779B1
"""A prime: multiples of it go through all values."""


@dataclass(frozen=True)
class _Question:
    """A query with one result, and what that is for so many values of which each comes once."""

    query: str
    expected: Callable[[int], float]


_DISTINCT = _Question("SELECT COUNT(DISTINCT x) AS n FROM s [RANGE 1 HOUR SLIDE 10 MINUTES];", lambda values: values)
_SLIDING = _Question(
    "SELECT PERCENTILE_DISC(x, 0.99) AS n FROM s [RANGE 1 HOUR SLIDE 10 MINUTES];",
    lambda values: (99 * values + 99) // 100 - 1,
)
_EVERY_EVENT = _Question("SELECT MEDIAN(x) AS n FROM s [RANGE 1 HOUR];", lambda values: (values - 1) / 2)


@dataclass(frozen=True)
class _Plan:
    """`compared` values are in `compared_memory` and in enough memory."""

    memory: int
    values: int
    compared_memory: int
    compared: int
    rounds: int


_DISTINCT_PLANS = {
    Size.TINY: _Plan(4_000_000, 120_000, 2_000_000, 120_000, 1),
    Size.QUICK: _Plan(16_000_000, 1_500_000, 8_000_000, 900_000, 2),
    Size.FULL: _Plan(256_000_000, 50_000_000, 128_000_000, 16_000_000, 4),
}
_PERCENTILE_PLANS = {
    Size.TINY: _Plan(3_000_000, 240_000, 3_000_000, 240_000, 1),
    Size.QUICK: _Plan(16_000_000, 6_000_000, 8_000_000, 3_000_000, 2),
    Size.FULL: _Plan(64_000_000, 100_000_000, 32_000_000, 12_000_000, 4),
}
_ENOUGH = 200
"""So many times the memory of an app that pages has one that does not."""


def measure_distinct(size: Size, report: Report) -> dict[str, Any]:
    plan = _DISTINCT_PLANS[size]
    return {
        "distinct_values": plan.values,
        "distinct_events_per_second": _rate(_DISTINCT, plan, report, "distinct values"),
        "distinct_paged_to_memory": _compared(_DISTINCT, plan, report, "distinct values"),
    }


def measure_percentiles(size: Size, report: Report) -> dict[str, Any]:
    plan = _PERCENTILE_PLANS[size]
    return {
        "percentile_values": plan.values,
        "percentile_events_per_second": _rate(_SLIDING, plan, report, "values in order"),
        "percentile_paged_to_memory": _compared(_SLIDING, plan, report, "values in order"),
        "percentile_paged_to_memory_events": _compared(_EVERY_EVENT, plan, report, "values in order, at every event"),
    }


def _rate(question: _Question, plan: _Plan, report: Report, what: str) -> float:
    report.step(f"{plan.values:,} {what} in {plan.memory / 1e6:,.0f} MB")
    fed = _Fed(question, plan.values, plan.memory)
    with fed.app:
        fed.fill()
        events_per_second = fed.slide().rate
    fed.check()
    return events_per_second


class _Fed:
    """An app, and the events that go to it: as many in an hour as there are values."""

    def __init__(self, question: _Question, values: int, memory: int) -> None:
        self.app = App(_STREAM + question.query, memory=memory)
        self.app.subscribe(self.app.queries[0], self._take)
        self._expected = question.expected(values)
        self._memory = memory
        self._values = values
        self._rows = 0
        self._checked = 0
        self._wrong = 0

    def _take(self, results: pa.RecordBatch) -> None:
        """A window that is full has each value once."""
        ends = results.column("window_end").cast(pa.int64()).to_numpy()
        found = results.column("n").to_numpy()[ends >= self._full_from]
        self._checked += len(found)
        self._wrong += int(np.count_nonzero(found != self._expected))

    @property
    def _full_from(self) -> int:
        """The end of the first full window. The last of the first values comes a little earlier."""
        return (self._values - 1) * _HOUR // self._values

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

    def check(self) -> None:
        if self._wrong or not self._checked:
            raise AssertionError(f"{self._wrong:,} of {self._checked:,} results were wrong")
        if self.app.metrics.memory_peak > self._memory:
            raise AssertionError("more than the budget was taken")


def _compared(question: _Question, plan: _Plan, report: Report, what: str) -> float:
    report.step(f"{plan.compared:,} {what}, paged and in memory, in turns")
    with ExitStack() as apps:
        budgets = (plan.compared_memory, _ENOUGH * plan.compared_memory)
        paged, resident = (_Fed(question, plan.compared, memory) for memory in budgets)
        for fed in (paged, resident):
            apps.enter_context(fed.app)
            fed.fill()
        taken = in_turns({"paged": paged.slide, "memory": resident.slide}, plan.rounds)
    paged.check()
    resident.check()
    return ratio(taken["paged"], taken["memory"])
