"""Pairs, the thesis' own benchmark: which scale factor is sustained, with which p_score, beside Esper on the same load.

A run is sustained if the last tick is worked off at most 1 % of the stretch after it was due, and the 99th percentile
of the latency of MarketOrders is below a second. The scale factors of a ladder are tried upwards until one is not
sustained; if the first one is not, lower ones are. Esper climbs the same ladder until it fails or its score drops.
All answers of the run with the highest scale factor, history included, are compared with the validator's.

The quick run shortens the phases as `pairs_load` says. The full one searches with stretches of two minutes, and then
makes the thesis' run of two hours at the scale factor that was found, and Esper's at its best one.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError, PenstockError
from penstock_bench.benches import pairs_load
from penstock_bench.benches.pairs_load import Load, Phases, ShortMarket, prepared
from penstock_bench.benches.pairs_systems import EsperSystem
from penstock_bench.benches.pairs_trial import Stage, Trial, TrialError
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.workloads.pairs.answers import compared
from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.rates import AFTER, BEFORE, HALF_OF_MEASUREMENT, RAMP_UP
from penstock_bench.workloads.pairs.validator import Answers, expected_answers

OURS, ESPER = "penstock", "esper"
_WHOLE_RUN = Phases(0, RAMP_UP + BEFORE, 2 * HALF_OF_MEASUREMENT, AFTER)
_BINS = 40
_NEXT_RUNG = 2.6
"""How much longer the next rung may take than the one before, its validation included."""


@dataclass(frozen=True)
class Plan:
    """`ladder` are scale factors upwards, `below` those that are tried if the first one is too much. A further one is
    begun if there is time for it until `seconds`. There is no time for a run of Esper above `esper_up_to`."""

    phases: Phases
    ladder: tuple[int, ...]
    below: tuple[int, ...]
    systems: tuple[str, ...]
    seconds: float
    esper_up_to: float = math.inf
    whole_run: bool = False


PLANS = {
    Size.TINY: Plan(Phases(299, 0.5, 1, 0.1), (2,), (), (OURS,), 60),
    # At a boundary of 60 seconds periods of every length end. After 900 seconds the windows of 94 % of the strategies
    # are full, after 1,800 those of all.
    # Esper sustains SF 2,000 on a quiet machine, and SF 1,500 on most. At SF 3,000, tried once on a busy machine, it
    # was late by more than the stretch, and the run took a minute and a half.
    Size.QUICK: Plan(Phases(893, 1.5, 6.5, 0.5), (2000, 5000), (1500, 500, 20), (OURS, ESPER), 115, esper_up_to=2500),
    Size.FULL: Plan(
        Phases(1770, 15, 120, 5),
        (100, 500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000),
        (50, 20, 10, 5, 1),
        (OURS, ESPER),
        4 * 3600,
        whole_run=True,
    ),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _with_those_there(PLANS[size], report)
    with tempfile.TemporaryDirectory(prefix="penstock-pairs-") as directory, Stage() as stage:
        bench = _Bench(plan, report, stage, Path(directory))
        found = bench.climbed()
        best = {system: _best(system, trials) for system, trials in found.items() if trials}
        if OURS not in best:
            raise PenstockError("pairs: no run of Penstock came to its end; the lines above say why")
        if plan.whole_run:
            best = {system: bench.whole(system, trial) for system, trial in best.items()}
        wrong = {system: bench.wrong(trial) for system, trial in best.items()}
    ours = best[OURS]
    figures = {
        "sf": ours.scale_factor if ours.sustained else 0,
        "p_score": ours.score,
        "wrong": wrong[OURS],
        **_latencies(ours),
        "strategies": ours.strategies,
        "ticks_per_second": ours.ticks_per_second,
        "cpu": ours.cpu,
        "phases": pairs_load.described(plan.phases) if not plan.whole_run else "the thesis' two hours",
    }
    if ESPER in best:
        theirs = best[ESPER]
        figures |= {
            "to_esper": ours.score / theirs.score if theirs.score else 0.0,
            "esper_sf": theirs.scale_factor,
            "esper_p_score": theirs.score,
            "esper_wrong": wrong[ESPER],
            **{f"esper_{name}": value for name, value in _latencies(theirs).items()},
        }
    report.table(
        ("system", "SF", "strategies", "ticks/s", "p50 ms", "p99 ms", "max ms", "p_score", "cores", "sustained"),
        [_row(trial) for trials in found.values() for trial in trials],
    )
    figures["series"] = {
        "by_sf": {system: [_point(trial) for trial in trials] for system, trials in found.items()},
        "histogram": {system: _histogram(trial) for system, trial in best.items()},
    }
    return figures


class _Bench:
    def __init__(self, plan: Plan, report: Report, stage: Stage, directory: Path) -> None:
        self._plan = plan
        self._report = report
        self._stage = stage
        self._directory = directory
        self._began = time.monotonic()
        self._loads: dict[tuple[int, Phases], Load] = {}
        self._expected: dict[Path, Answers] = {}
        self._making = 0.0
        """How long it took to make the last load."""
        self._lasted: dict[str, float] = {}
        """How long the last run of each system took."""

    def climbed(self) -> dict[str, list[Trial]]:
        """The trials of each system. At each rung of the ladder the systems take turns; one that fails, or another one
        than ours whose score drops, goes no further. One that sustained nothing goes down instead."""
        trials: dict[str, list[Trial]] = {system: [] for system in self._plan.systems}
        climbing = list(self._plan.systems)
        before = 0
        for scale_factor in self._plan.ladder:
            if before:
                climbing = [system for system in climbing if _goes_on(system, trials[system], before)]
            if scale_factor > self._plan.esper_up_to:
                climbing = [system for system in climbing if system != ESPER]
            lasted = self._making + sum(self._lasted.get(system, 0.0) for system in climbing)
            if not climbing or time.monotonic() - self._began + _NEXT_RUNG * lasted > self._plan.seconds:
                break
            self._try_all(climbing, scale_factor, trials)
            before = scale_factor
        for scale_factor in self._plan.below:
            fallen = [system for system, made in trials.items() if not any(trial.sustained for trial in made)]
            self._try_all(fallen, scale_factor, trials)
        return trials

    def _try_all(self, systems: list[str], scale_factor: int, trials: dict[str, list[Trial]]) -> None:
        load = self._load(scale_factor, self._plan.phases) if systems else None
        for system in systems:
            # All get ready at once; what has its turn then meets none of the others at work.
            self._stage.ask(system, self._load(scale_factor, self._plan.phases))
        failed: set[str] = set()
        for system in systems:
            assert load is not None
            while system not in failed:
                try:
                    self._stage.wait_for(other for other in systems if other not in failed)
                    trials[system].append(self._tried(system, load))
                    break
                except TrialError as error:  # the processes of the others have ended with it, and begin anew
                    gave_up = error.system if error.system in systems else system
                    self._report.step(f"{gave_up}: SF {scale_factor}: {error}")
                    failed.add(gave_up)

    def whole(self, system: str, trial: Trial) -> Trial:
        return self._tried(system, self._load(trial.scale_factor, _WHOLE_RUN))

    def wrong(self, trial: Trial) -> int:
        """How many answers the validator has something to say about."""
        load = self._load(trial.scale_factor, trial.phases)
        if load.directory not in self._expected:
            self._report.step(f"validating {trial.strategies:,} strategies at SF {trial.scale_factor}")
            names = load.market.symbols
            self._expected[load.directory] = expected_answers(load.market.ticks(), lambda: names, load.strategies)
        return compared(self._expected[load.directory], trial.answers).bad_answers

    def _tried(self, system: str, load: Load) -> Trial:
        self._report.step(f"{system}: SF {load.scale_factor}, {len(load.strategies):,} strategies")
        begun = time.monotonic()
        trial = self._stage.run(system, load)
        self._lasted[system] = time.monotonic() - begun
        self._report.step(
            f"{system}: SF {load.scale_factor}: p99 {trial.p99 * 1e3:.1f} ms, p_score {trial.score:,.0f}"
            + ("" if trial.sustained else ", not sustained")
        )
        return trial

    def _load(self, scale_factor: int, phases: Phases) -> Load:
        key = (scale_factor, phases)
        if key not in self._loads:
            self._report.step(f"making the ticks of SF {scale_factor}")
            begun = time.monotonic()
            if phases is _WHOLE_RUN:
                market = Market(MarketSettings(scale_factor=scale_factor))
            else:
                market = Market(ShortMarket(scale_factor=scale_factor, phases=phases))
            self._loads[key] = prepared(market, phases, self._directory / str(len(self._loads)))
            self._making = time.monotonic() - begun
        return self._loads[key]


def _with_those_there(plan: Plan, report: Report) -> Plan:
    """Without Esper where something that it needs is missing."""
    if ESPER in plan.systems:
        try:
            EsperSystem.check()
        except InputError as error:
            report.step(f"Esper is left out: {error}")
            return replace(plan, systems=(OURS,))
    return plan


def _goes_on(system: str, trials: list[Trial], scale_factor: int) -> bool:
    if not trials or trials[-1].scale_factor != scale_factor or not trials[-1].sustained:
        return False
    return system == OURS or len(trials) < 2 or trials[-1].score > trials[-2].score


def _best(system: str, trials: list[Trial]) -> Trial:
    """Ours is the highest scale factor that was sustained, another system's the best score."""
    sustained = [trial for trial in trials if trial.sustained] or trials
    return max(sustained, key=lambda trial: trial.scale_factor if system == OURS else trial.score)


def _latencies(trial: Trial) -> dict[str, float]:
    known = trial.statistics
    return {"p50_ms": known.p50 / 1e6, "p99_ms": known.p99 / 1e6, "max_ms": known.max / 1e6, "orders": known.count}


def _row(trial: Trial) -> tuple[object, ...]:
    known = _latencies(trial)
    times = (known["p50_ms"], known["p99_ms"], known["max_ms"])
    first = (trial.system, trial.scale_factor, trial.strategies, trial.ticks_per_second)
    return (*first, *times, trial.score, trial.cpu, "yes" if trial.sustained else "no")


def _point(trial: Trial) -> dict[str, Any]:
    shown = {"sf": trial.scale_factor, "p_score": trial.score, "sustained": trial.sustained, "cpu": trial.cpu}
    return {**shown, **_latencies(trial)}


def _histogram(trial: Trial) -> dict[str, list[float]]:
    """How many orders had which latency, on a logarithmic scale of milliseconds."""
    if not len(trial.latencies):
        return {"edges_ms": [], "orders": []}
    counts, edges = np.histogram(np.log10(trial.latencies / 1e6), bins=_BINS)
    return {"edges_ms": (10**edges).tolist(), "orders": counts.astype(float).tolist()}
