"""Events looked up in a table of a thousand to millions of rows: hash join and batch grace hash join (thesis, J2).

The table has an INT key and four INT columns; a batch of keys, drawn evenly, is looked up and the columns are read.
`hash` looks keys up as they come, `grace` partition by partition; what the engine would choose is named beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil

from penstock.arrays import Int64s
from penstock.instruments import Budget, ColumnSpec, KeyedStore
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import in_turns, rate, ratio, timed

COLUMNS = 4
_LOADED = 1 << 20
_INT = np.dtype(np.int32)


@dataclass(frozen=True)
class _Plan:
    rows: tuple[int, ...]
    batch: int
    batches: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan((1000, 20_000), 4096, 2, 2),
    Size.QUICK: _Plan((1000, 100_000, 1_000_000, 10_000_000), 1 << 20, 2, 5),
    Size.FULL: _Plan((1000, 10_000, 100_000, 1_000_000, 10_000_000, 40_000_000, 80_000_000), 1 << 20, 4, 9),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    found: dict[int, dict[str, float]] = {}
    for rows in plan.rows:
        if rows * 40 > psutil.virtual_memory().available:
            report.step(f"{rows:,} rows do not fit into memory")
            continue
        report.step(f"{rows:,} rows")
        found[rows] = _measure(plan, rows)
    report.table(
        ("rows", "hash, events/s", "grace, events/s", "grace to hash", "chosen", "bytes to raw"),
        [
            (n, f["hash"], f["grace"], f["grace_to_hash"], "grace" if f["by_grace"] else "hash", f["bytes_to_raw"])
            for n, f in found.items()
        ],
    )
    judged = 10_000_000 if 10_000_000 in found else max(found)
    at = found[judged]
    return {
        "grace_to_hash": at["grace_to_hash"],
        "bytes_to_raw": at["bytes_to_raw"],
        "events_per_second": at["grace" if at["by_grace"] else "hash"],
        "rows": judged,
        "columns": COLUMNS + 1,
        "batch_rows": plan.batch,
        "rounds": plan.rounds,
        "by_rows": {str(rows): figures for rows, figures in found.items()},
    }


def _measure(plan: _Plan, rows: int) -> dict[str, float]:
    store = filled(rows)
    random = np.random.default_rng(rows)
    batches = [random.integers(0, rows, (plan.batch, 1)) for _ in range(plan.batches)]

    def look_up(grace: bool) -> None:
        for keys in batches:
            found = store.find(keys, None, grace)
            for place in range(COLUMNS):
                store.column(place, found)

    variants: dict[str, Callable[[], Any]] = {
        name: partial(timed, plan.batch * plan.batches, partial(look_up, name == "grace")) for name in ("hash", "grace")
    }
    in_turns(variants, 1)
    taken = in_turns(variants, plan.rounds)
    figures = {
        "hash": rate(taken["hash"]),
        "grace": rate(taken["grace"]),
        "grace_to_hash": ratio(taken["grace"], taken["hash"]),
        "by_grace": float(store.by_grace(plan.batch)),
        "bytes_to_raw": store.nbytes / store.raw_nbytes,
        "partitions": float(store.partitions),
    }
    store.close()
    return figures


def filled(rows: int) -> KeyedStore:
    """Keys in an order of their own."""
    columns = [ColumnSpec(f"c{i}", _INT, True) for i in range(COLUMNS)]
    store = KeyedStore(1, True, columns, Budget(1 << 40).account("table"))
    store.reserve(rows)
    step = 7_368_787 % rows or 1
    while np.gcd(step, rows) != 1:
        step += 1
    for begin in range(0, rows, _LOADED):
        keys: Int64s = np.arange(begin, min(begin + _LOADED, rows), dtype=np.int64) * step % rows
        places, _ = store.put(keys[:, None])
        for place in range(COLUMNS):
            store.write(place, places, (keys + place).astype(np.int32), None)
    return store
