"""One to a thousand overlapping windows over one stream: the same average, one common slide, extents of 20 to 1,019 s.

The planner makes such windows of panes: an event is added once however many windows there are, and when a slide ends
each window takes in one pane and gives one back. A window alone keeps its rows, as the planner has it.

Result rows are set aside: a thousand queries make a thousand times as many of them. Their price is measured for each
number of queries, on windows from which nothing leaves: what a silence of as many slides as a push has takes beyond
a silence of one slide, per result row. It is what looking at a window, making its row and handing it to the query
takes. The number of result rows times this price is subtracted from the measured times; the cost with the rows is
given beside. All times are the processor's.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.feed import Feed, Ring, evenly, number_ring
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, timed

_SECOND = 1_000_000
_LEAST, _MOST = 20, 1019
_PRICED = 7200
"""Seconds of the windows that rows are priced on."""

_MEMORY = "256MB"


@dataclass(frozen=True)
class _Plan:
    counts: tuple[int, ...]
    per_slide: int
    slides_in_push: int
    rounds: int
    round_pushes: int
    priced_pushes: int

    @property
    def push_rows(self) -> int:
        return self.per_slide * self.slides_in_push


_PLANS = {
    Size.TINY: _Plan((1, 20), 4, 10, 2, 2, 2),
    Size.QUICK: _Plan((1, 10, 100, 1000), 10_000, 10, 5, 5, 10),
    Size.FULL: _Plan((1, 10, 100, 1000), 10_000, 10, 9, 20, 20),
}


def application(extents: list[int]) -> str:
    queries = [
        f"CREATE QUERY w{i} AS SELECT AVG(v) AS mean FROM s [RANGE {extent} SECONDS SLIDE 1 SECOND];"
        for i, extent in enumerate(extents)
    ]
    return "\n".join(["CREATE STREAM s (t TIMESTAMP NOT NULL, v DOUBLE NOT NULL, EVENT TIME t);", *queries])


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ring = number_ring(16, plan.push_rows)
    feeds: dict[int, Feed] = {}
    prices: dict[int, _RowPrice] = {}
    with ExitStack() as apps:
        for count in plan.counts:
            report.step(f"filling {count:,} windows of up to {_MOST:,} seconds")
            extents = np.linspace(_MOST, _LEAST, count).astype(int).tolist()
            app = apps.enter_context(App(application(extents), memory=_MEMORY))
            feeds[count] = Feed(app, "s", ring, evenly(_SECOND // plan.per_slide))
            feeds[count].fill((_MOST + 1) * plan.per_slide)
            prices[count] = apps.enter_context(_RowPrice(count, plan, ring))
        report.step("measuring all in turns")
        pushed = in_turns({str(c): partial(feed.push, plan.round_pushes) for c, feed in feeds.items()}, plan.rounds)
        priced = in_turns({str(c): price.measure for c, price in prices.items()}, plan.rounds)
        panes = {count: "two levels (2LA)" in _used(feeds[count].app) for count in plan.counts}
    rows_per_event = {count: count / plan.per_slide for count in plan.counts}
    gross = {count: _per_event(pushed[str(count)]) for count in plan.counts}
    row = {count: _per_event(priced[str(count)]) for count in plan.counts}
    net = {count: max(gross[count] - rows_per_event[count] * row[count], 1e-12) for count in plan.counts}
    table = [
        {
            "queries": count,
            "panes": panes[count],
            "ns_per_event": 1e9 * net[count],
            "with_result_rows": 1e9 * gross[count],
            "row_ns": 1e9 * row[count],
            "events_per_cpu_second": 1 / gross[count],
        }
        for count in plan.counts
    ]
    report.table(tuple(table[0]), [tuple(entry.values()) for entry in table])
    one, most = plan.counts[0], plan.counts[-1]
    return {
        f"cost_{most}_to_{one}": net[most] / net[one],
        f"cost_{most}_to_{one}_with_result_rows": gross[most] / gross[one],
        "events_per_slide": plan.per_slide,
        "slides_per_push": plan.slides_in_push,
        "extents_seconds": [_LEAST, _MOST],
        "rounds": plan.rounds,
        "costs": table,
    }


def _per_event(rounds: list[Timing]) -> float:
    """Seconds of the processor for an event, or for a row."""
    return median(t.cpu / t.events for t in rounds)


def _used(app: App) -> str:
    """The lines of EXPLAIN that name what is used."""
    return "\n".join(line for line in app.explain().splitlines() if line.endswith("used"))


class _RowPrice:
    """What a result row takes, in windows so long that nothing leaves them."""

    def __init__(self, count: int, plan: _Plan, ring: Ring) -> None:
        self._app = App(application([_PRICED + i for i in range(count)]), memory=_MEMORY)
        for query in self._app.queries:
            self._app.subscribe(query, lambda results: None)
        self._slides = plan.slides_in_push
        self._pushes = plan.priced_pushes
        self._ring = ring
        self._now = 0
        self._push_after(0)
        self._push_after(1)

    def __enter__(self) -> _RowPrice:
        return self

    def __exit__(self, *_: object) -> None:
        self._app.close()

    def measure(self) -> Timing:
        """The time of result rows alone, with their number as the events: silences of some slides and one more, less
        silences of one slide."""
        wall = cpu = 0.0
        made = 0
        for _ in range(self._pushes):
            before = self._app.metrics.results
            short = self._push_after(1)
            between = self._app.metrics.results
            long = self._push_after(1 + self._slides)
            made += self._app.metrics.results - between - (between - before)
            wall += long.wall - short.wall
            cpu += long.cpu - short.cpu
        return Timing(made, max(wall, 1e-9), max(cpu, 1e-9))

    def _push_after(self, slides: int) -> Timing:
        """One event, so many slides after the last."""
        self._now += slides * _SECOND
        batch: pa.RecordBatch = self._ring.batch(0, np.array([self._now]))
        return timed(1, lambda: self._app.push("s", batch))
