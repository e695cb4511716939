"""What the framework itself can do: how fast a driver is, how well it keeps its schedule, what measuring costs.

All runs are real ones, with a driver, the embedded adapter's host and a sink as processes, and a query that lets one
event in a hundred through.

- `events_per_second`, per core: events of a closed loop divided by the CPU seconds that the driver and the host (the
  embedded engine) took together for them, warm-up left out. A core is a CPU second in a second: with a driver and a
  host that keep a core each busy, twice as many events come in a second of the clock. `wall_events_per_second` is the
  rate by the clock.
- `schedule_error`: events at a fixed rate for some seconds; over each whole second of the schedule, the difference
  between the events due in it and those sent in it, relative to those due; the largest. `lag_p99_ms` is how late 99 %
  of the events were sent at most; the linger of 1 ms is part of that.
- `overhead` of measuring: the closed loop with everything measured and logged (every result sampled, every sample
  logged) against the same one without samples and logs, in turns. What differs is the work of the sink; host and driver
  do the same in both, the row that they log for each batch included. So it is the CPU time for an event that the sink
  takes more, as a part of the CPU time that all three take; each in its best round, since other work on the machine
  only adds. `overhead_of_all` compares all three processes instead, and with them the noise of host and driver.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.usage import usage_summary
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup

_HOST, _DRIVER, _SINK = "system", "driver driver-0", "sink sink-0"
"""The processes, as the log of resources names them."""


@dataclass(frozen=True)
class _Plan:
    warm_up: float
    seconds: float
    rounds: int
    rate: int
    rate_seconds: int


_PLANS = {
    Size.TINY: _Plan(0.2, 0.5, 1, 10_000, 1),
    Size.QUICK: _Plan(1, 2, 3, 100_000, 3),
    Size.FULL: _Plan(2, 10, 7, 100_000, 30),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        place = Path(directory)
        report.step(f"{plan.rate:,} events/s for {plan.rate_seconds} s")
        timed = _run(_open(plan), place / "open")
        error, lag_ms = kept(timed, plan.rate_seconds)
        taken: dict[str, list[_Cost]] = {"on": [], "off": []}
        for number in range(plan.rounds):
            for which in ("on", "off") if number % 2 == 0 else ("off", "on"):
                report.step(f"closed loop, measuring {which}")
                taken[which].append(_cost(_run(_closed(plan, which == "on"), place / f"{which}-{number}")))
    on, off = taken["on"], taken["off"]
    report.table(
        ("measuring", "events/s", "events/s per core", "CPU ns per event, with the sink"),
        [
            (which, median(c.rate for c in costs), median(c.per_core for c in costs), _least(costs))
            for which, costs in taken.items()
        ],
    )
    report.table(("schedule error", "p99 lag ms"), [(error, lag_ms)])
    return {
        "events_per_second": median(cost.per_core for cost in on),
        "wall_events_per_second": median(cost.rate for cost in on),
        "schedule_error": error,
        "lag_p99_ms": lag_ms,
        "overhead": (_least(on, _SINK) - _least(off, _SINK)) / _least(off),
        "overhead_of_all": _least(on) / _least(off) - 1,
        "rate": plan.rate,
        "seconds": plan.seconds,
        "rounds": plan.rounds,
    }


@dataclass(frozen=True)
class _Cost:
    rate: float
    """Events a second of the clock."""
    per_core: float
    """Events per CPU second of driver and host."""
    cpu_ns: dict[str, float]
    """CPU nanoseconds per event, of each process."""


def _cost(measures: Measures) -> _Cost:
    used = usage_summary(measures)
    rate = measures.throughput.events_per_second
    cores = {name: figures["cpu_share"] for name, figures in used.items()}
    both = cores[_HOST] + cores[_DRIVER]
    return _Cost(rate, rate / both, {name: share / rate * 1e9 for name, share in cores.items()})


def _least(costs: list[_Cost], *names: str) -> float:
    """CPU nanoseconds per event of these processes, or of all, each in its best round."""
    return sum(min(cost.cpu_ns[name] for cost in costs) for name in names or costs[0].cpu_ns)


def kept(measures: Measures, seconds: int) -> tuple[float, float]:
    """The largest relative difference over a second, and the 99th percentile of the events' lag in milliseconds."""
    causes = measures.causes
    rows = causes.measured
    first, last, events = causes.first_us[rows], causes.last_us[rows], causes.events[rows]
    sent_us = causes.sent_ns[rows] / 1000
    begin = float(first.min())
    # Events of a batch are evenly spaced: this load is deterministic.
    due = np.concatenate([np.linspace(a, b, n) for a, b, n in zip(first, last, events, strict=True)])
    sent = np.repeat(sent_us, events)
    bounds = begin + np.arange(seconds + 1) * 1e6
    due_in, sent_in = np.histogram(due, bounds)[0], np.histogram(sent, bounds)[0]
    error = float(np.max(np.abs(sent_in - due_in) / due_in))
    return error, float(np.quantile(sent - due, 0.99)) / 1000


def _run(setup: Setup, directory: Path) -> Measures:
    controller = Controller(setup, directory)
    controller.start()
    controller.result()
    return Measures(directory)


def _open(plan: _Plan) -> Setup:
    # The engine loads its kernels with the first events; until then they wait, and at last the driver does.
    phases: list[dict[str, Any]] = [
        {"name": "warm-up", "rate": plan.rate, "duration": 2 * plan.warm_up, "measured": False},
        {"rate": plan.rate, "duration": plan.rate_seconds},
    ]
    return _setup(phases, {})


def _closed(plan: _Plan, measured: bool) -> Setup:
    closed = {"rate": "max", "event_rate": 1_000_000}
    phases: list[dict[str, Any]] = [
        {"name": "warm-up", "duration": plan.warm_up, "measured": False, **closed},
        {"duration": plan.seconds, **closed},
    ]
    # CPU time is looked at often, in both alike: it is what is compared, and the looks are the controller's.
    return _setup(phases, {"sample": float(measured), "log": measured, "resources": 0.1})


def _setup(phases: list[dict[str, Any]], measuring: dict[str, Any]) -> Setup:
    return parse_setup(
        {
            "name": "driver",
            "streams": {"s": {"columns": {"id": "INT", "a1": "DOUBLE", "ts": "TIMESTAMP"}}},
            "drivers": [
                {
                    "name": "driver",
                    "fields": {
                        "s": {
                            "id": {"generator": "uniform", "min": 1, "max": 100},
                            "a1": {"generator": "uniform", "min": 0, "max": 1},
                        }
                    },
                    "phases": phases,
                }
            ],
            "queries": {"q": {"text": {"penstock": "SELECT id, a1, ts FROM s WHERE id = 1"}}},
            "measuring": measuring,
        }
    )
