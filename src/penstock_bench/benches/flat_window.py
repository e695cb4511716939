"""Per-event SUM, AVG and MAX over the last W rows: the rate must not depend on W.

One app for each W, filled before the clock runs, then all of them in turns.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock import App
from penstock_bench.benches.feed import BATCH_ROWS, Feed, evenly, number_ring
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import cpu_rate, in_turns, rate


@dataclass(frozen=True)
class _Plan:
    windows: tuple[int, ...]
    batch_rows: int
    rounds: int
    round_batches: int


_PLANS = {
    Size.TINY: _Plan((100, 2000), 1024, 2, 1),
    Size.QUICK: _Plan((10**3, 10**4, 10**5, 10**6, 10**7), BATCH_ROWS, 5, 4),
    Size.FULL: _Plan((10**3, 10**4, 10**5, 10**6, 10**7, 10**8), BATCH_ROWS, 11, 16),
}


def application(rows: int) -> str:
    return f"""
        CREATE STREAM s (t TIMESTAMP NOT NULL, v DOUBLE NOT NULL, EVENT TIME t);
        SELECT SUM(v) AS total, AVG(v) AS mean, MAX(v) AS most FROM s [ROWS {rows}];
    """


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ring = number_ring(32, plan.batch_rows)
    feeds: dict[str, Feed] = {}
    with ExitStack() as apps:
        for window in plan.windows:
            report.step(f"filling a window of {window:,} rows")
            app = apps.enter_context(App(application(window)))
            feeds[str(window)] = Feed(app, "s", ring, evenly(1))
            feeds[str(window)].fill(window + plan.batch_rows)
        report.step("measuring all in turns")
        taken = in_turns({w: partial(feed.push, plan.round_batches) for w, feed in feeds.items()}, plan.rounds)
    rows = [
        {
            "window_rows": window,
            "events_per_second": rate(taken[str(window)]),
            "events_per_cpu_second": cpu_rate(taken[str(window)]),
        }
        for window in plan.windows
    ]
    report.table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    return {
        "slowest_to_fastest": _slowest_to_fastest([row["events_per_second"] for row in rows]),
        "slowest_to_fastest_cpu": _slowest_to_fastest([row["events_per_cpu_second"] for row in rows]),
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
        "rates": rows,
    }


def _slowest_to_fastest(rates: list[float]) -> float:
    return min(rates) / max(rates)
