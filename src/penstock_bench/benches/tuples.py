"""What an event costs, in memory and in time, by the way it is represented.

The thesis's aggregation query, AVG(A1) over the last N events of S(ID, A1, A2, TS), and its join of S with a table
T(ID, T1, T2, T3, T4) by ID, each with events and rows as dicts, lists, objects and columns: of all attributes, of those
that the query reads, and written through a small buffer that stays in the cache (Table 5.3). The first three are
Python, as a Python engine would hold events on its heap; the columns are compiled loops. Last comes our own store,
behind an app.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches import column_kernels, heap_tuples
from penstock_bench.benches.feed import BATCH_ROWS, Feed, Ring, evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, rate, ratio, timed

_RAW = 8 + 8
"""Of an event the aggregation reads A1 and, since every result says where its window begins, the event time."""


_TENS = tuple(10**power for power in range(9))


@dataclass(frozen=True)
class _Plan:
    """Sizes of windows and tables go up; the single figures are those of the largest."""

    heap_windows: tuple[int, ...]
    heap_events: int
    column_windows: tuple[int, ...]
    column_events: int
    tables: tuple[int, ...]
    lookups: int
    batch_rows: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan((100, 1000), 2000, (1000, 4096), 4096, (100, 500), 1000, 1024, 2),
    Size.QUICK: _Plan(_TENS[3:6], 200_000, _TENS[3:8], 2_000_000, _TENS[2:6], 200_000, BATCH_ROWS, 5),
    Size.FULL: _Plan(_TENS[3:7], 2_000_000, _TENS[3:9], 20_000_000, _TENS[2:7], 2_000_000, BATCH_ROWS, 9),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    report.step("the aggregation: dicts, lists, objects")
    windows = [_heap_window(form, window, plan) for window in plan.heap_windows for form in heap_tuples.FORMS]
    report.step("the aggregation: columns, in turns")
    for window in plan.column_windows:
        columns, buffered_to_plain = _columns(window, plan)
        windows += columns
    report.step("the aggregation: our store")
    windows += [_store(window, plan) for window in plan.column_windows]
    report.step("the join")
    tables = [_heap_table(form, rows, plan) for rows in plan.tables for form in heap_tuples.FORMS]
    tables += [row for rows in plan.tables for row in _column_tables(rows, plan)]
    aggregation, join = _largest(windows), _largest(tables)
    headings = ("form", "bytes", "events_per_second")
    report.table(
        ("AVG over a window", "bytes per event", "events/s"), [[row[h] for h in headings] for row in aggregation]
    )
    report.table(("join with a table", "bytes per row", "events/s"), [[row[h] for h in headings] for row in join])
    return {
        "bytes_to_raw": aggregation[-1]["bytes"] / _RAW,
        "buffered_to_plain": buffered_to_plain,
        "raw_bytes": _RAW,
        "heap_window": plan.heap_windows[-1],
        "column_window": plan.column_windows[-1],
        "table_rows": plan.tables[-1],
        "aggregation": aggregation,
        "join": join,
        "series": {"aggregation": windows, "join": tables},
    }


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each form the row of its largest size, which is its last."""
    last = {row["form"]: row for row in rows}
    return [{name: value for name, value in row.items() if name != "size"} for row in last.values()]


def _allocated(make: Callable[[], object]) -> tuple[object, int]:
    """What `make` returns, and the bytes it holds."""
    tracemalloc.start()
    try:
        made = make()
        return made, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _row(form: str, size: int, each: float, per_second: float) -> dict[str, Any]:
    """`size` events of the window or rows of the table, of so many bytes each."""
    return {"form": form, "size": size, "bytes": each, "events_per_second": per_second}


def _heap_window(form: heap_tuples.Form, size: int, plan: _Plan) -> dict[str, Any]:
    _, taken_up = _allocated(lambda: [form.event(i) for i in range(size)])
    events = [form.event(i) for i in range(plan.heap_events)]
    taken = timed(plan.heap_events, lambda: form.average(events, size))
    return _row(form.name, size, taken_up / size, taken.rate)


