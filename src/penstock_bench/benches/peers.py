"""Per-event SUM, MAX and MEDIAN over the last 100,000 events, on the same data in the same run as polars and DuckDB.

Events are one microsecond apart, so a window of 100,000 µs is the last 100,000 rows. Each system gets the column in
its own format before the clock runs, computes all results from the first event on and hands them over as columns:
- penstock: `[RANGE 100000 MICROSECONDS]`, pushed in batches into a new app, whose making is not counted;
- polars: `rolling_sum_by` and `rolling_max_by` on the time column, one thread;
- DuckDB: a window function over `ROWS 99999 PRECEDING` (its faster frame) on a table in memory, one thread, fetched as
  Arrow.
Ours are the exact sums of rule 5 of the contract; theirs are running float sums.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock.errors import InputError
from penstock_bench.benches.feed import BATCH_ROWS, Feed, Ring, evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Rounds, Timing, cpu_ratio, in_turns, rate, ratio, timed

os.environ.setdefault("POLARS_MAX_THREADS", "1")
try:
    import duckdb
    import polars
except ImportError as missing:
    raise InputError(f"this bench compares with {missing.name}; install it with: pip install polars duckdb") from None


@dataclass(frozen=True)
class _Plan:
    window: int
    events: int
    median_events: int
    batch_rows: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan(500, 4096, 2048, 1024, 1),
    Size.QUICK: _Plan(100_000, 12 * BATCH_ROWS, 3 * BATCH_ROWS, BATCH_ROWS, 3),
    Size.FULL: _Plan(100_000, 64 * BATCH_ROWS, 16 * BATCH_ROWS, BATCH_ROWS, 7),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    values = np.random.default_rng(1).random(plan.events) * 1000
    taken: dict[str, Rounds] = {}
    for function in ("SUM", "MAX", "MEDIAN"):
        report.step(f"{function} over {plan.window:,} rows, in turns")
        rows = values[: plan.median_events] if function == "MEDIAN" else values
        _ours(function, plan, rows[: plan.batch_rows])()  # loads the kernels
        variants = {"penstock": _ours(function, plan, rows), "duckdb": _duckdb(function, plan, rows)}
        if function != "MEDIAN":
            variants["polars"] = _polars(function, plan, rows)
        taken[function] = in_turns(variants, plan.rounds)
    table = [
        {"function": function, **{system: rate(rounds) for system, rounds in systems.items()}}
        for function, systems in taken.items()
    ]
    report.table(
        ("events/s", "penstock", "duckdb", "polars"),
        [[row["function"], row["penstock"], row["duckdb"], row.get("polars", "-")] for row in table],
    )
    compared: dict[str, float] = {}
    for function, systems in taken.items():
        for peer in systems.keys() - {"penstock"}:
            name = f"{function.lower()}_to_{peer}"
            compared[name] = ratio(systems["penstock"], systems[peer])
            compared[f"{name}_cpu"] = cpu_ratio(systems["penstock"], systems[peer])
    return {
        **dict(sorted(compared.items())),
        "window_rows": plan.window,
        "events": plan.events,
        "median_events": plan.median_events,
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
        "rates": table,
    }


def _ours(function: str, plan: _Plan, values: Any) -> Callable[[], Timing]:
    text = f"""
        CREATE STREAM s (t TIMESTAMP NOT NULL, v DOUBLE NOT NULL, EVENT TIME t);
        SELECT {function}(v) AS answer FROM s [RANGE {plan.window} MICROSECONDS];
    """
    ring = Ring(("t", "v"), [[pa.array(part)] for part in np.split(values, len(values) // plan.batch_rows)])

    def once() -> Timing:
        with App(text) as app:
            return Feed(app, "s", ring, evenly(1)).push(len(values) // plan.batch_rows)

    return once


def _polars(function: str, plan: _Plan, values: Any) -> Callable[[], Timing]:
    frame = polars.DataFrame({"t": np.arange(len(values)), "v": values}).with_columns(
        polars.col("t").cast(polars.Datetime("us"))
    )
    column = polars.col("v")
    rolling = {"SUM": column.rolling_sum_by, "MAX": column.rolling_max_by}[function]
    return lambda: timed(len(values), lambda: frame.select(rolling("t", window_size=f"{plan.window}us")))


def _duckdb(function: str, plan: _Plan, values: Any) -> Callable[[], Timing]:
    database = duckdb.connect(config={"threads": 1})
    database.register("source", pa.table({"t": np.arange(len(values)), "v": values}))
    database.execute("CREATE TABLE s AS SELECT * FROM source")
    query = f"SELECT {function}(v) OVER (ORDER BY t ROWS {plan.window - 1} PRECEDING) AS answer FROM s"
    return lambda: timed(len(values), lambda: database.sql(query).to_arrow_table())
