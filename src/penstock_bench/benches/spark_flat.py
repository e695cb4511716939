"""The same stream on Spark through windows of ten minutes to 24 hours: does a larger window cost more?

One query for each window, all in one session and full, fed the same micro-batches in turns. The small windows are in
memory, the large ones in segment files, so that as many rows as come in are read back from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock_bench.benches.callcentre_feed import KPI_COLUMNS, STREAM, CallCentre, kpis
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, Share, penstock_plan, spark_place
from penstock_bench.benches.timing import Timing, cpu_rate, in_turns, rate, ratio

_MEMORY = "64MB"


@dataclass(frozen=True)
class _Plan:
    """`warm_up` micro-batches with full windows are set aside."""

    windows: tuple[int, ...]
    per_second: int
    slide_seconds: int
    batch_events: int
    warm_up: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan((10, 60), 10, 10, 1000, 0, 1),
    Size.QUICK: _Plan((600, 86_400), 40, 60, 1_000_000, 0, 2),
    Size.FULL: _Plan((600, 3600, 21_600, 86_400), 1000, 60, 4_000_000, 2, 7),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    with spark_place(size, report) as (spark, place):
        stream = CallCentre(place / "made", KPI_COLUMNS, evenly(1_000_000 // plan.per_second), plan.batch_events)
        report.step("making the events")
        filling = stream.shares(plan.per_second * max(plan.windows))
        warm_up = stream.shares(plan.warm_up * plan.batch_events)
        shares = stream.shares(plan.rounds * plan.batch_events)
        queries: dict[int, FedQuery] = {}
        for seconds in plan.windows:
            report.step(f"filling a window of {seconds:,} s")
            text = kpis(f"RANGE {seconds} SECONDS SLIDE {plan.slide_seconds} SECONDS")
            queries[seconds] = FedQuery(
                spark, place / f"query-{seconds}", stream.ddl, penstock_plan(spark, STREAM, text, _MEMORY)
            )
            needed = -(-plan.per_second * seconds // plan.batch_events)
            for share in [*filling[-needed:], *warm_up]:
                queries[seconds].feed(share)
        report.step("measuring all in turns")
        turns = {str(seconds): partial(_feed_next, fed, iter(shares)) for seconds, fed in queries.items()}
        taken = in_turns(turns, plan.rounds)
        for fed in queries.values():
            fed.stop()
    rates = [
        {
            "window_seconds": int(seconds),
            "window_events": plan.per_second * int(seconds),
            "events_per_second": rate(rounds),
            "events_per_cpu_second": cpu_rate(rounds),
        }
        for seconds, rounds in taken.items()
    ]
    report.table(tuple(rates[0]), [tuple(row.values()) for row in rates])
    by_rate = sorted(taken.values(), key=rate)
    return {
        "slowest_to_fastest": ratio(by_rate[0], by_rate[-1]),
        "batch_events": plan.batch_events,
        "events_per_event_second": plan.per_second,
        "slide_seconds": plan.slide_seconds,
        "memory": _MEMORY,
        "cores": CORES,
        "rounds": plan.rounds,
        "rates": rates,
    }


def _feed_next(fed: FedQuery, shares: Iterator[Share]) -> Timing:
    return fed.feed(next(shares))
