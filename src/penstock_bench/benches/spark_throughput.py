"""Call-centre KPIs per service on Spark, from Parquet files, beside the same query over the same files embedded.

Both have a full window, and are fed the same micro-batches in turns. Spark's time is that of whole micro-batches:
reading, packing, shuffle, operators, state and commit. The embedded engine reads the files with its own source, in one
thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock import App
from penstock.instruments import open_source
from penstock_bench.benches.callcentre_feed import KPI_COLUMNS, STREAM, CallCentre, kpis
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, Share, penstock_plan, spark_place
from penstock_bench.benches.timing import Timing, cpu_rate, in_turns, rate, ratio, timed

_MEMORY = "64MB"
_SLIDE_SECONDS = 10


@dataclass(frozen=True)
class _Plan:
    """`warm_up` micro-batches with a full window are set aside."""

    per_second: int
    window_seconds: int
    batch_events: int
    warm_up: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan(10, 60, 1000, 0, 2),
    Size.QUICK: _Plan(1000, 3600, 2_000_000, 1, 3),
    Size.FULL: _Plan(1000, 86_400, 4_000_000, 3, 9),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    text = kpis(f"RANGE {plan.window_seconds} SECONDS SLIDE {_SLIDE_SECONDS} SECONDS")
    with spark_place(size, report) as (spark, place):
        stream = CallCentre(place / "made", KPI_COLUMNS, evenly(1_000_000 // plan.per_second), plan.batch_events)
        with App(stream.create_stream + text, memory=_MEMORY) as app:
            embedded = _Embedded(app)
            fed = FedQuery(spark, place / "query", stream.ddl, penstock_plan(spark, STREAM, text, _MEMORY))
            report.step(f"filling both windows, {plan.per_second * plan.window_seconds:,} events")
            filling = stream.shares(plan.per_second * plan.window_seconds + plan.warm_up * plan.batch_events)
            for share in filling:
                embedded.feed(share)
                fed.feed(share)
            report.step("measuring both in turns")
            shares = stream.shares(plan.rounds * plan.batch_events)
            for_spark, for_app = iter(shares), iter(shares)
            taken = in_turns(
                {"spark": lambda: fed.feed(next(for_spark)), "embedded": lambda: embedded.feed(next(for_app))},
                plan.rounds,
            )
            fed.stop()
    report.table(
        ("engine", "events/s", "events per CPU second"),
        [(name, rate(rounds), cpu_rate(rounds)) for name, rounds in taken.items()],
    )
    return {
        "events_per_second": rate(taken["spark"]),
        "events_per_cpu_second": cpu_rate(taken["spark"]),
        "to_embedded": ratio(taken["spark"], taken["embedded"]),
        "embedded_events_per_second": rate(taken["embedded"]),
        "batch_seconds": sum(t.wall for t in taken["spark"]) / plan.rounds,
        "batch_events": plan.batch_events,
        "batches_set_aside": len(filling),
        "events_per_event_second": plan.per_second,
        "window_seconds": plan.window_seconds,
        "slide_seconds": _SLIDE_SECONDS,
        "memory": _MEMORY,
        "cores": CORES,
        "rounds": plan.rounds,
    }


class _Embedded:
    """An app that reads shares with its own source of Parquet files."""

    def __init__(self, app: App) -> None:
        self._app = app
        (self._stream,) = app.program.streams
        app.subscribe("q1", lambda results: None)

    def feed(self, share: Share) -> Timing:
        def read_and_push() -> None:
            for part in open_source(replace(self._stream, uri=str(share.directory))):
                self._app.push(STREAM, part.batch)

        return timed(share.events, read_and_push)
