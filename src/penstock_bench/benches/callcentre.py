"""The call centre of the SlideM paper, whole: 144 KPIs over 24 hours, every 10 seconds, in a budget of 64 MB.

Events are those of `workloads.callcentre`, 1,000 a second of event time: eight keys with 80,000 groups together. The
columns repeat after as many events as the keys take to come round, and only the times go on, so what is in a window is
known without storing it: at the boundaries that are checked, DuckDB computes all 144 KPIs of the 80,000 groups from
these events, each weighted by how often it is in the window. Against that stands the relation that the ISTREAM results
have made up since the beginning (which cannot say that a group is gone; here none goes).

Another process runs a little of it before, so that what compiling takes on a new machine is not in `peak_mb`. Nor is
pandas, which `pa.array` and `to_numpy` import where it is installed: they are not used before the peak is read.

A shorter window of the same KPIs is then made of panes. A pane of 10 seconds has almost as many rows here, one for each
group, as the stream has events in it, and each has all sums of its group.

The clock runs while events are pushed; making them and taking the results in stands outside it. While it runs, as many
events leave the window as enter it. In the quick run the rest of the window is thinner, and filled faster.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock.generators import callcentre
from penstock.generators.callcentre import FIELDS, GROUP_KEYS, LEG_EVENTS, LEGS
from penstock.instruments import aggregations, count_aggregations, plan_program
from penstock.types import SqlType
from penstock_bench.benches.memory import peak_of_process
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_rate, rate
from penstock_bench.workloads import callcentre_kpis

_SECOND = 1_000_000
_PER_SECOND = 1000
_SLIDE = 10 * _SECOND
_RING_ROWS = LEGS * LEG_EVENTS
_BATCH_ROWS = 32_768
_DRAWN = 100
_VALUES = (*GROUP_KEYS, *FIELDS)
_GROUPS = {
    "instance": callcentre.INSTANCES,
    "serviceId": callcentre.SERVICES,
    "agentId": callcentre.AGENTS,
    "mediaId": callcentre.MEDIA,
    "interactionLegId": LEGS,
    "agentSite": callcentre.SITES,
    "callSite": callcentre.SITES,
    "direction": callcentre.DIRECTIONS,
}

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Plan:
    """A window of `window` seconds, of which the first and the last `dense` have all their events and the rest one in
    `thinning`; `batches` are pushed while the clock runs."""

    window: int
    dense: int
    thinning: int
    batches: int
    memory: str
    strategy: str = "window"

    @property
    def fill_rows(self) -> int:
        """Rows until the window is full and some more than a ring of them has entered since."""
        return self._thin_from + (self.window - self.dense) * _PER_SECOND // self.thinning

    @property
    def _thin_from(self) -> int:
        return self.dense * _PER_SECOND

    def times(self, first: int, rows: int) -> Ints:
        number = np.arange(first, first + rows)
        thin = np.clip(number, self._thin_from, self.fill_rows) - self._thin_from
        return (number + thin * (self.thinning - 1)) * (_SECOND // _PER_SECOND)

    def first_at(self, time: int) -> int:
        """The first row that is not before a time."""
        low, high = 0, 2 * self.fill_rows + 10 * _RING_ROWS
        while low < high:
            middle = (low + high) // 2
            if int(self.times(middle, 1)[0]) < time:
                low = middle + 1
            else:
                high = middle
        return low


_PLANS = {
    Size.TINY: _Plan(600, 100, 50, 1, "32MB"),
    Size.QUICK: _Plan(86_400, 800, 100, 20, "64MB"),
    Size.FULL: _Plan(86_400, 86_400, 1, 100, "64MB"),
}

_PANE_PLANS = {
    Size.TINY: _Plan(100, 100, 1, 1, "64MB", "panes"),
    Size.QUICK: _Plan(300, 300, 1, 4, "64MB", "panes"),
    Size.FULL: _Plan(3600, 3600, 1, 20, "64MB", "panes"),
}


class _Relation:
    """What the ISTREAM results of one query say is now the case: COUNT, SUM and AVG by key."""

    def __init__(self, groups: int) -> None:
        self.calls, self.total, self.mean = np.zeros(groups, np.int64), np.zeros(groups, np.int64), np.zeros(groups)
        self.rows = 0
        self._waiting: list[pa.RecordBatch] = []

    def put(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)

    def settle(self) -> None:
        """Takes in what came; of a key's rows the last one counts."""
        for batch in self._waiting:
            key = np.from_dlpack(batch.column(2))
            for own, column in zip((self.calls, self.total, self.mean), batch.columns[3:], strict=True):
                own[key] = np.from_dlpack(column)
            self.rows += len(key)
        self._waiting.clear()


