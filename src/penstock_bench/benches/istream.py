"""ISTREAM and DSTREAM with every event, beside the default output of the same query.

Two windows: RANGE over the whole stream and ROWS of each key. What changes with an event is one group or a few, so
neither the rate nor its ratio to the default's should depend on how many rows a window has.
"""

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
from penstock_bench.benches.timing import Timing, cpu_rate, in_turns

_STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
_KEYS = 100
_BATCH_ROWS = 200
"""A multiple of the keys, so that each batch has all of them as often."""
_WINDOWS = {"RANGE": "RANGE {} MICROSECONDS", "PARTITION ROWS": "PARTITION BY k ROWS {}"}
_OUTPUTS = {"": "default", "ISTREAM ": "istream", "DSTREAM ": "dstream"}


@dataclass(frozen=True)
class _Plan:
    """Windows in rows; `seconds` are those of one round of one query. A window that is not full after `fill_seconds` is
    measured as it is: `filled` says how full."""

    windows: tuple[int, ...]
    rounds: int
    seconds: float
    fill_seconds: float


_PLANS = {
    Size.TINY: _Plan((100, 1000), 1, 0.01, 0.05),
    Size.QUICK: _Plan((100, 1000, 10_000, 100_000), 3, 0.2, 1),
    Size.FULL: _Plan((100, 1000, 10_000, 100_000), 9, 1, 120),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    ring = _ring()
    points = []
    for kind in _WINDOWS:
        for rows in plan.windows:
            report.step(f"{kind}, {rows:,} rows")
            points += _point(kind, rows, ring, plan)
    report.table(
        ("window", "rows", "output", "events/s", "to default"),
        [(p["window"], p["rows"], p["output"], p["events_per_second"], p["to_default"]) for p in points],
    )
    changes = [point for point in points if point["output"] != "default"]
    return {
        "to_default": min(point["to_default"] for point in changes),
        "slowest_to_fastest": min(
            _flatness([p["events_per_second"] for p in changes if (p["window"], p["output"]) == case])
            for case in {(p["window"], p["output"]) for p in changes}
        ),
        "points": points,
    }


def _point(kind: str, rows: int, ring: Ring, plan: _Plan) -> list[dict[str, Any]]:
    """All outputs over one window, in turns."""
    window = _WINDOWS[kind].format(rows if kind == "RANGE" else rows // _KEYS)
    with ExitStack() as apps:
        feeds = {}
        for emit, name in _OUTPUTS.items():
            text = f"{_STREAM} SELECT {emit}k, SUM(x) AS total FROM s [{window}] GROUP BY k;"
            feeds[name] = Feed(apps.enter_context(App(text, memory="1GB")), "s", ring, evenly(1))
            _until(feeds[name], plan.fill_seconds, 2 * rows)
        turns = {name: partial(_until, feed, plan.seconds) for name, feed in feeds.items()}
        taken = in_turns(turns, plan.rounds)
        filled = {name: min(1.0, feed.rows / rows) for name, feed in feeds.items()}
    return [
        {
            "window": kind,
            "rows": rows,
            "output": name,
            "events_per_second": cpu_rate(rounds),
            "to_default": cpu_rate(rounds) / cpu_rate(taken["default"]),
            "filled": filled[name],
        }
        for name, rounds in taken.items()
    ]


def _until(feed: Feed, seconds: float, rows: int | None = None) -> Timing:
    """Pushes for so long, or until so many rows were pushed."""
    done = Timing(0, 0.0, 0.0)
    while done.cpu < seconds and (rows is None or done.events < rows):
        more = feed.push(1)
        done = Timing(done.events + more.events, done.wall + more.wall, done.cpu + more.cpu)
    return done


def _flatness(rates: list[float]) -> float:
    return min(rates) / max(rates)


def _ring() -> Ring:
    random = np.random.default_rng(1)
    keys = pa.array(np.arange(_BATCH_ROWS) % _KEYS)
    return Ring(("t", "k", "x"), [[keys, pa.array(random.random(_BATCH_ROWS))] for _ in range(8)])
