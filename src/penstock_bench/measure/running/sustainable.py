"""The highest rate that a system sustains: trials at constant rates, doubled until one fails, then bisected.

A trial is an open loop: a warm-up in which the rate rises, and then a measured phase at a constant rate. It is
sustained if

1. the drivers keep their schedule: in the last third of the trial no event is sent much later than it was due. Before
   that they may be working off what was left of the warm-up, when systems load and compile their parts;
2. nothing piles up: how long after its due time an event was taken by the system, and a result came, does not grow
   while the trial goes on. If a system does c events a second and r are due, that delay grows by 1 - c/r seconds in a
   second; a growth of more than `GROWTH` is taken for overload;
3. the 99th percentile of every query's latency, from the scheduled time, is within the limit, if one is given.

Callers: `penstock bench sustainable`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import InputError, PenstockError
from penstock_bench.measure.load.pacing import LATE_US
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.running.sweep import Perform
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Driver, LatencyMode, Phase, Setup

SUSTAINABLE = "sustainable.json"
"""What the search found, in its directory."""

GROWTH = 0.02
"""Seconds of delay that may be added in a second."""
NOISE_NS = 20_000_000
"""Growth over a whole trial that is never taken for overload: a pause of a collector, a look at the disk."""
PRECISION = 1.05
_WARM_UP_US = 2_000_000
HIGHEST = 1e9
LOWEST = 1.0

Read = Callable[[dict[str, Scalar]], Setup]
"""The setup with some parameters given."""


@dataclass(frozen=True)
class Trial:
    rate: float
    sustained: bool
    why: str
    """What speaks against it; empty if it was sustained."""
    events_per_second: float = 0.0
    lag_ms: float = 0.0
    """The largest in the last third."""
    growth: float = 0.0
    """Of the delay, in seconds a second."""
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None


def trial_setup(setup: Setup, rate: float | None, trial_us: int) -> Setup:
    """The setup as an open loop at a constant rate in all: a warm-up of half the trial's length, then the trial. None
    leaves the rates as they are."""
    loads = {driver.name: _load(driver) for driver in setup.drivers}
    own = {name: phase.rate for name, phase in loads.items() if isinstance(phase.rate, (int, float))}
    drivers = []
    for driver in setup.drivers:
        load = loads[driver.name]
        if rate is None:
            if driver.name not in own:
                raise InputError(f"drivers.{driver.name}: its rate is 'max'; there is no rate to search for")
            part = own[driver.name]
        elif len(own) == len(loads) and sum(own.values()) > 0:
            part = rate * own[driver.name] / sum(own.values())
        else:
            part = rate / len(loads)
        steady = {"duration": trial_us, "events": None, "rate": part, "end_rate": None, "event_rate": None}
        rising = {"rate": part / 100, "end_rate": part, "duration": max(trial_us // 2, _WARM_UP_US)}
        warm = load.model_copy(update={**steady, **rising, "name": "warm-up", "measured": False})
        trial = load.model_copy(update={**steady, "name": "trial", "measured": True})
        drivers.append(driver.model_copy(update={"phases": (warm, trial)}))
    measuring = setup.measuring.model_copy(update={"latency": LatencyMode.SCHEDULED, "log": True})
    return setup.model_copy(update={"drivers": tuple(drivers), "measuring": measuring})


def _load(driver: Driver) -> Phase:
    measured = [phase for phase in driver.phases if phase.measured]
    if not measured:
        raise InputError(f"drivers.{driver.name}: needs a measured phase: a replay has no rate to search for")
    return measured[0]


def searched_parameter(setup: Setup, named: str | None) -> str | None:
    """The parameter that is searched for; None if rates are set whatever the setup says. By default it is `rate` where
    a phase's rate is made of it."""
    if named is not None:
        if named not in setup.parameters:
            known = ", ".join(setup.parameters) or "none"
            raise InputError(f"there is no parameter '{named}'; the setup has {known}")
        return named
    paced = all(_load(driver).rate != "max" for driver in setup.drivers)
    return "rate" if paced and "rate" in setup.parameters else None


class Search:
    """Tries one rate after the other; `trials` are in the order of trying."""

    def __init__(
        self,
        read: Read,
        directory: Path,
        *,
        parameter: str | None = None,
        latency_limit_us: int | None = None,
        trial_us: int = 10_000_000,
        start: float | None = None,
    ) -> None:
        self._read = read
        self._directory = directory
        setup = read({})
        self._parameter = searched_parameter(setup, parameter)
        self._limit_us = latency_limit_us
        self._trial_us = trial_us
        self._start = start or self._begin(setup)
        self._stopped = False
        self.trials: list[Trial] = []

    def _begin(self, setup: Setup) -> float:
        value = setup.parameters.get(self._parameter, 10_000) if self._parameter else 10_000
        if isinstance(value, (bool, str)) or value <= 0:
            raise InputError(f"parameters.{self._parameter} = {value}: is no rate to begin with")
        return float(value)

    def run(self, perform: Perform, told: Callable[[Trial], None] = lambda _: None) -> dict[str, Any]:
        """Searches; `told` hears of every trial. The answer says what was found, also if it was stopped early."""
        for rate in rates(self._start, self.trials):
            trial = self._try(rate, perform)
            if trial is None:
                break
            self.trials.append(trial)
            told(trial)
        held = [trial.rate for trial in self.trials if trial.sustained]
        setup = self._read({})
        answer = {
            "setup": setup.name,
            "adapter": setup.system.adapter,
            "parameter": self._parameter,
            "sustainable": max(held) if held else None,
            "trial_seconds": self._trial_us / 1e6,
            "latency_limit_ms": None if self._limit_us is None else self._limit_us / 1000,
            "complete": not self._stopped,
            "trials": [asdict(trial) for trial in self.trials],
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f"{SUSTAINABLE}.new"
        unfinished.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self._directory / SUSTAINABLE)
        return answer

    def _try(self, rate: float, perform: Perform) -> Trial | None:
        """None if it was stopped."""
        if self._parameter is not None:
            declared = self._read({}).parameters[self._parameter]
            value: Scalar = round(rate) if isinstance(declared, int) else rate
            setup = trial_setup(self._read({self._parameter: value}), None, self._trial_us)
        else:
            setup = trial_setup(self._read({}), rate, self._trial_us)
        directory = self._directory / f"trial-{len(self.trials) + 1:02}-rate-{rate:.6g}"
        controller = Controller(setup, directory)
        try:
            controller.start()
            goes_on = perform(controller)
            summary = controller.result()
        except PenstockError as error:
            if not controller.too_slow and not any(trial.sustained for trial in self.trials):
                raise  # the system does not run at all: no rate will help
            return Trial(rate, False, f"the run failed: {str(error).splitlines()[0]}")
        if not goes_on or summary.get("state") == "stopped":
            self._stopped = True
            return None
        return judge(rate, directory, self._limit_us)


