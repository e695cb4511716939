"""State beyond memory: groups here, and values, tables, joins and sessions in the files beside.

Groups: SUM and COUNT by key over an hour, for ever more keys in the same budget.

Keys are *even*, each once in an hour in a scattered order, or drawn by Zipf's law with the exponent 1.1. The window
slides every ten minutes and holds as many events as there are keys. HAVING lets a thousandth of the keys through, so
that the groups are measured and not their way out; with even keys every result is checked.

`events_per_second` and `events_per_second_zipf` have an entry for each number of keys: the rate of the slide after the
window has been filled. `keys_reached` is the largest number whose window was filled. `paged_to_memory` (Zipf) and
`paged_to_memory_even` are the rates of the median slide at about ten times the budget, beside those of an app that
holds all of it in memory, in turns. `added_to_budget` is the memory that the process has taken for the largest window
of even keys, as a part of the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock_bench.benches.groups_join import measure_join
from penstock_bench.benches.groups_sessions import measure_sessions
from penstock_bench.benches.groups_table import measure_table
from penstock_bench.benches.groups_values import measure_distinct, measure_percentiles
from penstock_bench.benches.memory import PeakMemory
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, rate, ratio

_STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
_QUERY = (
    "SELECT k, SUM(x) AS total, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k HAVING k % 1000 = 7;"
)
_HOUR = 3600 * 1_000_000
_SLIDES = 6
"""Slides in a window."""

_LEAST_MEMORY = 1_000_000
"""In less an app of this kind does not start, or its groups do not page."""

_EXPONENT = 1.1
_BATCH_ROWS = 1 << 16
_SCATTER = 0x9E3779B1
"""A prime: multiples of it go through all keys."""

Keys = Callable[[NDArray[np.int64], int], NDArray[np.int64]]


@dataclass(frozen=True)
class _Plan:
    memory: int
    ladder: tuple[int, ...]
    zipf_ladder: tuple[int, ...]
    compared: int
    compared_zipf: int
    rounds: int


def _powers(last: int) -> tuple[int, ...]:
    return tuple(10**exponent for exponent in range(3, last + 1))


_PLANS = {
    Size.TINY: _Plan(1_000_000, (1_000, 20_000), (1_000,), 20_000, 20_000, 2),
    Size.QUICK: _Plan(32_000_000, _powers(7), _powers(6), 3_000_000, 15_000_000, 4),
    Size.FULL: _Plan(256_000_000, _powers(8), _powers(8), 24_000_000, 120_000_000, 6),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    _warm_up(plan.memory)
    even, memory_added = _ladder(plan.ladder, plan.memory, _evenly, report, "even keys")
    zipf, _ = _ladder(plan.zipf_ladder, plan.memory, _skewed, report, "keys by Zipf's law")
    compared_even = _compared(plan.compared, _evenly, plan, report, "even keys")
    compared_zipf = _compared(plan.compared_zipf, _skewed, plan, report, "keys by Zipf's law")
    report.table(
        ("keys", "events/s, even", "events/s, Zipf"),
        [(keys, own, zipf.get(keys, "-")) for keys, own in even.items()],
    )
    return {
        "keys_reached": max(even),
        "paged_to_memory": compared_zipf["ratio"],
        "paged_to_memory_even": compared_even["ratio"],
        "added_to_budget": memory_added / plan.memory,
        "events_per_second": list(even.values()),
        "events_per_second_zipf": list(zipf.values()),
        "state_to_budget": compared_even["state_to_budget"],
        "state_to_budget_zipf": compared_zipf["state_to_budget"],
        "compared_keys": plan.compared,
        "compared_keys_zipf": plan.compared_zipf,
        "compared_events_per_second": compared_zipf["events_per_second"],
        "compared_events_per_second_even": compared_even["events_per_second"],
        "keys": list(plan.ladder),
        "keys_zipf": list(plan.zipf_ladder),
        "memory_mb": plan.memory / 1e6,
        "rounds": plan.rounds,
        **measure_distinct(size, report),
        **measure_percentiles(size, report),
        **measure_table(size, report),
        **measure_join(size, report),
        **measure_sessions(size, report),
    }


def _evenly(numbers: NDArray[np.int64], keys: int) -> NDArray[np.int64]:
    scattered: NDArray[np.int64] = numbers * _SCATTER % keys
    return scattered


def _skewed(numbers: NDArray[np.int64], keys: int) -> NDArray[np.int64]:
    """By the inverse of the distribution's continuous form. The keys are scattered, so that near ones are not alike."""
    random = np.random.default_rng(int(numbers[0]))
    power = 1 - _EXPONENT
    drawn = (1 + random.random(len(numbers)) * (float(keys + 1) ** power - 1)) ** (1 / power)
    ranks: NDArray[np.int64] = np.minimum(drawn.astype(np.int64) - 1, keys - 1)
    return _evenly(ranks, keys)


