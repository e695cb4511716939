"""N times the same aggregation, in the three settings of the thesis' multi-query scenario.

    one stream       N queries over one stream, in one thread: computed once, however many ask
    N streams        N queries over a stream each, in one thread: N times the work
    N threads        N apps with a query and a stream each, in as many threads

The figure is the output rate: result rows of all queries per second. In the thesis it stays level in the first two
settings and grows with the threads in the third, up to the cores there are; what is shared makes it grow in the first.
Joins with tables follow in the same settings, see `multi_joins`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock import App
from penstock_bench.benches.feed import BATCH_ROWS, Feed, evenly, number_ring
from penstock_bench.benches.multi_joins import measure_joins
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, rate, timed

SETTINGS = ("one stream", "N streams", "N threads")


@dataclass(frozen=True)
class _Plan:
    counts: tuple[int, ...]
    window_rows: int
    batch_rows: int
    rounds: int
    round_batches: int
    join_counts: tuple[int, ...]
    join_rows: int
    join_batch: int


_PLANS = {
    Size.TINY: _Plan((1, 2), 2000, 1024, 2, 1, (1, 2), 1000, 512),
    Size.QUICK: _Plan((1, 2, 4, 8, 16), 200_000, BATCH_ROWS, 3, 2, (1, 2, 4, 8), 1_000_000, 1 << 18),
    Size.FULL: _Plan((1, 2, 4, 8, 16), 10_000_000, BATCH_ROWS, 7, 4, (1, 2, 4, 8), 10_000_000, 1 << 20),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    rates: dict[str, dict[int, float]] = {setting: {} for setting in SETTINGS}
    for count in plan.counts:
        report.step(f"{count} queries")
        with ExitStack() as opened:
            variants = {
                "one stream": _one_app(opened, plan, count, streams=1),
                "N streams": _one_app(opened, plan, count, streams=count),
                "N threads": _threads(opened, plan, count),
            }
            taken = in_turns(variants, plan.rounds)
        for setting in SETTINGS:
            rates[setting][count] = rate(taken[setting])
    report.table(
        ("queries", *(f"{setting}, results/s" for setting in SETTINGS)),
        [(count, *(rates[setting][count] for setting in SETTINGS)) for count in plan.counts],
    )
    joins = measure_joins(plan.join_counts, plan.join_rows, plan.join_batch, plan.rounds, report)
    first, last = plan.counts[0], plan.counts[-1]
    return {
        **{f"{name.lower().replace(' ', '_')}_to_1": found[last] / found[first] for name, found in rates.items()},
        "queries": last,
        "window_rows": plan.window_rows,
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
        "results_per_second": {s: {str(n): value for n, value in by_count.items()} for s, by_count in rates.items()},
        "join_rows": plan.join_rows,
        "join_results_per_second": joins,
    }


def _application(rows: int, queries: int, streams: int) -> str:
    declared = [f"CREATE STREAM s{i} (t TIMESTAMP NOT NULL, v DOUBLE NOT NULL, EVENT TIME t);" for i in range(streams)]
    asked = [f"SELECT AVG(v) AS mean FROM s{i % streams} [ROWS {rows}];" for i in range(queries)]
    return "\n".join(declared + asked)


def _feeds(opened: ExitStack, plan: _Plan, queries: int, streams: int) -> list[Feed]:
    """One for each stream of a new app, filled."""
    app = opened.enter_context(App(_application(plan.window_rows, queries, streams)))
    ring = number_ring(8, plan.batch_rows)
    feeds = [Feed(app, f"s{i}", ring, evenly(1)) for i in range(streams)]
    for feed in feeds:
        feed.fill(plan.window_rows + plan.batch_rows)
    return feeds


def _one_app(opened: ExitStack, plan: _Plan, queries: int, streams: int) -> Callable[[], Timing]:
    feeds = _feeds(opened, plan, queries, streams)

    def push() -> Timing:
        taken = [feed.push(plan.round_batches) for feed in feeds]
        results = sum(timing.events for timing in taken) * (queries // streams)
        return Timing(results, sum(timing.wall for timing in taken), sum(timing.cpu for timing in taken))

    return push


def _threads(opened: ExitStack, plan: _Plan, count: int) -> Callable[[], Timing]:
    feeds = [_feeds(opened, plan, 1, 1)[0] for _ in range(count)]
    pool = opened.enter_context(ThreadPoolExecutor(count))
    results = count * plan.round_batches * plan.batch_rows

    def push_all() -> None:
        list(pool.map(lambda feed: feed.push(plan.round_batches), feeds))

    return partial(timed, results, push_all)
