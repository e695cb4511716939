"""The four measures of thesis 4.5.5 on runs whose latencies are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_bench.measure.results.adaptivity import adaptivity
from penstock_bench.measure.results.measures import Measures

from .handmade import MS, Handmade, setup

PHASES = [
    {"name": "warm-up", "duration": 1, "rate": 1000, "measured": False},
    {"name": "steady", "duration": 5, "rate": 1000},
    {"name": "peak", "duration": 1, "rate": 1500},
    {"name": "recovery", "duration": 5, "rate": 1000},
]
BEGINS = (0, 1, 6, 7, 12)


def run_with(path: Path, latency_ms: dict[str, list[float]]) -> Measures:
    """One batch a second; the results of a second's last event take so long, those of the phases in order."""
    run = Handmade(path, setup(PHASES))
    sent, taken = [], []
    for number, phase in enumerate(PHASES):
        for second in range(BEGINS[number], BEGINS[number + 1]):
            last_us = (second + 1) * 1_000_000
            sent.append(("s", number, last_us - 999_000, last_us, 1000, last_us / 1000, last_us / 1000, last_us / 1000))
            latency = latency_ms[str(phase["name"])][second - BEGINS[number]]
            taken.append(("q", last_us, last_us / 1000 + latency, last_us / 1000 + latency))
    run.sent(sent).taken(taken)
    return Measures(run.path)


def test_a_burst_and_its_end(tmp_path: Path) -> None:
    measures = run_with(
        tmp_path / "run",
        {
            # The warm-up is slow, and nobody cares.
            "warm-up": [9000],
            "steady": [10, 20, 30, 20, 20],
            "peak": [900],
            # The first result no longer than 20 ms is that of the third second.
            "recovery": [1200, 500, 19, 25, 28],
        },
    )
    burst = adaptivity(measures)
    assert burst is not None
    figures = burst["q"]
    assert figures.max_peak_latency_ns == 1200 * MS
    assert figures.degradation_ratio == pytest.approx(900 / 30)
    # From the last event of the peak, at 7 s, to the result at 10 s + 19 ms.
    assert figures.recovery_s == pytest.approx(3.019)
    assert figures.variation_ratio == pytest.approx((19 + 25 + 28) / 3 / 20)
    assert figures.recovered


def test_never_recovered(tmp_path: Path) -> None:
    measures = run_with(
        tmp_path / "run",
        {"warm-up": [1], "steady": [10] * 5, "peak": [400], "recovery": [800, 700, 600, 500, 11]},
    )
    burst = adaptivity(measures)
    assert burst is not None
    assert burst["q"].recovery_s is None
    assert burst["q"].variation_ratio is None
    assert burst["q"].to_json()["recovered"] is False
    assert burst["q"].max_peak_latency_ns == 800 * MS


def test_results_that_came_before_the_peak_ended_are_no_recovery(tmp_path: Path) -> None:
    # The peak's own event is quick, but its result is not after the peak.
    measures = run_with(
        tmp_path / "run", {"warm-up": [1], "steady": [10] * 5, "peak": [0], "recovery": [50, 5, 10, 10, 10]}
    )
    burst = adaptivity(measures)
    assert burst is not None
    assert burst["q"].recovery_s == pytest.approx(2.005)


def test_a_run_without_such_phases(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup()).sent([("s", 0, 0, 9000, 10, 9, 10, 11)]).taken([("q", 0, 1, 1)])
    assert adaptivity(Measures(run.path)) is None


def test_a_run_that_ended_before_the_peak(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup(PHASES)).sent([("s", 1, 0, 9000, 10, 9, 10, 11)]).taken([("q", 0, 1, 1)])
    assert adaptivity(Measures(run.path)) is None
