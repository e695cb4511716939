"""The harness of Pairs: what is sent when, which runs count as sustained, and which run is the best one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock_bench.benches import pairs
from penstock_bench.benches.pairs_load import FRAMES, SCHEDULE, Phases, ShortMarket, prepared
from penstock_bench.benches.pairs_systems import STREAMS
from penstock_bench.benches.pairs_trial import Trial
from penstock_bench.workloads.pairs.market import Market
from penstock_bench.workloads.pairs.validator import Answers

PHASES = Phases(20, 0.5, 1, 0.5)


def trial(scale_factor: int, latency_ms: float, *, system: str = pairs.OURS, lateness: float = 0.0) -> Trial:
    return Trial(
        system=system,
        phases=PHASES,
        scale_factor=scale_factor,
        strategies=25 * scale_factor,
        ticks_per_second=7500.0,
        latencies=np.full(10, round(latency_ms * 1e6), np.int64),
        lateness=lateness,
        latest_send=0.0,
        cpu=0.5,
        pushes=1,
        answers=Answers(*(schema.empty_table() for schema in STREAMS.values())),
    )


def test_history_is_thin_and_the_stretch_has_the_rates_of_the_benchmark() -> None:
    market = Market(ShortMarket(scale_factor=1, phases=PHASES))
    times = np.concatenate([ticks.tick_ts for ticks in market.ticks()])
    history = np.count_nonzero(times < 20_000)
    assert history == pytest.approx(0.25 * 100 * 20, rel=0.2)
    assert len(times) - history == pytest.approx(5000 + 6250, rel=0.05)
    assert times[-1] < 22_000


def test_frames_of_a_millisecond_are_due_in_it(tmp_path: Path) -> None:
    market = Market(ShortMarket(scale_factor=1, phases=PHASES))
    load = prepared(market, PHASES, tmp_path)
    schedule = np.load(tmp_path / SCHEDULE)
    ends, dues = schedule[:, 0], schedule[:, 1]
    assert ends[-1] == (tmp_path / FRAMES).stat().st_size
    assert (np.diff(ends) > 0).all()
    stretch = dues[dues >= 0]
    assert (np.diff(stretch) >= 0).all()
    assert stretch[0] >= 0
    assert stretch[-1] < 2000
    assert len(load.strategies) == 25


def test_a_run_is_sustained_if_it_ends_in_time_and_orders_come_within_a_second() -> None:
    assert trial(10, 900).sustained
    assert not trial(10, 1000).sustained
    assert trial(10, 5, lateness=0.02).sustained
    assert not trial(10, 5, lateness=0.021).sustained


def test_ours_is_the_highest_scale_factor_and_the_others_best_is_their_score() -> None:
    trials = [trial(10, 5), trial(100, 900), trial(200, 2000)]
    assert pairs._best(pairs.OURS, trials).scale_factor == 100
    assert pairs._best(pairs.ESPER, trials).scale_factor == 10


def test_another_system_goes_no_further_when_its_score_drops() -> None:
    trials = [trial(10, 5), trial(100, 900)]
    assert pairs._goes_on(pairs.OURS, trials, 100)
    assert not pairs._goes_on(pairs.ESPER, trials, 100)
    assert not pairs._goes_on(pairs.OURS, trials, 200)
