"""What one push costs, in processor time: the way of an event into the engine and of its result out of it.

- a dict into a VWAP over an hour on disk, whose result is handed to a subscriber;
- a list of 100 such dicts;
- a dict that gives no result, into the linked queries and tables of Linear Road: cars that are known report from the
  segment in which they were. Minutes end between the rounds.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from penstock import App
from penstock.errors import PenstockError
from penstock_bench.benches import stock_feed
from penstock_bench.benches.feed import BATCH_ROWS
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_rate, timed
from penstock_bench.benches.vwap import TWO_BLOCKS
from penstock_bench.workloads.linear_road import application as linear_road

_LIST = 100
_PER_SECOND = 20_000
_MINUTE, _BETWEEN_REPORTS = 60, 30


@dataclass(frozen=True)
class _Plan:
    rounds: int
    events: int
    lists: int
    cars: int
    thinning: int
    batch_rows: int

    @property
    def ticks(self) -> int:
        """All that are pushed one by one or in lists, those of the warm-up included."""
        return (self.rounds + 1) * (self.events + _LIST * self.lists)


_PLANS = {
    Size.TINY: _Plan(2, 20, 2, 10, 1000, 256),
    Size.QUICK: _Plan(7, 2000, 100, 300, 20, BATCH_ROWS),
    Size.FULL: _Plan(15, 10_000, 500, 1500, 1, BATCH_ROWS),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    event, batch = _vwap(plan, report)
    report.step("single reports into Linear Road's queries and tables")
    linked, queries = _linked(plan)
    report.table(
        ("push", "µs"),
        [("a dict, VWAP over an hour", event), ("a list of 100 dicts", batch), ("a dict without a result", linked)],
    )
    return {
        "us_per_event": event,
        "us_per_batch_of_100": batch,
        "us_fixed_12_queries": linked,
        "linked_queries": queries,
        "rounds": plan.rounds,
        "events": plan.events,
    }


def _vwap(plan: _Plan, report: Report) -> tuple[float, float]:
    """Microseconds of a push of a dict, and of a list of them."""
    hour = stock_feed.Hour(_PER_SECOND, 2 * plan.ticks, plan.thinning, plan.batch_rows)
    with App(stock_feed.application("RANGE 1 HOUR"), memory=TWO_BLOCKS) as app:
        report.step(f"filling one hour: {hour.rows:,} events")
        hour.fill(app)
        report.step("single ticks, and lists of them")
        results = _Results(app, app.queries)

        singly, in_lists = [], []
        for _ in range(plan.rounds + 1):
            single = hour.next_events(plan.events)
            many = hour.next_events(_LIST * plan.lists)
            lists = [many[i : i + _LIST] for i in range(0, len(many), _LIST)]
            gc.collect()
            singly.append(timed(len(single), partial(_push, app, stock_feed.STREAM, single)))
            in_lists.append(timed(len(lists), partial(_push, app, stock_feed.STREAM, lists)))
            results.expect(len(single) + len(many))
    return _microseconds(singly), _microseconds(in_lists)


def _linked(plan: _Plan) -> tuple[float, int]:
    """Microseconds of a push that gives no result, and how many queries there are."""
    with tempfile.TemporaryDirectory(prefix="penstock-push-") as directory:
        tolls = Path(directory) / "tolls.csv"
        tolls.write_text("1,1,0,10\n", encoding="utf-8")
        with linear_road.embedded(tolls) as app:
            for minute in range(2):
                app.push(linear_road.STREAM, [_report(car, minute * _MINUTE, minute) for car in range(plan.cars)])
            results = _Results(app, linear_road.LAYOUTS.keys() & set(app.queries))
            taken = []
            for turn in range(plan.rounds + 1):
                time = 2 * _MINUTE + turn * _BETWEEN_REPORTS
                reports = [_report(car, time + car * 10 // plan.cars, turn + 2) for car in range(plan.cars)]
                # The first report of a half minute brings the time there.
                app.push(linear_road.STREAM, _report(plan.cars, time, turn + 2) if turn else reports[0])
                gc.collect()
                results.forget()
                taken.append(timed(len(reports), partial(_push, app, linear_road.STREAM, reports)))
                results.expect(0)
            return _microseconds(taken), len(app.queries)


def _push(app: App, stream: str, pushed: Sequence[Any]) -> None:
    for one in pushed:
        app.push(stream, one)


def _microseconds(rounds: list[Timing]) -> float:
    """Of one push, without the first round, in which what is needed is made."""
    return 1e6 / cpu_rate(rounds[1:])


def _report(car: int, time: int, turn: int) -> dict[str, int]:
    """Of a car that stays in its segment and moves in it."""
    where = {"xway": 0, "lane": 1, "dir": 0, "seg": car % 90, "pos": car % 90 * 5280 + 10 * (turn % 400)}
    asked = dict.fromkeys(("qid", "s_init", "s_end", "dow", "tod", "day"), -1)
    return {"type": 0, "time": time, "vid": car, "speed": 50, **where, **asked}


class _Results:
    """Counts the rows that come out, so that what is measured is known to have happened."""

    def __init__(self, app: App, queries: Iterable[str]) -> None:
        self._rows = 0
        for query in queries:
            app.subscribe(query, self._count)

    def _count(self, rows: Any) -> None:
        self._rows += rows.num_rows

    def forget(self) -> None:
        self._rows = 0

    def expect(self, rows: int) -> None:
        if self._rows != rows:
            raise PenstockError(f"the bench expects {rows:,} results, not {self._rows:,}")
        self._rows = 0
