"""Section 5.4 of the SlideM paper: copies of Query 3 over windows of different size, apart and sharing one store.

N windows are spread evenly over 3,600 to 7,200 seconds of a stream of 5,000 events per second. Apart, each is an app of
its own with one N-th of the memory for its pool (SlideM); together they are one app with all of it (Shared SlideM).
What groups and aggregates take is added to the budgets, so that the pools are what is compared.

Counted are the reads and writes of blocks while the largest window is passed one and a half times, after as long a
warm-up, and the space in memory and on disk at the end. Beside them stand formula 4.2 for the hit rate, with the
blocks that fit into memory; formula 4.1 for the requests, with the hit rate measured; and what Belady's rule, which
knows the future, needs for the same references in as many frames. The quick run has a slower stream in smaller
blocks and as much less memory: as many windows, of fewer and smaller blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock import App
from penstock.instruments import CHUNK_ROWS, LEAST_TURN, hit_rate, resident_blocks, segments, shared_io
from penstock_bench.benches import stock_feed
from penstock_bench.benches.belady import fewest_requests, references
from penstock_bench.benches.feed import Feed, Ring, evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size

_SMALLEST, _LARGEST = 3600, 7200
_STATE, _QUERY_STATE = 24_000, 8_000
"""Bytes of groups and aggregates of an app, and of each query in it."""

_HEADER = 32
"""Bytes of a block on disk that are not rows."""


@dataclass(frozen=True)
class _Plan:
    queries: tuple[int, ...]
    per_second: int
    memory: int
    block_size: int
    warm_up: int
    measured: int
    """Seconds of event time."""

    @property
    def block_rows(self) -> int:
        return (self.block_size - _HEADER) // stock_feed.BYTES_READ

    @property
    def batch_rows(self) -> int:
        return 8 * max(LEAST_TURN, self.block_rows)

    def turn_rows(self, windows: int, frames: int) -> int:
        """About how many rows each window takes in turn (see `SharedWindow`)."""
        return min(self.batch_rows, CHUNK_ROWS, max(LEAST_TURN, (frames - 1) // windows // 2 * self.block_rows))


_PLANS = {
    Size.TINY: _Plan((2, 4), 10, 1_000_000, 2048, 7200, 3600),
    Size.QUICK: _Plan((2, 4, 8, 16, 32), 50, 5_120_000, 8192, 7200, 7200),
    Size.FULL: _Plan((2, 4, 8, 16, 32), 5000, 512_000_000, 65536, 10_800, 10_800),
}


_SHOWN = (
    "queries",
    "unshared_requests",
    "shared_requests",
    "belady_requests",
    "requests_ratio",
    "space_ratio",
    "hit_rate",
)


class _Counted(NamedTuple):
    """Blocks read and written and blocks found in memory while measured; bytes held at the end, and bytes that others
    leave to the pools."""

    reads: int
    writes: int
    hits: int
    space: int
    pool: int

    @property
    def requests(self) -> int:
        return self.reads + self.writes


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ring = stock_feed.ring(8, plan.batch_rows)
    rows = []
    for count in plan.queries:
        windows = [round(_SMALLEST + (_LARGEST - _SMALLEST) * i / (count - 1)) for i in range(count)]
        report.step(f"{count} windows, one app each")
        apart = _Counted(*map(sum, zip(*[_run(plan, ring, [window], count) for window in windows], strict=True)))
        report.step(f"{count} windows in one store")
        rows.append({"queries": count, **_compared(plan, windows, apart, _run(plan, ring, windows, 1))})
    report.table(_SHOWN, [tuple(row[name] for name in _SHOWN) for row in rows])
    most = rows[-1]
    return {
        f"requests_ratio_{most['queries']}": most["requests_ratio"],
        f"space_ratio_{most['queries']}": most["space_ratio"],
        "hit_rate_error": max(abs(row["hit_rate"] - row["formula_4_2"]) for row in rows),
        "requests_to_formula_4_1": max(row["shared_requests"] / row["formula_4_1"] for row in rows),
        f"requests_to_belady_{most['queries']}": most["shared_requests"] / most["belady_requests"],
        "requests_to_belady": max(row["shared_requests"] / row["belady_requests"] for row in rows),
        "events_per_event_second": plan.per_second,
        "pool_memory": plan.memory,
        "block_size": plan.block_size,
        "warm_up_seconds": plan.warm_up,
        "measured_seconds": plan.measured,
        "by_queries": rows,
    }


def _run(plan: _Plan, ring: Ring, windows: Sequence[int], parts: int) -> _Counted:
    """One app with these windows and one of so many parts of the memory."""
    budget = plan.memory // parts + _STATE + _QUERY_STATE * len(windows)
    text = stock_feed.application(*[f"RANGE {window} SECONDS" for window in windows])
    with App(text, memory=budget, block_size=plan.block_size) as app:
        feed = Feed(app, stock_feed.STREAM, ring, evenly(1_000_000 // plan.per_second))
        feed.fill(plan.warm_up * plan.per_second)
        before = app.metrics
        feed.fill(plan.measured * plan.per_second)
        after = app.metrics
        return _Counted(
            after.blocks_read - before.blocks_read,
            after.blocks_written - before.blocks_written,
            after.pool_hits - before.pool_hits,
            after.stored_bytes,
            after.memory_budget - after.memory_bytes + after.pool_bytes,
        )


def _compared(plan: _Plan, windows: Sequence[int], apart: _Counted, shared: _Counted) -> dict[str, Any]:
    batch_rows = plan.batch_rows
    first = -(-plan.warm_up * plan.per_second // batch_rows) * batch_rows
    last = first + -(-plan.measured * plan.per_second // batch_rows) * batch_rows
    frames = shared.pool // (plan.block_rows * stock_feed.BYTES_READ)
    in_rows = [window * plan.per_second for window in windows]
    future = last + 2 * _LARGEST * plan.per_second
    events = list(references(in_rows, plan.block_rows, plan.turn_rows(len(windows), frames), future))
    best = fewest_requests(events, frames, first, last)
    blocks = [rows / plan.block_rows for rows in segments(in_rows)]
    measured = shared.hits / (shared.hits + shared.reads)
    return {
        "unshared_requests": apart.requests,
        "shared_requests": shared.requests,
        "requests_ratio": apart.requests / max(1, shared.requests),
        "unshared_bytes": apart.space,
        "shared_bytes": shared.space,
        "space_ratio": apart.space / shared.space,
        "hit_rate": measured,
        "formula_4_2": hit_rate(resident_blocks(blocks, frames), blocks),
        "formula_4_1": (last - first) / plan.block_rows * shared_io(len(windows), measured),
        "belady_reads": best.reads,
        "belady_requests": best.reads + best.writes,
        "shared_reads": shared.reads,
    }
