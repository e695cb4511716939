"""A join beyond memory: each event of two streams finds one of the other, half an hour ago, by a key of its own.

Windows of an hour hold every key once on each side. Times and keys alone are `join_to_budget` times the budget; what
results show of the rows comes on top. `join_events_per_second` is the rate of the median step once the windows are
full, and `join_paged_to_memory` that rate beside the one of an app that holds all of it in memory, in turns. The number
of matches is checked.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, rate, ratio, timed

_PROGRAM = """
CREATE STREAM a (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);
CREATE STREAM b (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, y DOUBLE NOT NULL, EVENT TIME t);
SELECT u.k, x, y FROM a [RANGE 1 HOUR] AS u JOIN b [RANGE 1 HOUR] AS v ON u.k = v.k;
"""
_HOUR = 3600 * 1_000_000
_SCATTER = 0x9E3779B1
"""A prime: multiples of it go through all keys."""


@dataclass(frozen=True)
class _Plan:
    memory: int
    keys: int
    batch: int
    """Events of a stream that are pushed together."""

    steps: int
    """Pushes of each stream in a step that is timed."""

    rounds: int


_PLANS = {
    Size.TINY: _Plan(2_000_000, 30_000, 5_000, 1, 1),
    Size.QUICK: _Plan(3_200_000, 250_000, 40_000, 1, 3),
    Size.FULL: _Plan(48_000_000, 4_000_000, 1 << 17, 2, 5),
}


class _Fed:
    """An app and the events that go to it: as many of each stream in an hour as there are keys."""

    def __init__(self, plan: _Plan, memory: int) -> None:
        self.app = App(_PROGRAM, memory=memory)
        self.app.subscribe(self.app.queries[0], self._take)
        self._plan = plan
        self._rows = 0
        self.matches = 0

    def _take(self, results: pa.RecordBatch) -> None:
        self.matches += results.num_rows

    def fill(self) -> None:
        while self._rows < self._plan.keys:
            self._push(*self._batches())

    def step(self) -> Timing:
        """Some batches of each stream; what it takes to make them does not count."""
        wall = cpu = 0.0
        for _ in range(self._plan.steps):
            batches = self._batches()
            taken = timed(0, lambda own=batches: self._push(*own))  # type: ignore[misc]
            wall, cpu = wall + taken.wall, cpu + taken.cpu
        return Timing(2 * self._plan.steps * self._plan.batch, wall, cpu)

    def _push(self, one: pa.RecordBatch, other: pa.RecordBatch) -> None:
        self.app.push("a", one)
        self.app.push("b", other)

    def _batches(self) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        keys, numbers = self._plan.keys, np.arange(self._rows, self._rows + self._plan.batch)
        self._rows += self._plan.batch
        times = pa.array(numbers * _HOUR // keys).view(pa.timestamp("us", "UTC"))
        one, other = (pa.array((numbers + shift) * _SCATTER % keys) for shift in (0, keys // 2))
        values = pa.array(numbers % 97 / 8)
        return (
            pa.RecordBatch.from_arrays([times, one, values], names=["t", "k", "x"]),
            pa.RecordBatch.from_arrays([times, other, values], names=["t", "k", "y"]),
        )


def measure_join(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    report.step(f"a join of {2 * plan.keys:,} rows with keys of their own in {plan.memory / 1e6:,.0f} MB")
    with ExitStack() as apps:
        paged, resident = (_Fed(plan, memory) for memory in (plan.memory, 100 * plan.memory))
        for fed in (paged, resident):
            apps.enter_context(fed.app)
            fed.fill()
        metrics = resident.app.metrics
        taken = in_turns({"paged": paged.step, "memory": resident.step}, plan.rounds)
        for fed in (paged, resident):
            fed.app.finish()
    if paged.matches != resident.matches:
        raise AssertionError(f"{paged.matches:,} matches on disk and {resident.matches:,} in memory")
    return {
        "join_to_budget": (metrics.memory_bytes - metrics.pool_bytes) / plan.memory,
        "join_events_per_second": rate(taken["paged"]),
        "join_paged_to_memory": ratio(taken["paged"], taken["memory"]),
    }