def _heap_table(form: heap_tuples.Form, size: int, plan: _Plan) -> dict[str, Any]:
    table, taken_up = _allocated(lambda: {i: form.table_row(i) for i in range(size)})
    ids = np.random.default_rng(1).integers(0, size, plan.lookups).tolist()
    events = [form.event(i) for i in ids]
    taken = timed(plan.lookups, lambda: form.join(events, table))
    return _row(form.name, size, taken_up / size, taken.rate)


def _columns(window: int, plan: _Plan) -> tuple[list[dict[str, Any]], float]:
    events = plan.column_events
    events_in = np.zeros(events, column_kernels.EVENT)
    events_in["a1"] = np.random.default_rng(1).random(events)
    answers, state = np.empty(events), np.zeros(3)
    # Ones, not zeros, for the pages must be there before they are measured.
    kept = (np.ones(window, np.int32), np.ones(window), np.ones(window), np.ones(window, np.int64))

    def plain() -> Timing:
        return timed(events, lambda: column_kernels.average(events_in, *kept, state, answers))

    def projected() -> Timing:
        return timed(events, lambda: column_kernels.average_projected(events_in, kept[1], state, answers))

    def buffered() -> Timing:
        return timed(events, lambda: column_kernels.average_buffered(events_in, *kept, state, answers))

    variants = {"columns": plain, "projected columns": projected, "buffered columns": buffered}
    in_turns(variants, 1)  # compiles
    taken = in_turns(variants, plan.rounds)
    all_columns = float(sum(column.itemsize for column in kept))
    sizes = {"columns": all_columns, "projected columns": 8.0, "buffered columns": all_columns}
    rows = [_row(form, window, sizes[form], rate(taken[form])) for form in variants]
    return rows, ratio(taken["buffered columns"], taken["columns"])


def _store(window: int, plan: _Plan) -> dict[str, Any]:
    random = np.random.default_rng(1)
    rows = plan.batch_rows
    batches = [
        [pa.array(np.arange(rows, dtype=np.int32)), pa.array(random.random(rows)), pa.array(random.random(rows))]
        for _ in range(16)
    ]
    text = f"""
        CREATE STREAM S (TS TIMESTAMP NOT NULL, ID INT NOT NULL, A1 DOUBLE NOT NULL, A2 DOUBLE NOT NULL, EVENT TIME TS);
        SELECT AVG(A1) AS mean FROM S [ROWS {window}];
    """
    with App(text) as app:
        feed = Feed(app, "S", Ring(("TS", "ID", "A1", "A2"), batches), evenly(1))
        feed.fill(window + rows)
        taken = in_turns({"store": lambda: feed.push(-(-plan.column_events // plan.rounds // rows))}, plan.rounds)
        return _row("our store", window, app.metrics.stored_bytes / window, rate(taken["store"]))


def _column_tables(rows: int, plan: _Plan) -> list[dict[str, Any]]:
    lookups = plan.lookups
    random = np.random.default_rng(1)
    ids = random.permutation(rows).astype(np.int64)
    table = tuple(random.integers(0, 1000, rows).astype(np.int32) for _ in range(4))
    index = np.full(1 << (2 * rows - 1).bit_length(), -1, np.int32)
    column_kernels.index(ids, index)
    wanted = random.integers(0, rows, lookups)
    values = random.random(lookups)
    found, joined = np.empty(lookups, np.int32), np.empty(lookups)

    def look_up() -> Timing:
        return timed(lookups, lambda: column_kernels.join(wanted, values, ids, table[0], index, found, joined))

    look_up()
    per_second = look_up().rate
    own = ids.nbytes + index.nbytes
    return [
        _row("columns", rows, (own + sum(column.nbytes for column in table)) / rows, per_second),
        _row("projected columns", rows, (own + table[0].nbytes) / rows, per_second),
    ]
