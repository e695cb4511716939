"""The RS-Algo paper's three cases and two queries: what do windows hold that follow the rate, and what does it cost.

Windows of 10 seconds over 3 minutes of event time (2 in a quick run), pushed in steps of 100 ms: rate sized, of the
fixed count that the fastest stream needs (500 events, 100 in the variable case; the paper's comparison), and of 10
seconds by time (what a match is). The saving is of the configured size, on average from the second window on. Events
of D carry a payload of 1,000 characters for the paper's 50 KB; what is counted is events.

    sampling t3-t2, algorithm t5-t4, resizing t6-t5     measured inside the engine, per event
    wait in the join t7-t6                              event time between the rows of a match
    service t8-t0                                       that, and the work for an event

`overhead` is the paper's: the first three as a part of the service time, the largest of the cases. Most of a service
time is waiting for the other event; `overhead_of_work` is the part of the engine's work alone.

`series` has what the paper draws, of the middle third of a run: how long each match waited, and the windows' sizes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock.generators.rate_sizing import DECLARATIONS, SECOND, STREAMS, WINDOW, Workload, configured_size, q3, q4
from penstock.instruments import SideSizing
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size

CASES = {1: "async", 2: "sync", 3: "variable"}
QUERIES = {"q3": q3, "q4": q4}
_PARTS = ("sampling", "algorithm", "resizing")
_STEP = SECOND // 10
_PAYLOAD = 1000
_DRAWN = 240
_SIZED = "[RATE SIZED 10 SECONDS]"
_SHORT = "[RATE SIZED 10 SECONDS SAMPLE 3 SECONDS EVERY 100 MILLISECONDS]"


@dataclass(frozen=True)
class _Plan:
    seconds: int
    rounds: int


_PLANS = {Size.TINY: _Plan(24, 1), Size.QUICK: _Plan(120, 1), Size.FULL: _Plan(180, 5)}


@dataclass(frozen=True)
class Run:
    """A query over a workload: its matches, the work for an event in seconds, and what was held."""

    matches: set[tuple[Any, ...]]
    events: int
    work: float
    held: dict[str, float]
    sides: list[SideSizing]
    wait: float
    sizes: dict[str, list[list[float]]]
    """By the query and the side: seconds, and the size of the window then."""

    def part(self, name: str) -> float:
        """Seconds per event, on all sides together, for a part of sizing."""
        return float(sum(getattr(side, name) * side.events for side in self.sides)) / self.events

    @property
    def sizing(self) -> float:
        return sum(map(self.part, _PARTS))


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    run(q4(_SIZED), "q4", Workload(3, 25))  # so that everything is compiled
    rows: list[tuple[object, ...]] = []
    savings: dict[str, float] = {}
    lost: dict[str, float] = {}
    figures: dict[str, dict[str, float]] = {}
    middle: dict[str, Any] = {}
    for case, label in CASES.items():
        workload = Workload(case, plan.seconds, payload=_PAYLOAD)
        configured = configured_size(case)
        for name, query in QUERIES.items():
            report.step(f"case {case}-{label}, {name}")
            runs = [run(query(_SIZED), name, workload) for _ in range(plan.rounds)]
            sized = min(runs, key=lambda r: r.work)
            fixed = run(query(f"[ROWS {configured}]"), name, workload)
            timed = run(query("[RANGE 10 SECONDS]"), name, workload)
            key = f"{name}-{label}"
            lost[key] = 1 - len(sized.matches & timed.matches) / len(timed.matches)
            service = sized.wait + sized.work
            figures[key] = {
                "overhead": sized.sizing / service,
                "overhead_of_work": sized.sizing / sized.work,
                **{f"{part}_us": sized.part(part) * 1e6 for part in _PARTS},
                "wait_in_join_s": sized.wait,
                "service_s": service,
                "work_us": sized.work * 1e6,
                "fixed_work_us": fixed.work * 1e6,
                "timed_work_us": timed.work * 1e6,
                "matches": len(sized.matches),
                "matches_fixed": len(fixed.matches),
                "matches_timed": len(timed.matches),
                "matches_lost": lost[key],
                **{f"held_{side}": held for side, held in sized.held.items()},
            }
            middle[key] = {"waits": _waits(sized, plan.seconds), "sizes": sized.sizes}
            savings[key] = 1 - sized.held["r"] / configured
            held = ", ".join(f"{side} {count:,.1f}" for side, count in sized.held.items())
            rows.append(
                (
                    f"{name} {label}",
                    held,
                    configured,
                    f"{savings[key]:.1%}",
                    f"{lost[key]:.2%}",
                    f"{figures[key]['overhead']:.4%}",
                    f"{figures[key]['overhead_of_work']:.1%}",
                    sized.work * 1e6,
                    fixed.work * 1e6,
                )
            )
    short = run(q3(_SHORT), "q3", Workload(3, plan.seconds))
    timed = run(q3("[RANGE 10 SECONDS]"), "q3", Workload(3, plan.seconds))
    short_saving = 1 - short.held["r"] / configured_size(3)
    short_lost = 1 - len(short.matches & timed.matches) / len(timed.matches)
    rows.append(("q3 variable, 3 s samples", "", "", f"{short_saving:.1%}", f"{short_lost:.2%}", *[""] * 4))
    report.table(
        ("", "rows held", "configured", "saving of R", "lost", "overhead", "of work", "work, µs/event", "fixed"), rows
    )
    return {
        "saving_async": savings["q3-async"],
        "saving_variable": savings["q3-variable"],
        "overhead": max(found["overhead"] for found in figures.values()),
        "overhead_of_work": max(found["overhead_of_work"] for found in figures.values()),
        "lost": max(lost.values()),
        "short_samples": {"saving_variable": short_saving, "lost": short_lost},
        "paper": {"saving_async": 0.9798, "saving_variable": 0.5773, "overhead": 0.026},
        "seconds": plan.seconds,
        "rounds": plan.rounds,
        "payload": _PAYLOAD,
        "runs": figures,
        "series": middle,
    }


def run(query: str, name: str, workload: Workload) -> Run:
    read = [stream for stream in STREAMS if name == "q4" or stream != "m"]
    pieces = [(stream, _cut(workload.events(stream), workload)) for stream in read]
    matches: list[pa.RecordBatch] = []
    with App(DECLARATIONS + query) as app:
        app.subscribe(name, matches.append)
        events = sum(piece.num_rows for _, own in pieces for piece in own)
        began = time.perf_counter()
        for step in range(len(pieces[0][1])):
            for stream, own in pieces:
                if own[step].num_rows:
                    app.push(stream, own[step])
        work = time.perf_counter() - began
        app.finish()
        found = app.metrics.rate_sizing
        sides = [side for sized in found.values() for join in sized for side in join.sides.values()]
        last = found.get(name)
        held = _held(app, found)
        sizes = _sizes(app, found, workload)
    times = [c for c in matches[0].schema.names if c.endswith("_time")] if matches else []
    shown = {
        row for b in matches for row in zip(*(b.column(c).cast(pa.int64()).to_pylist() for c in times), strict=True)
    }
    return Run(shown, events, work / events, held, sides, last[0].wait if last else 0.0, sizes)


def _cut(events: pa.RecordBatch, workload: Workload) -> list[pa.RecordBatch]:
    """By the steps in which events arrive."""
    times = events.column("t").cast(pa.int64()).to_numpy() - workload.start
    places = np.searchsorted(times, np.arange(0, workload.seconds * SECOND + 1, _STEP)).tolist()
    return [events.slice(a, b - a) for a, b in pairwise(places)]


def _held(app: App, found: Any) -> dict[str, float]:
    """The rows that each side held on average, from the second window on."""
    held: dict[str, float] = {}
    for query in found:
        sizes = app.sizes(query)
        times = sizes.column("time").cast(pa.int64()).to_numpy()
        for side in dict.fromkeys(sizes.column("side").to_pylist()):
            own = (sizes.column("side").to_numpy() == side) & (times >= times.min() + 2 * WINDOW)
            held.setdefault(side, float(sizes.column("held").to_numpy()[own].mean()))
    return held


def _sizes(app: App, found: Any, workload: Workload) -> dict[str, list[list[float]]]:
    drawn: dict[str, list[list[float]]] = {}
    for query in found:
        sizes = app.sizes(query)
        seconds = (sizes.column("time").cast(pa.int64()).to_numpy() - workload.start) / SECOND
        for side in dict.fromkeys(sizes.column("side").to_pylist()):
            own = (sizes.column("side").to_numpy() == side) & _in_the_middle(seconds, workload.seconds)
            drawn[f"{query}.{side}"] = _thinned(seconds[own], sizes.column("size").to_numpy()[own])
    return drawn


def _waits(sized: Run, seconds: int) -> list[list[float]]:
    """Of each match of two events, when it came about and the seconds between the two."""
    pairs = np.array(sorted(sized.matches, key=max), np.int64).reshape(-1, 2) / SECOND
    came = pairs.max(axis=1)
    own = _in_the_middle(came, seconds)
    return _thinned(came[own], np.abs(pairs[:, 0] - pairs[:, 1])[own])


def _in_the_middle(times: np.ndarray[Any, Any], seconds: int) -> np.ndarray[Any, Any]:
    """The paper's runs are three minutes long, and it draws the second one."""
    inside: np.ndarray[Any, Any] = (times >= seconds / 3) & (times < 2 * seconds / 3)
    return inside


def _thinned(times: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> list[list[float]]:
    """As many as a figure can show."""
    step = max(1, -(-len(times) // _DRAWN))
    pairs = zip(times[::step].tolist(), values[::step].tolist(), strict=True)
    return [[round(time, 3), round(value, 6)] for time, value in pairs]
