"""Linear Road: are all answers right, and how many expressways are answered within five seconds?

`wrong_rows` counts answers that are missing or undue, of types 0 to 3, on both engines, against the validator or a file
of answers that is given. `l_rating` is the most expressways at which every answer of the embedded engine comes within
five seconds of its report, with a process for each of two cores (`linear_road_embedded`), `l_rating_spark` the same on
Spark in local mode, where all linked queries run in one bucket.

The quick run repeats one expressway under other numbers, measures some seconds at the peak of the three hours and thins
what leads up to them (`linear_road_load`). The full run then goes through the three hours in real time, with as many
different expressways as `--roads` says, or with the rating of the stretch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import InputError
from penstock_bench.benches import linear_road_spark
from penstock_bench.benches.linear_road_embedded import PROCESSES, rater
from penstock_bench.benches.linear_road_exact import Checked, Given, check
from penstock_bench.benches.linear_road_hours import three_hours
from penstock_bench.benches.linear_road_load import PEAK, Stretch, peaks
from penstock_bench.benches.linear_road_rating import LIMIT, Trial, best, search
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, spark_place

_HEADINGS = ("expressways", "held", "p50 ms", "p99 ms", "max ms", "busy", "reports/s", "answers", "")


@dataclass(frozen=True)
class _Plan:
    """Seconds of a stretch, the expressways to begin with, and the seconds that a search may take. That on Spark comes
    last; `ends` is when it is to be over, in seconds since the bench began."""

    stretch: int
    start: int
    search: float
    spark_stretch: int
    spark_start: int
    ends: float
    boundary: int = PEAK
    """The full minute in the middle of a stretch."""


_PLANS = {
    Size.TINY: _Plan(2, 2, 0, 4, 1, 0, boundary=600),
    Size.QUICK: _Plan(6, 200, 36, 12, 20, 115),
    Size.FULL: _Plan(20, 100, 600, 30, 20, 1500),
}


def measure(size: Size, report: Report, *, given: Given | None = None, roads: int | None = None) -> dict[str, Any]:
    if roads is not None and size is not Size.FULL:
        raise InputError("--roads is for the full run: the quick one searches the number of expressways")
    plan, began = _PLANS[size], time.monotonic()
    report.step("an expressway up to the peak of its three hours")
    stretch, longer = peaks((plan.stretch, plan.spark_stretch), boundary=plan.boundary)
    shares, trials = _embedded(plan, stretch, report)
    with spark_place(size, report) as (spark, place):
        checked = check(size, given, place / "exact", report)
        on_spark = _on_spark(plan, began, longer, spark, place, report)
    figures = {
        "wrong_rows": sum(one.wrong for one in checked),
        "l_rating": _rating(trials),
        "l_rating_spark": _rating(on_spark),
        **_exactness(checked),
        **_at_rating(trials, ""),
        **_at_rating(on_spark, "spark_"),
        "time_goes": shares,
        "trials": [trial.figures() for trial in trials],
        "trials_spark": [trial.figures() for trial in on_spark],
        "limit_seconds": LIMIT,
        "stretch_seconds": plan.stretch,
        "stretch_seconds_spark": plan.spark_stretch,
        "processes": PROCESSES,
        "cores": CORES,
        "shortened": "one expressway repeated under other numbers; a stretch at the peak of the three hours; the"
        " minutes before it thinned to a report of each segment, the last round to the cars that report in the stretch",
    }
    if size is Size.FULL:
        figures["three_hours"] = three_hours(roads or max(1, _rating(trials)), report)
    return figures


def _embedded(plan: _Plan, stretch: Stretch, report: Report) -> tuple[dict[str, float], list[Trial]]:
    report.step(f"embedded, {PROCESSES} processes, {stretch.per_second:,.0f} reports a second of an expressway")
    with rater(stretch) as processes:
        first, shares = processes.profile(plan.start)
        report.step(_told(first))
        trials = search(
            processes.trial, plan.start, plan.search, lambda trial: report.step(_told(trial)), known=[first]
        )
    report.table(_HEADINGS, [tuple(trial.figures().values()) for trial in trials])
    report.table(("where the time goes", "share"), list(shares.items()))
    return shares, trials


def _on_spark(
    plan: _Plan, began: float, stretch: Stretch, spark: SparkSession, place: Path, report: Report
) -> list[Trial]:
    report.step("on Spark, in real time")

    def trial(roads: int) -> Trial:
        return linear_road_spark.trial(spark, place / f"roads-{roads}", stretch, roads)

    seconds = plan.ends - (time.monotonic() - began)
    trials = search(trial, plan.spark_start, seconds, lambda done: report.step(_told(done)))
    report.table(_HEADINGS, [tuple(trial.figures().values()) for trial in trials])
    return trials


def _told(trial: Trial) -> str:
    slowest = float(trial.responses.max()) if len(trial.responses) else 0.0
    return f"{trial.roads:,} expressways: {trial.why or 'held'}; the slowest answer took {slowest:.2f} s"


def _rating(trials: list[Trial]) -> int:
    found = best(trials)
    return 0 if found is None else found.roads


def _at_rating(trials: list[Trial], prefix: str) -> dict[str, float]:
    found = best(trials)
    figures = {} if found is None else found.figures()
    wanted = {"p50_ms": "response_p50_ms", "p99_ms": "response_p99_ms", "max_ms": "response_max_ms"}
    wanted |= {"reports_per_second": "reports_per_second"}
    return {f"{prefix}{name}": figures.get(key, 0.0) for key, name in wanted.items()}


def _exactness(checked: list[Checked]) -> dict[str, Any]:
    return {
        "rows_checked": sum(one.expected for one in checked),
        "wrong_travel_times": sum(one.wrong_travel_times for one in checked),
        "exact": [one.figures() for one in checked],
    }
