"""Scheduled times against the statistics of their processes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_bench.measure.load.arrivals import Schedule, Times
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Phase


def phase(**about: object) -> Phase:
    return Phase.model_validate({"rate": 1000, **about})


def times_of(about: Phase, share: Share | None = None, cuts: list[int] | None = None) -> Times:
    schedule = Schedule(about, 0, share or Share())
    pieces = [schedule.take(count) for count in cuts or ()]
    while len(piece := schedule.take(8192)):
        pieces.append(piece)
    assert not len(schedule.take(10))
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def share(copy: int, copies: int) -> Share:
    return Share(copy, copies, copy, copies)


PROCESSES = [
    {"rate": 20_000},
    {"rate": 0, "end_rate": 40_000},
    {"rate": 30_000, "end_rate": 10_000},
    {"rate": 40_000, "end_rate": 0},
]


@pytest.mark.parametrize("arrivals", ["deterministic", "poisson"])
@pytest.mark.parametrize("rates", PROCESSES, ids=str)
def test_rate_is_within_a_percent(arrivals: str, rates: dict[str, float]) -> None:
    """Over the whole, and over each quarter by the integral of the rate."""
    about = phase(**rates, duration=20, arrivals=arrivals, seed=3)
    times = times_of(about)
    low, high = rates["rate"], rates.get("end_rate", rates["rate"])
    assert len(times) == pytest.approx(400_000, rel=0.01)
    assert times[0] >= 0
    assert times[-1] < 20_000_000
    for quarter in range(4):
        begin, end = quarter * 5, (quarter + 1) * 5
        expected = low * 5 + (high - low) / 20 * (end**2 - begin**2) / 2
        found = np.searchsorted(times, end * 1_000_000) - np.searchsorted(times, begin * 1_000_000)
        # The first quarter of a ramp from zero has few events: chance alone moves them by more than a percent.
        assert found == pytest.approx(expected, abs=max(0.01 * expected, 4 * math.sqrt(expected)))


def test_deterministic_events_are_evenly_spaced() -> None:
    assert times_of(phase(rate=4, duration=1)).tolist() == [0, 250_000, 500_000, 750_000]
    assert times_of(phase(rate=1_000_000, events=5)).tolist() == [0, 1, 2, 3, 4]
    assert times_of(phase(rate=3, duration=1)).tolist() == [0, 333_333, 666_666]


def test_rate_zero_is_a_rest() -> None:
    assert len(times_of(phase(rate=0, duration=5))) == 0
    assert len(times_of(phase(rate=0, duration=5, arrivals="poisson"))) == 0


def kolmogorov_smirnov(sample: np.ndarray, below: np.ndarray) -> float:
    """sqrt(n) times the largest distance between the sample's distribution and `below`, its values of the other's."""
    n = len(sample)
    return math.sqrt(n) * max(np.max(np.arange(1, n + 1) / n - below), np.max(below - np.arange(n) / n))


CRITICAL = 1.63
"""Of Kolmogorov's distribution at 1 %."""


@pytest.mark.parametrize("seed", range(3))
def test_poisson_gaps_are_exponential(seed: int) -> None:
    times = times_of(phase(rate=100, events=20_000, arrivals="poisson", seed=seed))
    gaps = np.sort(np.diff(times) / 1e6)
    assert kolmogorov_smirnov(gaps, 1 - np.exp(-100 * gaps)) < CRITICAL
    even = np.sort(np.diff(times_of(phase(rate=100, events=20_000))) / 1e6)
    assert kolmogorov_smirnov(even, 1 - np.exp(-100 * even)) > CRITICAL


def test_poisson_on_a_ramp_is_even_by_the_integral_of_its_rate() -> None:
    """Given their number, the arrivals' R(t)/R(T) are spread evenly."""
    times = times_of(phase(rate=100, end_rate=2000, duration=20, arrivals="poisson", seed=5)) / 1e6
    integral = 100 * times + 95 * times**2 / 2
    spread = integral / (100 * 20 + 95 * 200)
    assert kolmogorov_smirnov(spread, spread) < CRITICAL
    gaps = np.sort(np.diff(integral))
    assert kolmogorov_smirnov(gaps, 1 - np.exp(-gaps)) < CRITICAL


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 3000), max_size=8),
    seed=st.integers(-5, 5),
    arrivals=st.sampled_from(["deterministic", "poisson"]),
    rates=st.sampled_from(PROCESSES),
    copies=st.integers(1, 3),
)
def test_the_same_whatever_the_cuts(
    cuts: list[int], seed: int, arrivals: str, rates: dict[str, float], copies: int
) -> None:
    about = phase(**rates, duration=0.2, arrivals=arrivals, seed=seed)
    mine = share(copies - 1, copies)
    whole = times_of(about, mine)
    assert np.array_equal(whole, times_of(about, mine, cuts))
    assert np.all(np.diff(whole) >= 0)
    assert np.all(whole % copies == copies - 1)


def test_seeds_and_copies_differ() -> None:
    about = phase(duration=1, arrivals="poisson", seed=1)
    assert not np.array_equal(times_of(about), times_of(phase(duration=1, arrivals="poisson", seed=2)))
    gaps = [np.diff(times_of(about, share(copy, 2))[:300]) for copy in (0, 1)]
    assert not np.array_equal(*gaps)


@pytest.mark.parametrize("copies", [2, 3])
def test_copies_of_an_even_schedule_are_the_whole(copies: int) -> None:
    about = phase(rate=1000, end_rate=5000, duration=2)
    parts = np.concatenate([times_of(about, share(copy, copies)) for copy in range(copies)])
    whole = times_of(about)
    assert len(parts) == len(whole)
    assert np.max(np.abs(np.sort(parts) - whole)) <= copies


def test_copies_of_a_poisson_process_add_up_to_one() -> None:
    about = phase(rate=1000, duration=20, arrivals="poisson", seed=9)
    times = np.sort(np.concatenate([times_of(about, share(copy, 4)) for copy in range(4)]))
    assert len(times) == pytest.approx(20_000, rel=0.02)
    spread = times / 20e6
    assert kolmogorov_smirnov(spread, spread) < CRITICAL


def test_events_are_dealt_out() -> None:
    for arrivals in ("deterministic", "poisson"):
        about = phase(events=1001, arrivals=arrivals)
        assert [len(times_of(about, share(copy, 4))) for copy in range(4)] == [251, 250, 250, 250]


def test_closed_loop_has_times_by_the_event_rate() -> None:
    schedule = Schedule(phase(rate="max", event_rate=1_000_000, duration=1), 0, Share())
    assert not schedule.paced
    assert np.array_equal(schedule.take(3_000_000), np.arange(3_000_000))
    assert len(schedule.take(5)) == 5


def test_due_counts_what_the_rate_says() -> None:
    schedule = Schedule(phase(rate=0, end_rate=100, duration=10), 0, share(0, 2))
    assert schedule.due(5_000_000) == pytest.approx(62.5)
    assert schedule.due(50_000_000) == 250
