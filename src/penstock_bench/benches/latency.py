"""Single events at a fixed rate: how long after its time is an event's result there?

The load is open: event i is due at i/rate whatever happened before, and its latency counts from then, so that a pause
of the engine is charged to every event that it kept waiting, until its result is delivered. The loop spins until the
next event is due. Events are pushed one by one, and each is processed at once, without a `linger`. The window
is one hour of Query 3, on disk through two blocks, filled before, so that rows leave as fast as they come. In the
quick run only the stretch that leaves while the clock runs is as dense as the load, and the rest of the hour thinner.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock_bench.benches import stock_feed
from penstock_bench.benches.feed import BATCH_ROWS
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.vwap import TWO_BLOCKS
from penstock_bench.measure.results.statistics import percentiles

_LINGER = 0.0


@dataclass(frozen=True)
class _Plan:
    per_second: int
    seconds: float
    warm_up_seconds: float
    thinning: int
    batch_rows: int

    @property
    def events(self) -> int:
        return int(self.per_second * self.seconds)

    @property
    def warm_up_events(self) -> int:
        return int(self.per_second * self.warm_up_seconds)


_PLANS = {
    Size.TINY: _Plan(2000, 0.1, 0.05, 1000, 256),
    Size.QUICK: _Plan(20_000, 8, 1, 20, BATCH_ROWS),
    Size.FULL: _Plan(20_000, 60, 5, 1, BATCH_ROWS),
}
_SLOWEST = 2
"""A run that cannot keep the rate is cut off after so many times its length."""


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    hour = stock_feed.Hour(plan.per_second, 2 * (plan.events + plan.warm_up_events), plan.thinning, plan.batch_rows)
    with App(stock_feed.application("RANGE 1 HOUR"), memory=TWO_BLOCKS, linger=_LINGER) as app:
        report.step(f"filling one hour: {hour.rows:,} events")
        hour.fill(app)
        events = hour.next_events(plan.warm_up_events + plan.events)
        # The harness's own objects should not make the collector's pauses longer than the engine's would.
        gc.collect()
        gc.freeze()
        read_before = app.metrics.blocks_read
        report.step(f"pushing {plan.events:,} events, {plan.per_second:,} a second")
        arrivals = _Arrivals(app)
        _at_rate(app, arrivals, events[: plan.warm_up_events], plan)
        latencies, elapsed = _at_rate(app, arrivals, events[plan.warm_up_events :], plan)
        gc.unfreeze()
        blocks_read = app.metrics.blocks_read - read_before
    percents = [50, 90, 99, 99.9, 99.99]
    shown = {f"p{p:g}": ns / 1e3 for p, ns in zip(percents, percentiles(latencies, percents), strict=True)}
    report.table(
        ("latency", "µs"),
        [*shown.items(), ("mean", float(latencies.mean() / 1e3)), ("max", float(latencies.max() / 1e3))],
    )
    return {
        "p50_us": shown["p50"],
        "p99_us": shown["p99"],
        "p999_ms": shown["p99.9"] / 1e3,
        "max_ms": float(latencies.max() / 1e6),
        "mean_us": float(latencies.mean() / 1e3),
        "linger_us": _LINGER * 1e6,
        "rate": plan.per_second,
        "achieved_rate": len(latencies) / elapsed,
        "events": len(latencies),
        "window_events": hour.rows,
        "blocks_read": blocks_read,
    }


def _at_rate(
    app: App, arrivals: _Arrivals, events: list[dict[str, Any]], plan: _Plan
) -> tuple[NDArray[np.int64], float]:
    """Latencies in nanoseconds of the events that were pushed, and the seconds that it took."""
    interval = 1_000_000_000 // plan.per_second
    clock = time.perf_counter_ns
    arrivals.begin(len(events))
    began = clock()
    cut_off = began + int(_SLOWEST * len(events) * interval)
    for number, event in enumerate(events):
        due = began + number * interval
        while clock() < due:
            pass
        app.push(stock_feed.STREAM, event)
        if clock() > cut_off:
            break
    app.flush()
    elapsed = (clock() - began) / 1e9
    delivered = arrivals.times()
    return delivered - (began + np.arange(len(delivered)) * interval), elapsed


class _Arrivals:
    """When the results came: one per event, in order."""

    def __init__(self, app: App) -> None:
        self._times = np.empty(0, np.int64)
        self._count = 0
        app.subscribe("q1", self._deliver)

    def begin(self, events: int) -> None:
        self._times, self._count = np.empty(events, np.int64), 0

    def _deliver(self, results: pa.RecordBatch) -> None:
        self._times[self._count : self._count + results.num_rows] = time.perf_counter_ns()
        self._count += results.num_rows

    def times(self) -> NDArray[np.int64]:
        return self._times[: self._count]
