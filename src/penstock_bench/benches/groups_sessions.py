"""Sessions beyond memory: SUM and COUNT by key over sessions, with more of them open than memory holds.

Each session has four events, scattered among those of all others, and is open for three gaps. HAVING lets a thousandth
of them through, and every result is checked. `sessions_open` is how many are open at a time. The rate of the median gap
in the budget is `sessions_events_per_second`. `sessions_paged_to_memory` is that rate beside the one of an app that
holds all of them in memory, in turns, and `sessions_to_budget` what they take there as a multiple of the budget.
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
from penstock_bench.benches.timing import Timing, in_turns, rate, ratio

_STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
_QUERY = (
    "SELECT k, SUM(x) AS total, COUNT(*) AS n FROM s [PARTITION BY k SESSION {gap} MICROSECONDS]"
    " GROUP BY k HAVING k % 1000 = 7;"
)
_EVENTS = 4
"""Of a session."""

_STEP = 100
"""Microseconds from event to event."""

_BATCH_ROWS = 1 << 16
_SCATTER, _KEYS = 0x9E3779B1, 1 << 31
"""A key comes again after so many sessions."""


@dataclass(frozen=True)
class _Plan:
    memory: int
    open: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan(1_000_000, 20_000, 1),
    Size.QUICK: _Plan(16_000_000, 500_000, 2),
    Size.FULL: _Plan(128_000_000, 4_000_000, 4),
}


def measure_sessions(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    report.step(f"{plan.open:,} open sessions in {plan.memory / 1e6:,.0f} MB and in memory, in turns")
    with ExitStack() as apps:
        paged, resident = (_Fed(plan.open, memory) for memory in (plan.memory, 100 * plan.memory))
        for fed in (paged, resident):
            apps.enter_context(fed.app)
            fed.fill()
        metrics = resident.app.metrics
        taken = in_turns({"paged": paged.gap, "memory": resident.gap}, plan.rounds)
    for fed in (paged, resident):
        if fed.wrong or not fed.results:
            raise AssertionError(f"{fed.wrong:,} of {fed.results:,} results were wrong")
    if paged.app.metrics.memory_peak > plan.memory:
        raise AssertionError("more than the budget was taken")
    return {
        "sessions_open": plan.open,
        "sessions_to_budget": (metrics.memory_bytes - metrics.pool_bytes) / plan.memory,
        "sessions_events_per_second": rate(taken["paged"]),
        "sessions_paged_to_memory": ratio(taken["paged"], taken["memory"]),
    }


class _Fed:
    """An app, and the events that go to it. Session number q has the events 4q, 4(q + d) + 1, 4(q + 2d) + 2 and
    4(q + 3d) + 3, for a distance d of two thirds of the gap."""

    def __init__(self, sessions: int, memory: int) -> None:
        self._distance = sessions * 2 // 9
        self._gap_events = _EVENTS * self._distance * 3 // 2
        self.app = App(_STREAM + _QUERY.format(gap=self._gap_events * _STEP), memory=memory)
        self.app.subscribe(self.app.queries[0], self._take)
        self._rows = self.results = self.wrong = 0

    def _take(self, results: pa.RecordBatch) -> None:
        """Sessions that began before the stream have fewer events."""
        is_whole = results["window_start"].cast(pa.int64()).to_numpy() >= 3 * _EVENTS * self._distance * _STEP
        keys, counts, totals = (results[name].to_numpy()[is_whole] for name in ("k", "n", "total"))
        self.results += len(keys)
        self.wrong += int(np.count_nonzero((counts != _EVENTS) | (totals != _EVENTS * _value(keys))))

    def fill(self) -> None:
        """Up to the moment when the first sessions with all of their events close."""
        self._push(5 * self._gap_events)

    def gap(self) -> Timing:
        """The events of a gap."""
        return self._push(self._gap_events)

    def _push(self, events: int) -> Timing:
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
        sessions = numbers // _EVENTS - numbers % _EVENTS * self._distance
        keys = sessions * _SCATTER % _KEYS
        times = pa.array(numbers * _STEP).view(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays([times, pa.array(keys), pa.array(_value(keys))], names=["t", "k", "x"])


def _value(keys: Any) -> Any:
    return keys % 97 / 8
