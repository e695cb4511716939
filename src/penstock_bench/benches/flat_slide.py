"""A window of 24 hours, 1,000 groups, and a slide that shrinks from 24 hours to one second.

Result rows are set aside: with a slide of one second a window makes 86,400 times as many as with one of 24 hours, and
each has its price wherever it comes from. That price is measured in the same run, on a window of RANGE/SLIDE = 60
with the same groups: what a silence of many slides takes beyond a push without one, per result row. The number of
result rows times this price is subtracted from each measured time. Anything that grows with RANGE/SLIDE itself is
not in the price of a row at 60, and so it stays in the measured times. The rates with the rows are given beside.

Rows that leave cost as much as rows that enter, so the stretch that leaves while the clock runs is as dense as the
one that enters. In the quick run the rest of the window is thinner, and filled faster.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock.instruments import CHUNK_ROWS
from penstock_bench.benches.feed import Feed, Ring, Times
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_rate, cpu_ratio, in_turns, rate, ratio, timed

_SECOND = 1_000_000
_DAY = 86_400
_PRICED_RATIO = 60


@dataclass(frozen=True)
class _Plan:
    """`thinning`: of the window's part that does not leave while the clock runs, one event in so many is there."""

    slides: tuple[int, ...]
    per_second: int
    thinning: int
    groups: int
    batch_rows: int
    rounds: int
    round_batches: int

    @property
    def dense_rows(self) -> int:
        """Rows of the stretch that enters while the clock runs; some more leave before and after."""
        return (self.rounds * self.round_batches + 2) * self.batch_rows

    @property
    def thin_rows(self) -> int:
        return max(0, _DAY * self.per_second - self.dense_rows) // self.thinning


_BATCH_ROWS = 60_000
"""24 of these are 1,440 s, the longest slide at whose boundaries rows leave: each round has one of them."""

_PLANS = {
    Size.TINY: _Plan((86_400, 1440, 1), 1, 10, 10, 1440, 2, 1),
    Size.QUICK: _Plan((86_400, 1440, 60, 1), 1000, 40, 1000, _BATCH_ROWS, 5, 24),
    Size.FULL: _Plan((86_400, 1440, 60, 10, 1), 1000, 1, 1000, _BATCH_ROWS, 9, 24),
}


