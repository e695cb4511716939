"""Query 3 of the SlideM paper: a VWAP per symbol with every event, through a pool of two blocks.

The same events go to two apps in turns: one whose budget leaves two blocks to the window, so that every block is
written to a file and read back, and one whose budget holds the whole window. The memory that the paged window adds is
taken before the other app exists. Then come the rates of the paper's Table 1, over a window of one hour in the full run
and of a minute in the quick one.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import App
from penstock_bench.benches import stock_feed
from penstock_bench.benches.feed import BATCH_ROWS, Feed, Ring, evenly
from penstock_bench.benches.memory import PeakMemory
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import cpu_rate, cpu_ratio, in_turns, rate, ratio

TWO_BLOCKS = "200KB"
"""A budget that leaves a window's pool two blocks beside the groups of Query 3: the least there is."""

_STORED = 28
"""Bytes of disk that an event may take, with room to spare."""


@dataclass(frozen=True)
class _Plan:
    window_events: int
    ring_batches: int
    batch_rows: int
    rounds: int
    round_batches: int
    sweep_rates: tuple[int, ...] = ()
    sweep_window_seconds: int = 3600
    sweep_seconds: int = 20


_TABLE_1 = (50_000, 100_000, 150_000, 200_000, 250_000, 300_000)

_PLANS = {
    Size.TINY: _Plan(4096, 2, 1024, 2, 1, sweep_rates=(2000, 10**12), sweep_window_seconds=1, sweep_seconds=1),
    Size.QUICK: _Plan(
        20_000_000, 32, BATCH_ROWS, 5, 12, sweep_rates=_TABLE_1, sweep_window_seconds=60, sweep_seconds=2
    ),
    Size.FULL: _Plan(100_000_000, 32, BATCH_ROWS, 9, 32, sweep_rates=_TABLE_1),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ring = stock_feed.ring(plan.ring_batches, plan.batch_rows)
    query = stock_feed.application(f"RANGE {plan.window_events} MICROSECONDS")
    _warm_up(ring)
    memory = PeakMemory()
    with App(query, memory=TWO_BLOCKS) as paged_app:
        paged = Feed(paged_app, stock_feed.STREAM, ring, evenly(1))
        report.step(f"filling a window of {plan.window_events:,} events through two blocks")
        paged.fill(plan.window_events)
        paged.push(plan.round_batches)
        added = memory.added
        with App(query, memory=32 * _STORED * plan.window_events + 1_000_000_000) as memory_app:
            resident = Feed(memory_app, stock_feed.STREAM, ring, evenly(1))
            report.step("filling the same window in memory")
            resident.fill(plan.window_events)
            report.step("measuring both in turns")
            turns = {
                "paged": lambda: paged.push(plan.round_batches),
                "memory": lambda: resident.push(plan.round_batches),
            }
            taken = in_turns(turns, plan.rounds)
            metrics, resident_metrics = paged_app.metrics, memory_app.metrics
    report.table(
        ("window", "events/s", "events per CPU second", "blocks written"),
        [
            ("two blocks", rate(taken["paged"]), cpu_rate(taken["paged"]), metrics.blocks_written),
            ("in memory", rate(taken["memory"]), cpu_rate(taken["memory"]), resident_metrics.blocks_written),
        ],
    )
    return {
        "paged_to_memory": ratio(taken["paged"], taken["memory"]),
        "paged_to_memory_cpu": cpu_ratio(taken["paged"], taken["memory"]),
        "events_per_second": rate(taken["paged"]),
        "events_per_cpu_second": cpu_rate(taken["paged"]),
        "memory_events_per_second": rate(taken["memory"]),
        "added_mb": added / 1e6,
        "window_events": plan.window_events,
        "window_bytes": metrics.stored_bytes,
        "pool_blocks": 2,
        "blocks_written": metrics.blocks_written,
        "blocks_written_in_memory": resident_metrics.blocks_written,
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
        "table_1_window_seconds": plan.sweep_window_seconds,
        "table_1": _sweep(plan, ring, report),
    }


def _warm_up(ring: Ring) -> None:
    """Loads the kernels and lets the process take the memory that any push needs."""
    with App(stock_feed.application("RANGE 1 SECOND"), memory=TWO_BLOCKS) as app:
        Feed(app, stock_feed.STREAM, ring, evenly(10)).fill(4 * ring.batch_rows)


def _sweep(plan: _Plan, ring: Ring, report: Report) -> list[dict[str, Any]]:
    """A full window at each rate, and then so many seconds in real time, a batch every millisecond."""
    rows = []
    free = shutil.disk_usage(tempfile.gettempdir()).free
    for per_second in plan.sweep_rates:
        if per_second * plan.sweep_window_seconds * _STORED > free * 0.9:
            rows.append({"rate": per_second, "skipped": "the disk is too small"})
            continue
        report.step(f"{per_second:,} events/s: filling the window")
        with App(stock_feed.application(f"RANGE {plan.sweep_window_seconds} SECONDS"), memory=TWO_BLOCKS) as app:
            filled = Feed(app, stock_feed.STREAM, ring, _at_rate(per_second))
            filled.fill(per_second * plan.sweep_window_seconds)
            rows.append({"rate": per_second, **_in_real_time(filled, ring, per_second, plan.sweep_seconds)})
    if rows:
        names = ("rate", "space_gb", "average_ms", "p999_ms", "max_ms", "cpu_percent")
        report.table(names, [[row.get(name, "-") for name in names] for row in rows])
    return rows


def _at_rate(per_second: int) -> Any:
    return lambda first, count: np.arange(first, first + count) * 1_000_000 // per_second


def _in_real_time(filled: Feed, ring: Ring, per_second: int, seconds: int) -> dict[str, Any]:
    """The delay of each batch's results behind the moment at which its last event was due."""
    count = per_second // 1000
    times = _at_rate(per_second)
    batches = [ring.batch(filled.rows + i, times(filled.rows + i * count, count)) for i in range(seconds * 1000)]
    delays = np.empty(len(batches))
    cpu = time.process_time()
    began = time.perf_counter()
    for number, batch in enumerate(batches):
        due = began + number / 1000
        early = due - time.perf_counter()
        if early > 0:
            time.sleep(early)
        filled.app.push(stock_feed.STREAM, batch)
        delays[number] = time.perf_counter() - due
    elapsed = time.perf_counter() - began
    return {
        "space_gb": filled.app.metrics.stored_bytes / 1e9,
        "average_ms": float(delays.mean() * 1e3),
        "p999_ms": float(np.quantile(delays, 0.999) * 1e3),
        "max_ms": float(delays.max() * 1e3),
        "cpu_percent": 100 * (time.process_time() - cpu) / elapsed,
        "achieved_rate": len(batches) * count / elapsed,
    }
