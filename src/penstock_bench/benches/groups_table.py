"""A table beyond memory: look-ups and changes by key, of a table much larger than the budget.

A row is a key, a number of changes and a sum. Rows are loaded in a scattered order by UPSERTs that set all columns;
then each event asks for the row of a key that is drawn by Zipf's law with the exponent 1.1, or *evenly*, or adds to it.
What look-ups find is checked: the sum of a row is that of its key.

`table_rows` is the size that was loaded. `table_lookups_per_second` and `table_upserts_per_second` are for
Zipf's keys, those that end in `_even` for even keys. `table_paged_to_memory` is the rate of look-ups and changes
together (Zipf) beside an app that holds the whole table in memory, in turns, for a table of about ten times the budget.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, rate, ratio

_PROGRAM = """
CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x BIGINT NOT NULL, what INT NOT NULL, EVENT TIME t);
CREATE TABLE held (k BIGINT PRIMARY KEY, n BIGINT NOT NULL, total BIGINT NOT NULL);
ON s WHERE s.what = 0 UPSERT INTO held VALUES (s.k, 1, s.x);
ON s WHERE s.what = 1 UPSERT INTO held (k, n, total) VALUES (s.k, COALESCE(n, 0) + 1, COALESCE(total, 0) + s.x);
"""
_LOOK_UP = "CREATE QUERY asked AS SELECT s.k, n, total FROM s, held WHERE s.k = held.k AND s.what = 2"
_LOAD, _CHANGE, _ASK = 0, 1, 2
_EXPONENT = 1.1
_BATCH_ROWS = 1 << 16
_SCATTER = 0x9E3779B1
"""A prime: multiples of it go through all keys."""


@dataclass(frozen=True)
class _Plan:
    memory: int
    rows: int
    compared: int
    events: int
    """So many events are timed at once."""
    rounds: int


_PLANS = {
    Size.TINY: _Plan(1_000_000, 50_000, 50_000, 10_000, 2),
    Size.QUICK: _Plan(1_000_000, 250_000, 250_000, 16_384, 3),
    Size.FULL: _Plan(256_000_000, 200_000_000, 80_000_000, 1 << 20, 6),
}


def measure_table(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    _warm_up(plan.memory)
    report.step(f"{plan.rows:,} rows of a table in {plan.memory / 1e6:,.0f} MB")
    table = _Fed(plan.rows, plan.memory)
    with table.app:
        loaded = table.load()
        table.push(plan.events, _ASK, even=True)
        even = {what: table.push(plan.events, what, even=True).rate for what in (_ASK, _CHANGE)}
        table.push(plan.events, _ASK, even=False)
        zipf = {what: table.push(plan.events, what, even=False).rate for what in (_ASK, _CHANGE)}
        peak = table.app.metrics.memory_peak
        table.check()
    figures = {
        "table_rows": plan.rows,
        "table_memory_mb": plan.memory / 1e6,
        "table_peak_to_budget": peak / plan.memory,
        "table_loaded_per_second": loaded.rate,
        "table_lookups_per_second": zipf[_ASK],
        "table_lookups_per_second_even": even[_ASK],
        "table_upserts_per_second": zipf[_CHANGE],
        "table_upserts_per_second_even": even[_CHANGE],
        **_compared(plan, report),
    }
    report.table(
        ("a table beyond memory", "look-ups/s", "changes/s"),
        [("keys by Zipf's law", zipf[_ASK], zipf[_CHANGE]), ("even keys", even[_ASK], even[_CHANGE])],
    )
    return figures


class _Fed:
    """An app with the table, and the events that go to it."""

    def __init__(self, rows: int, memory: int) -> None:
        self.app = App(_PROGRAM, memory=memory)
        self._rows = rows
        self._time = 0
        self._asked = self._found = self._wrong = 0
        self._random = np.random.default_rng(1)

    def load(self) -> Timing:
        taken = self._push(np.arange(0, self._rows), _LOAD)
        self.app.add_query(_LOOK_UP)
        self.app.subscribe("asked", self._take)
        return taken

    def push(self, events: int, what: int, *, even: bool) -> Timing:
        """So many events of keys that are drawn; what it takes to make them does not count."""
        if what == _ASK:
            self._asked += events
        return self._push(self._drawn(events, even=even), what)

    def turn(self, events: int) -> Timing:
        """Look-ups, and as many changes."""
        asked, changed = (self.push(events // 2, what, even=False) for what in (_ASK, _CHANGE))
        return Timing(2 * (events // 2), asked.wall + changed.wall, asked.cpu + changed.cpu)

    def _drawn(self, events: int, *, even: bool) -> NDArray[np.int64]:
        """The ranks of keys, by the inverse of the distribution's continuous form."""
        if even:
            return self._random.integers(0, self._rows, events)
        power = 1 - _EXPONENT
        drawn = (1 + self._random.random(events) * (float(self._rows + 1) ** power - 1)) ** (1 / power)
        ranks: NDArray[np.int64] = np.minimum(drawn.astype(np.int64) - 1, self._rows - 1)
        return ranks

    def _push(self, ranks: NDArray[np.int64], what: int) -> Timing:
        wall = cpu = 0.0
        for start in range(0, len(ranks), _BATCH_ROWS):
            some = ranks[start : start + _BATCH_ROWS]
            keys = some * _SCATTER % self._rows
            times = pa.array(np.arange(self._time, self._time + len(some))).view(pa.timestamp("us", "UTC"))
            whats = pa.array(np.full(len(some), what, np.int32))
            columns = [times, pa.array(keys), pa.array(keys % 97), whats]
            batch = pa.RecordBatch.from_arrays(columns, names=["t", "k", "x", "what"])
            self._time += len(some)
            wall_before, cpu_before = time.perf_counter(), time.process_time()
            self.app.push("s", batch)
            wall, cpu = wall + time.perf_counter() - wall_before, cpu + time.process_time() - cpu_before
        return Timing(len(ranks), wall, cpu)

    def _take(self, results: pa.RecordBatch) -> None:
        keys, counts, totals = (results.column(name).to_numpy() for name in ("k", "n", "total"))
        self._found += len(keys)
        self._wrong += int(np.count_nonzero(totals != keys % 97 * counts))

    def check(self) -> None:
        if self._wrong or self._found != self._asked:
            raise AssertionError(f"{self._found:,} of {self._asked:,} rows were found, {self._wrong:,} were wrong")


def _warm_up(memory: int) -> None:
    """Loads the kernels, also those of tables beyond memory."""
    table = _Fed(memory // 60, memory // 16)
    with table.app:
        table.load()
        table.turn(1000)


def _compared(plan: _Plan, report: Report) -> dict[str, float]:
    report.step(f"{plan.compared:,} rows of a table, on disk and in memory, in turns")
    with ExitStack() as apps:
        paged, resident = (_Fed(plan.compared, memory) for memory in (plan.memory, 200 * plan.memory))
        for table in (paged, resident):
            apps.enter_context(table.app)
            table.load()
            table.turn(plan.events)
        in_memory = resident.app.metrics.memory_bytes
        taken = in_turns(
            {"paged": lambda: paged.turn(plan.events), "memory": lambda: resident.turn(plan.events)}, plan.rounds
        )
        paged.check()
        resident.check()
    return {
        "table_paged_to_memory": ratio(taken["paged"], taken["memory"]),
        "table_compared_rows": plan.compared,
        "table_compared_per_second": rate(taken["paged"]),
        "table_to_budget": in_memory / plan.memory,
    }
