"""Query Q7 of the thesis (4.5.4): two events with the same id within an interval, the second above a threshold.

    SELECT * FROM PATTERN SEQ(A a1, A a2) WHERE a1.id = a2.id AND a2.A1 > K WITHIN interval

Three series, as there: the interval from 10 to 600 seconds, the number of ids from 100 to 100,000, and the part of
events that exceed K from 0.1 to 10 %. What is not varied is 60 seconds, 10,000 ids and 0.1 %. All consume ALL of both.
Everything that leaves the interval while the clock runs has entered before.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.feed import BATCH_ROWS, Feed, Ring, evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_rate, cpu_ratio, in_turns, rate, ratio

_PER_SECOND = 1_000


@dataclass(frozen=True)
class _Variant:
    interval: int = 60
    ids: int = 10_000
    selectivity: float = 0.001


@dataclass(frozen=True)
class _Plan:
    intervals: tuple[int, ...]
    ids: tuple[int, ...]
    selectivities: tuple[float, ...]
    rounds: int
    round_batches: int
    batch_rows: int = BATCH_ROWS

    @property
    def variants(self) -> tuple[_Variant, ...]:
        """Each but once: what is not varied is a part of all three series."""
        common = _Variant()
        return tuple(
            dict.fromkeys(
                [replace(common, interval=interval) for interval in self.intervals]
                + [replace(common, ids=ids) for ids in self.ids]
                + [replace(common, selectivity=selectivity) for selectivity in self.selectivities]
            )
        )


_PLANS = {
    Size.TINY: _Plan((10, 60, 600), (100,), (0.1,), 2, 1, 2_000),
    Size.QUICK: _Plan((10, 60, 600), (100, 10_000, 100_000), (0.001, 0.01, 0.1), 7, 6),
    Size.FULL: _Plan(
        (10, 30, 60, 120, 300, 600), (100, 1_000, 10_000, 100_000), (0.001, 0.005, 0.01, 0.05, 0.1), 15, 12
    ),
}


def application(interval: int, selectivity: float) -> str:
    return f"""
        CREATE STREAM A (t TIMESTAMP NOT NULL, id INT NOT NULL, A1 DOUBLE NOT NULL, EVENT TIME t);
        SELECT * FROM PATTERN SEQ(A a1, A a2) WHERE a1.id = a2.id AND a2.A1 > {1 - selectivity}
        WITHIN {interval} SECONDS;
    """


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    rings = {ids: _ring(ids, plan.batch_rows) for ids in {variant.ids for variant in plan.variants}}
    feeds: dict[_Variant, Feed] = {}
    with ExitStack() as apps:
        for variant in plan.variants:
            report.step(f"filling {variant.interval} s, {variant.ids:,} ids, {variant.selectivity:.1%}")
            app = apps.enter_context(App(application(variant.interval, variant.selectivity)))
            feeds[variant] = Feed(app, "A", rings[variant.ids], evenly(1_000_000 // _PER_SECOND))
            feeds[variant].fill(variant.interval * _PER_SECOND)
            feeds[variant].push(1)
        report.step("measuring all in turns")
        before = {variant: feed.app.metrics.results for variant, feed in feeds.items()}
        pushes = {str(variant): partial(feed.push, plan.round_batches) for variant, feed in feeds.items()}
        taken = in_turns(pushes, plan.rounds)
        made = {variant: feed.app.metrics.results - before[variant] for variant, feed in feeds.items()}
        held = {variant: feed.app.metrics.memory_bytes for variant, feed in feeds.items()}
    table = [
        {
            "interval_seconds": variant.interval,
            "ids": variant.ids,
            "selectivity": variant.selectivity,
            "events_per_second": rate(taken[str(variant)]),
            "events_per_cpu_second": cpu_rate(taken[str(variant)]),
            "matches_per_event": made[variant] / sum(t.events for t in taken[str(variant)]),
            "state_mb": held[variant] / 1e6,
        }
        for variant in feeds
    ]
    report.table(tuple(table[0]), [tuple(row.values()) for row in table])

    def of(variant: _Variant) -> list[Timing]:
        return taken[str(variant)]

    short, long = of(_Variant(interval=10)), of(_Variant(interval=600))
    return {
        "flat": ratio(long, short),
        "flat_cpu": cpu_ratio(long, short),
        "events_per_second": rate(of(_Variant())),
        "events_per_second_600": rate(long),
        "events_per_event_second": _PER_SECOND,
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
        "rates": table,
    }


def _ring(ids: int, rows: int) -> Ring:
    random = np.random.default_rng(ids)
    batches = [
        [pa.array(random.integers(0, ids, rows).astype(np.int32)), pa.array(random.random(rows))] for _ in range(16)
    ]
    return Ring(("t", "id", "A1"), batches)