class _CallCentre:
    """The app, how far it has been fed, and the relations that its results make up."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._source = callcentre.generator(rate=_PER_SECOND, seconds=0, seed=1, start=0)
        queries = callcentre_kpis.kpi_queries(f"RANGE {plan.window} SECONDS SLIDE 10 SECONDS")
        text = callcentre_kpis.kpi_stream_sql("generated") + queries
        self.app = App(text, memory=plan.memory, strategy=plan.strategy)
        self.relations = {(field, key): _Relation(_GROUPS[key]) for key in GROUP_KEYS for field in FIELDS}
        for (field, key), relation in self.relations.items():
            self.app.subscribe(f"{field}_by_{key}", relation.put)
        self.pushed = 0
        self.course: list[list[float]] = []
        """While the window fills: hours, the memory taken and the rows stored, in MB, and microseconds per event."""

    @property
    def results(self) -> int:
        return sum(relation.rows for relation in self.relations.values())

    def fill(self) -> None:
        every = max(1, self._plan.fill_rows // _BATCH_ROWS // _DRAWN)
        while self.pushed < self._plan.fill_rows:
            taken = self.push()
            if self.pushed // _BATCH_ROWS % every == 0:
                hours = int(self._plan.times(self.pushed, 1)[0]) / (3600 * _SECOND)
                metrics = self.app.metrics
                stretch = (metrics.memory_bytes / 1e6, metrics.stored_bytes / 1e6, 1e6 / taken.rate)
                self.course.append([hours, *stretch])

    def push(self) -> Timing:
        """One batch; the time is that of the push alone."""
        numbers = pa.py_buffer(self._plan.times(self.pushed, _BATCH_ROWS))
        times = pa.Array.from_buffers(SqlType.TIMESTAMP.arrow, _BATCH_ROWS, [None, numbers])
        columns = self._values(self.pushed % _RING_ROWS).columns
        batch = pa.RecordBatch.from_arrays([times, *columns], names=["timestamp", *_VALUES])
        wall, cpu = time.perf_counter(), time.process_time()
        self.app.push(callcentre.STREAM, batch)
        taken = Timing(batch.num_rows, time.perf_counter() - wall, time.process_time() - cpu)
        self.pushed += batch.num_rows
        for relation in self.relations.values():
            relation.settle()
        return taken

    def _values(self, first: int) -> pa.RecordBatch:
        """The values of a batch; those of the ring begin anew at its end."""
        stretches = [(first, min(_BATCH_ROWS, _RING_ROWS - first))]
        if stretches[0][1] < _BATCH_ROWS:
            stretches.append((0, _BATCH_ROWS - stretches[0][1]))
        return pa.concat_batches([self._source.batch(begin, rows, _VALUES) for begin, rows in stretches])

    def is_right(self) -> bool:
        """Whether all KPIs are those that DuckDB computes for the last boundary."""
        boundary = int(self._plan.times(self.pushed - 1, 1)[0]) // _SLIDE * _SLIDE
        begin = self._plan.first_at(boundary - self._plan.window * _SECOND)
        end = self._plan.first_at(boundary)
        place = np.arange(_RING_ROWS)
        often = (end - place + _RING_ROWS - 1) // _RING_ROWS - (begin - place + _RING_ROWS - 1) // _RING_ROWS
        import duckdb  # its memory is not to be taken for the engine's

        with duckdb.connect() as database:
            events = pa.Table.from_batches([self._source.batch(0, _RING_ROWS, _VALUES)])
            database.register("ring", events.append_column("often", pa.array(often)))
            return all(self._agrees(database.sql(_recomputed(key)).to_arrow_table(), key) for key in GROUP_KEYS)

    def _agrees(self, expected: pa.Table, key: str) -> bool:
        keys, calls = expected.column(0).to_numpy(), expected.column(1).to_numpy()
        for field in FIELDS:
            own, total = self.relations[field, key], expected.column(field).to_numpy()
            pairs = ((own.calls, calls), (own.total, total), (own.mean, total / calls))
            if not all((found[keys] == right).all() for found, right in pairs):
                return False
        return True


def _recomputed(key: str) -> str:
    sums = ", ".join(f"SUM(often * {field})::BIGINT AS {field}" for field in FIELDS)
    return f"SELECT {key}, SUM(often)::BIGINT, {sums} FROM ring WHERE often > 0 GROUP BY {key}"


def measure(size: Size, report: Report) -> dict[str, Any]:
    report.step("compiling in another process")
    subprocess.run([sys.executable, "-m", "penstock_bench.benches.callcentre"], check=True, stdout=subprocess.DEVNULL)
    figures, groups, course = _one_window(_PLANS[size], report)
    panes, panes_course = _panes(_PANE_PLANS[size], report)
    report.table(("figure", "value"), list((figures | panes).items()))
    report.table(("key", "groups"), list(groups.items()))
    return {**figures, **panes, "keys": groups, "series": {"window": course, "panes": panes_course}}


def _one_window(plan: _Plan, report: Report) -> tuple[dict[str, Any], dict[str, int], list[list[float]]]:
    """The figures of windows kept as rows, how many groups each key has, and the course of filling them."""
    centre = _CallCentre(plan)
    with centre.app as app:
        report.step(f"filling {plan.window:,} s: {plan.fill_rows:,} events")
        centre.fill()
        report.step(f"measuring {plan.batches * _BATCH_ROWS:,} events")
        before = centre.results
        taken = [centre.push() for _ in range(plan.batches)]
        results = centre.results - before
        metrics, peak = app.metrics, peak_of_process()
        report.step("checking all KPIs at two boundaries")
        checks = [centre.is_right()]
        centre.push()
        checks.append(centre.is_right())
        counts = count_aggregations(aggregations(plan_program(app.program)))
    groups = {key: int((centre.relations[FIELDS[0], key].calls > 0).sum()) for key in GROUP_KEYS}
    figures = {
        "events_per_second": rate(taken),
        "events_per_cpu_second": cpu_rate(taken),
        "state_mb": metrics.memory_peak / 1e6,
        "budget_mb": metrics.memory_budget / 1e6,
        "peak_mb": peak / 1e6,
        "stored_mb": metrics.stored_bytes / 1e6,
        "answers_equal": all(checks),
        "answers_checked": len(checks) * 3 * len(FIELDS) * sum(groups.values()),
        "kpis": counts.asked,
        "aggregates": counts.aggregates,
        "states": counts.states,
        "results_per_event": results / sum(t.events for t in taken),
        "groups": sum(groups.values()),
        "window_seconds": plan.window,
        "events": centre.pushed,
        "blocks_written": metrics.blocks_written,
        "blocks_read": metrics.blocks_read,
    }
    return figures, groups, centre.course


def _panes(plan: _Plan, report: Report) -> tuple[dict[str, Any], list[list[float]]]:
    """The same KPIs over a shorter window made of panes, whose rows for each group and pane outgrow those of events."""
    report.step(f"the same with panes, over {plan.window:,} s")
    centre = _CallCentre(plan)
    with centre.app as app:
        centre.fill()
        taken = [centre.push() for _ in range(plan.batches)]
        figures = {
            "panes_events_per_second": rate(taken),
            "panes_events_per_cpu_second": cpu_rate(taken),
            "panes_state_mb": app.metrics.memory_peak / 1e6,
            "panes_stored_mb": app.metrics.stored_bytes / 1e6,
            "panes_answers_equal": centre.is_right(),
            "panes_window_seconds": plan.window,
        }
    return figures, centre.course


def compile_all() -> None:
    """Runs through all loops once: they are then on disk for other processes."""
    centre = _CallCentre(_PLANS[Size.TINY])
    with centre.app:
        centre.fill()
        centre.push()


if __name__ == "__main__":
    compile_all()