def rates(start: float, trials: list[Trial]) -> Iterator[float]:
    """The next rate to try, by what the trials so far have shown: doubling (or halving, if the first one failed), then
    the geometric middle of the highest sustained and the lowest that was not, until they are within 5 %."""
    yield start
    while trials:
        held = max((trial.rate for trial in trials if trial.sustained), default=0.0)
        failed = min((trial.rate for trial in trials if not trial.sustained), default=math.inf)
        # A rate below a sustained one may fail by mischance: the search goes on between where they cross.
        if held >= failed:
            held = max((t.rate for t in trials if t.sustained and t.rate < failed), default=0.0)
        if math.isinf(failed):
            following = held * 2
        elif held == 0:
            following = failed / 2
        elif failed / held <= PRECISION:
            return
        else:
            following = math.sqrt(held * failed)
        if not LOWEST <= following <= HIGHEST:
            return
        yield following


def judge(rate: float, directory: Path, limit_us: int | None) -> Trial:
    """Whether a trial's run was sustained, from its logs."""
    measures = Measures(directory)
    lag_us = late_at_the_end(measures)
    delays = dict(_delays(measures))
    growth = {name: slope(*points) for name, points in delays.items()}
    worst = max(growth, key=lambda name: growth[name], default=None)
    overall = measures.latency_overall
    p99 = {query: figures.p99 for query, figures in measures.latency.items() if figures.count}
    why = ""
    if worst is None:
        why = "no event was sent"
    elif lag_us > LATE_US + measures.setup.measuring.linger:
        why = f"at the end events are sent up to {lag_us / 1000:,.0f} ms after they were due"
    elif growth[worst] > GROWTH:
        why = f"{worst} falls behind by {growth[worst]:.3f} s a second"
    elif limit_us is not None:
        slow = {query: value for query, value in p99.items() if value > limit_us * 1000}
        if slow:
            query = max(slow, key=lambda name: slow[name])
            why = f"the 99th percentile of {query} is {slow[query] / 1e6:,.1f} ms"
        elif not p99:
            why = "there are no results whose latency could be within the limit"
    return Trial(
        rate,
        not why,
        why,
        measures.throughput.events_per_second,
        lag_us / 1000,
        growth[worst] if worst is not None else 0.0,
        overall.p50 / 1e6 if overall.count else None,
        overall.p99 / 1e6 if overall.count else None,
    )


def late_at_the_end(measures: Measures) -> float:
    """The largest lag in the last third of the trial, in microseconds."""
    causes = measures.causes
    rows = causes.measured
    if not rows.any():
        return 0.0
    due_ns, lag_us = causes.due_ns[rows], causes.sent_ns[rows] / 1000 - causes.first_us[rows]
    return float(lag_us[due_ns >= due_ns.max() - (due_ns.max() - due_ns.min()) / 3].max())


Points = tuple[NDArray[np.float64], NDArray[np.float64]]


def _delays(measures: Measures) -> Iterator[tuple[str, Points]]:
    """How late things are, over the time at which they were due, in nanoseconds: sends, batches taken, results."""
    causes = measures.causes
    rows = causes.measured
    yield "the driver", (causes.due_ns[rows].astype(float), (causes.sent_ns - causes.due_ns)[rows].astype(float))
    host = measures.logs.host
    if len(host.last_us) and rows.any():
        due = host.last_us * 1000.0
        inside = due >= causes.due_ns[rows].min()
        yield "the system", (due[inside], host.done_ns[inside] - due[inside])
    for query, samples in measures.samples.items():
        mine = samples.measured
        received, latency = samples.received_ns[mine].astype(float), samples.latency_ns[mine].astype(float)
        yield query, (received - latency, latency)


def slope(due_ns: NDArray[np.float64], delay_ns: NDArray[np.float64]) -> float:
    """How much the delay grows, in seconds a second: from the median of the first third of the time to that of the
    last. Medians do not mind a single hiccup, as a line through all points does."""
    if len(due_ns) < 2 or due_ns.max() == due_ns.min():
        return 0.0
    begin, end = float(due_ns.min()), float(due_ns.max())
    third = (end - begin) / 3
    first, last = delay_ns[due_ns <= begin + third], delay_ns[due_ns >= end - third]
    grown = float(np.median(last) - np.median(first))
    return grown / (2 * third) if grown > NOISE_NS else 0.0
