"""The rows of a window as they are, beside LAST of the same rows: the last row of each key, looked at once a day."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.feed import Feed, Ring, evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import cpu_rate, cpu_ratio, in_turns

_STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
_WINDOW = "PARTITION BY k ROWS 1 SLIDE 1 DAY"
_QUERIES = {
    "rows": f"SELECT k, x FROM s [{_WINDOW}];",
    "last": f"SELECT k, LAST(x) AS x FROM s [{_WINDOW}] GROUP BY k;",
}
_DAY = 86400 * 1_000_000


@dataclass(frozen=True)
class _Plan:
    """A day has as many batches as a round, so each round ends a day."""

    keys: int
    batch_rows: int
    batches: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan(10, 256, 2, 1),
    Size.QUICK: _Plan(10_000, 16_384, 8, 5),
    Size.FULL: _Plan(100_000, 65_536, 32, 9),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    random = np.random.default_rng(1)
    rows = plan.batch_rows
    columns = [(random.integers(0, plan.keys, rows), random.random(rows)) for _ in range(8)]
    ring = Ring(("t", "k", "x"), [[pa.array(keys), pa.array(values)] for keys, values in columns])
    spacing = _DAY // (plan.batches * rows)
    with ExitStack() as apps:
        feeds = {
            name: Feed(apps.enter_context(App(_STREAM + text, memory="1GB")), "s", ring, evenly(spacing))
            for name, text in _QUERIES.items()
        }
        report.step(f"two days of {plan.keys:,} keys")
        for feed in feeds.values():
            feed.fill(2 * plan.batches * rows)
        report.step("measuring both in turns")
        taken = in_turns({name: partial(feed.push, plan.batches) for name, feed in feeds.items()}, plan.rounds)
    rates = {name: cpu_rate(rounds) for name, rounds in taken.items()}
    report.table(("query", "events/s"), list(rates.items()))
    return {
        "to_last": cpu_ratio(taken["rows"], taken["last"]),
        "events_per_second": rates["rows"],
        "last_events_per_second": rates["last"],
        "keys": plan.keys,
        "events_a_day": plan.batches * rows,
    }
