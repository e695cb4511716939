"""Slides by a remote clock: Algorithm 2 and synchronised timers in the set-up of the paper's Tables I and II.

A source makes a tuple every two minutes, and each comes 30 to 90 seconds late. Two queries slide every three and every
five minutes by the source's clock. What is recorded is the local time between two slides, as in the tables; its error
is the difference to what was asked for. Beside it stands how late slides are: the time from when the source's clock
passed a slide that was meant until it takes place here. Time is simulated, so that days of it take no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.sliding.remote_time import Arrivals, SynchronisedTimers

_MINUTE = 60_000
"""Times are milliseconds."""

_SLIDES = {0: 3 * _MINUTE, 1: 5 * _MINUTE}
"""By query."""

_ALPHA = 0.8
_ALPHAS = (0.0, 0.5, _ALPHA, 0.95)
"""The figures are taken with `_ALPHA`, a table shows all."""

_SHOWN = 6
"""As many slides as the paper's tables have."""

Times = NDArray[np.int64]


class _Slides(NamedTuple):
    """When a query slid, by the local clock, and when it should have, by the source's."""

    took_place: Times
    meant: Times

    @property
    def distances(self) -> Times:
        return np.diff(self.took_place)


@dataclass(frozen=True)
class _Plan:
    tuples: int
    runs: int


_PLANS = {Size.TINY: _Plan(60, 2), Size.QUICK: _Plan(1000, 20), Size.FULL: _Plan(5000, 100)}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    report.step(f"{plan.runs} runs of {plan.tuples:,} tuples")
    errors: dict[str, dict[int, list[float]]] = {}
    lateness: dict[str, list[float]] = {}
    shown: list[dict[str, Any]] = []
    for run in range(plan.runs):
        timestamps = np.arange(plan.tuples) * 2 * _MINUTE
        delays = np.random.default_rng(run).integers(_MINUTE // 2, 3 * _MINUTE // 2, plan.tuples, endpoint=True)
        for name, slid in _all_ways(timestamps, timestamps + delays).items():
            for query, slides in slid.items():
                seconds = np.abs(slides.distances - _SLIDES[query]) / 1000
                errors.setdefault(name, {}).setdefault(query, []).append(float(seconds.mean()))
                lateness.setdefault(name, []).append(float((slides.took_place - slides.meant).mean()) / 1000)
                if run == 0 and name in ("algorithm_2", f"timers_{_ALPHA}"):
                    shown.append({"minutes": _SLIDES[query] // _MINUTE, "way": name, **_columns(slides.distances)})
    table = [
        {
            "way": name,
            "error_3_minutes_s": mean(of[0]),
            "error_5_minutes_s": mean(of[1]),
            "error_s": mean(of[0] + of[1]),
            "late_s": mean(lateness[name]),
        }
        for name, of in errors.items()
    ]
    report.table(tuple(table[0]), [tuple(row.values()) for row in table])
    timers, algorithm_2 = errors[f"timers_{_ALPHA}"], errors["algorithm_2"]
    return {
        "timer_to_algorithm2": mean(timers[0] + timers[1]) / mean(algorithm_2[0] + algorithm_2[1]),
        "timer_to_algorithm2_3_minutes": mean(timers[0]) / mean(algorithm_2[0]),
        "timer_to_algorithm2_5_minutes": mean(timers[1]) / mean(algorithm_2[1]),
        "timer_to_algorithm2_lateness": mean(lateness[f"timers_{_ALPHA}"]) / mean(lateness["algorithm_2"]),
        "alpha": _ALPHA,
        "tuples": plan.tuples,
        "runs": plan.runs,
        "errors": table,
        "tables_1_and_2": sorted(shown, key=lambda row: (row["minutes"], row["way"])),
    }


def _all_ways(timestamps: Times, arrivals: Times) -> dict[str, dict[int, _Slides]]:
    """Tuples are handed on in order: one that was overtaken makes the other wait."""
    in_order = np.maximum.accumulate(arrivals)
    ways = {f"timers_{alpha}": _timers(timestamps, in_order, alpha) for alpha in _ALPHAS}
    return {"algorithm_2": _algorithm_2(timestamps, in_order), **ways}


def _algorithm_2(timestamps: Times, arrivals: Times) -> dict[int, _Slides]:
    """A slide was meant so long after the timestamp that made the last one."""
    algorithm = Arrivals()
    for query, slide in _SLIDES.items():
        algorithm.register(query, slide)
    places, queries = algorithm.candidates(timestamps)
    found = {}
    for query, slide in _SLIDES.items():
        own = places[queries == query]
        found[query] = _Slides(arrivals[own], np.append(timestamps[0], timestamps[own])[:-1] + slide)
    return found


def _timers(timestamps: Times, arrivals: Times, alpha: float) -> dict[int, _Slides]:
    """Slides are meant at the multiples since the first timestamp."""
    timers = SynchronisedTimers(alpha)
    for query, slide in _SLIDES.items():
        timers.register("s", query, slide)
    slid: dict[int, list[int]] = {query: [] for query in _SLIDES}
    for timestamp, now in zip(timestamps.tolist(), arrivals.tolist(), strict=True):
        for time, _, queries in timers.arrive("s", now, timestamp):
            for query in queries:
                slid[query].append(time)
    return {
        query: _Slides(np.array(times), timestamps[0] + _SLIDES[query] * np.arange(1, len(times) + 1))
        for query, times in slid.items()
    }


def _columns(distances: Times) -> dict[str, str]:
    """The first distances as the paper prints them."""
    seconds = [round(distance / 1000) for distance in distances[:_SHOWN].tolist()]
    return {f"slide_{number}": f"{s // 60:02}:{s % 60:02}" for number, s in enumerate(seconds, 1)}