def application(range_seconds: int, slide_seconds: int, full: str = "") -> str:
    return f"""
        CREATE STREAM s (t TIMESTAMP NOT NULL, k INT NOT NULL, v DOUBLE NOT NULL, EVENT TIME t);
        SELECT k, SUM(v) AS total, COUNT(*) AS n
        FROM s [RANGE {range_seconds} SECONDS SLIDE {slide_seconds} SECONDS {full}] GROUP BY k;
    """


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ring = _ring(plan)
    feeds: dict[int, _CountingFeed] = {}
    with ExitStack() as apps:
        price = apps.enter_context(_RowPrice(plan, ring))
        for slide in plan.slides:
            report.step(f"filling 24 hours, slide {slide:,} s")
            app = apps.enter_context(App(application(_DAY, slide, "WHEN FULL")))
            feeds[slide] = _CountingFeed(Feed(app, "s", ring, _times(plan)))
            feeds[slide].fill(plan.dense_rows + plan.thin_rows)
        report.step("measuring all in turns")
        variants = {str(slide): partial(feed.push, plan.round_batches) for slide, feed in feeds.items()}
        taken = in_turns({"price": price.measure, **variants}, plan.rounds)
    prices = taken.pop("price")
    net = {slide: _without_rows(taken[str(slide)], feed.results, prices) for slide, feed in feeds.items()}
    table = [
        {
            "slide_seconds": slide,
            "ratio": _DAY // slide,
            "events_per_second": rate(net[slide]),
            "events_per_cpu_second": cpu_rate(net[slide]),
            "with_result_rows": rate(taken[str(slide)]),
            "result_rows_per_event": sum(feed.results) / sum(t.events for t in net[slide]),
        }
        for slide, feed in feeds.items()
    ]
    report.table(tuple(table[0]), [tuple(row.values()) for row in table])
    finest, at_60, coarsest = net[1], net[_DAY // _PRICED_RATIO], net[_DAY]
    return {
        "at_86400_to_60": ratio(finest, at_60),
        "at_86400_to_1": ratio(finest, coarsest),
        "at_86400_to_60_cpu": cpu_ratio(finest, at_60),
        "at_86400_to_1_cpu": cpu_ratio(finest, coarsest),
        "row_ns": 1e9 / rate(prices),
        "groups": plan.groups,
        "events_per_event_second": plan.per_second,
        "window_events": plan.dense_rows + plan.thin_rows,
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
        "rates": table,
    }


def _without_rows(taken: list[Timing], rows: list[int], prices: list[Timing]) -> list[Timing]:
    """The times of the rounds less what their result rows took, by the price of the same round."""
    return [
        Timing(
            t.events,
            max(t.wall - made * price.wall / price.events, 1e-9),
            max(t.cpu - made * price.cpu / price.events, 1e-9),
        )
        for t, made, price in zip(taken, rows, prices, strict=True)
    ]


def _ring(plan: _Plan) -> Ring:
    random = np.random.default_rng(1)
    batches = [
        [
            pa.array(random.integers(0, plan.groups, plan.batch_rows).astype(np.int32)),
            pa.array(random.random(plan.batch_rows)),
        ]
        for _ in range(16)
    ]
    return Ring(("t", "k", "v"), batches)


def _times(plan: _Plan) -> Times:
    """A dense stretch, the thin rest of the first 24 hours, and dense from then on."""
    spacing = _SECOND // plan.per_second
    dense, thin = plan.dense_rows, plan.thin_rows
    rest = (_DAY * _SECOND - dense * spacing) // max(thin, 1)

    def times(first: int, count: int) -> NDArray[np.int64]:
        rows = np.arange(first, first + count)
        in_thin = dense * spacing + (rows - dense) * rest
        after = _DAY * _SECOND + (rows - dense - thin) * spacing
        return np.where(rows < dense, rows * spacing, np.where(rows < dense + thin, in_thin, after))

    return times


class _CountingFeed:
    """A feed that notes how many result rows each measured push made."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.results: list[int] = []

    def fill(self, rows: int) -> None:
        self._feed.fill(rows)

    def push(self, batches: int) -> Timing:
        before = self._feed.app.metrics.results
        taken = self._feed.push(batches)
        self.results.append(self._feed.app.metrics.results - before)
        return taken


class _RowPrice:
    """What a result row takes: rows of all groups, and then a silence of many slides in which none of them leaves."""

    _SILENCE = CHUNK_ROWS // 1000
    """Slides: as many as the operators meet at once when a slide of one second brings 1,000 events, so that result rows
    are made in batches of the same size."""

    def __init__(self, plan: _Plan, ring: Ring) -> None:
        self._app = App(application(_PRICED_RATIO, 1))
        self._app.subscribe("q1", lambda results: None)
        self._ring = ring
        self._spacing = _SECOND // ring.batch_rows
        self._now = 0
        self._repeats = min(24, plan.round_batches)

    def __enter__(self) -> _RowPrice:
        return self

    def __exit__(self, *_: object) -> None:
        self._app.close()

    def measure(self) -> Timing:
        """The time of result rows alone, with their number as the events."""
        wall = cpu = 0.0
        rows = 0
        for _ in range(self._repeats):
            self._fill_window()
            made = self._app.metrics.results
            silent = self._push_one(self._SILENCE)
            rows += self._app.metrics.results - made
            at_once = self._push_one(0)
            wall += silent.wall - at_once.wall
            cpu += silent.cpu - at_once.cpu
        return Timing(rows, max(wall, 1e-9), max(cpu, 1e-9))

    def _fill_window(self) -> None:
        """Rows in one second, after all others have left, and the boundary after them: none leaves in a silence."""
        self._now += 2 * _PRICED_RATIO * _SECOND
        times = self._now + np.arange(self._ring.batch_rows) * self._spacing
        self._app.push("s", self._ring.batch(0, times))
        self._now += _SECOND
        self._push_one(0)

    def _push_one(self, silence: int) -> Timing:
        self._now += silence * _SECOND
        batch = self._ring.batch(0, np.array([self._now]))
        return timed(1, lambda: self._app.push("s", batch))