class _Fed:
    """An app, and the events that go to it: as many in an hour as there are keys."""

    def __init__(self, keys: int, draw: Keys, memory: int) -> None:
        self.app = App(_STREAM + _QUERY, memory=memory)
        self.app.subscribe(self.app.queries[0], self._take)
        self._keys = keys
        self._draw = draw
        self._rows = 0
        self.wrong = 0

    def _take(self, results: pa.RecordBatch) -> None:
        """With even keys, each that is shown has come once in the window, or not yet in the first ones."""
        if self._draw is _evenly:
            keys, counts, totals = (results.column(name).to_numpy() for name in ("k", "n", "total"))
            self.wrong += int(np.count_nonzero((keys % 1000 != 7) | (counts != 1) | (totals != _value(keys))))

    def push(self, events: int) -> Timing:
        """So many events; what it takes to make them does not count."""
        end = self._rows + events
        wall = cpu = 0.0
        while self._rows < end:
            batch = self._batch(min(_BATCH_ROWS, end - self._rows))
            wall_before, cpu_before = time.perf_counter(), time.process_time()
            self.app.push("s", batch)
            wall, cpu = wall + time.perf_counter() - wall_before, cpu + time.process_time() - cpu_before
            self._rows += batch.num_rows
        return Timing(events, wall, cpu)

    def _batch(self, rows: int) -> pa.RecordBatch:
        numbers = np.arange(self._rows, self._rows + rows)
        keys = self._draw(numbers, self._keys)
        times = pa.array(numbers * _HOUR // self._keys).view(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays([times, pa.array(keys), pa.array(_value(keys))], names=["t", "k", "x"])

    def fill(self) -> None:
        self.push(self._keys)

    def slide(self) -> Timing:
        """The events up to the next evaluation, and the evaluation."""
        return self.push(max(1, self._keys // _SLIDES))


def _value(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return keys % 97 / 8


def _warm_up(memory: int) -> None:
    """Loads the kernels and lets the process take the memory that any window needs, also one beyond its memory."""
    fed = _Fed(memory // 400, _evenly, max(memory // 16, _LEAST_MEMORY))
    with fed.app:
        fed.fill()
        fed.slide()


def _ladder(
    numbers: tuple[int, ...], memory: int, draw: Keys, report: Report, what: str
) -> tuple[dict[int, float], int]:
    """The rate for each number of keys, and the memory that the largest took."""
    rates: dict[int, float] = {}
    added = 0
    for keys in numbers:
        report.step(f"{keys:,} {what} in {memory / 1e6:,.0f} MB")
        taken = PeakMemory()
        fed = _Fed(keys, draw, memory)
        with fed.app:
            fed.fill()
            rates[keys] = fed.slide().rate
        added = taken.added
        _check(fed)
    return rates, added


def _compared(keys: int, draw: Keys, plan: _Plan, report: Report, what: str) -> dict[str, float]:
    report.step(f"{keys:,} {what}, paged and in memory, in turns")
    with ExitStack() as apps:
        paged, resident = (_Fed(keys, draw, memory) for memory in (plan.memory, 100 * plan.memory))
        for fed in (paged, resident):
            apps.enter_context(fed.app)
            fed.fill()
        metrics = resident.app.metrics
        taken = in_turns({"paged": paged.slide, "memory": resident.slide}, plan.rounds)
    _check(paged)
    _check(resident)
    return {
        "ratio": ratio(taken["paged"], taken["memory"]),
        "events_per_second": rate(taken["paged"]),
        "state_to_budget": (metrics.memory_bytes - metrics.pool_bytes) / plan.memory,
    }


def _check(fed: _Fed) -> None:
    if fed.wrong:
        raise AssertionError(f"{fed.wrong:,} results were wrong")
