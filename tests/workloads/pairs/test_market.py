"""The data generator of Pairs: shape of the stream, statistics, and that nothing but the settings matters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import InputError
from penstock_bench.workloads.pairs.market import Arrivals, Market, MarketSettings
from penstock_bench.workloads.pairs.rates import RateCurve
from penstock_bench.workloads.pairs.tick_files import (
    Auxiliary,
    TickFormat,
    TickReader,
    read_auxiliary,
    write_auxiliary,
    write_ticks,
)
from penstock_bench.workloads.pairs.ticks import Ticks, rechunked

SHORT = MarketSettings(scale_factor=1, shortened=0.005)


def whole(settings: MarketSettings, rows: int = 1 << 16) -> Ticks:
    return next(rechunked(Market(settings).ticks(rows), 1 << 30))


def test_a_run_has_the_symbols_correlations_and_rates_of_its_scale_factor() -> None:
    for scale_factor, markets in ((1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)):
        settings = MarketSettings(scale_factor)
        market = Market(settings)
        assert len(set(market.symbols)) == 100 * markets
        assert len(market.correlations) == 25 * markets
        assert len({symbol for pair in market.correlations for symbol in pair}) == 50 * markets
        assert settings.number_of_strategies == 25 * scale_factor
        assert settings.curve.basis == 5000 * markets
        assert settings.curve.peak == 7500 * markets
        assert all(len(name) == 6 and name.isalpha() and name.isupper() for name in market.symbols)


def test_a_correlation_is_of_one_market() -> None:
    market = Market(MarketSettings(31))
    place = {name: i for i, name in enumerate(market.symbols)}
    for number, (one, other) in enumerate(market.correlations):
        assert place[one] // 100 == place[other] // 100 == number // 25


def test_the_phases_of_a_full_run() -> None:
    curve = RateCurve(5000, 7500)
    assert curve.seconds == 7260
    assert curve.measurement == (1860, 5460)
    at = np.array([0.0, 30, 60, 960, 1860, 3660, 5460, 7260])
    assert curve.rate(at).tolist() == [0, 3750, 7500, 6250, 5000, 7500, 5000, 7500]
    assert curve.expected_ticks == pytest.approx(60 * 3750 + 7200 * 6250)


def test_arrival_times_are_the_inverse_of_the_expected_number() -> None:
    curve = RateCurve(5000, 7500, shortened=0.1)
    times = curve.times(np.linspace(0, curve.expected_ticks, 10_001))
    steps = np.diff(times)
    assert times[0] == 0
    assert times[-1] == pytest.approx(curve.seconds)
    middle = (times[1:] + times[:-1])[1:] / 2
    assert curve.expected_ticks / 10_000 / steps[1:] == pytest.approx(curve.rate(middle), rel=0.01)


def test_symbols_come_in_turn_and_sizes_are_tens() -> None:
    ticks = whole(SHORT)
    assert np.array_equal(ticks.symbol, np.arange(len(ticks)) % 100)
    assert set(np.unique(ticks.size).tolist()) == set(range(100, 1001, 10))
    assert ticks.size.mean() == pytest.approx(550, rel=0.01)
    assert np.all(np.diff(ticks.tick_ts) >= 0)
    assert ticks.tick_ts[-1] <= SHORT.curve.seconds * 1000
    assert np.all(ticks.price >= 1)


def test_poisson_arrivals_vary_as_a_poisson_process_does_and_constant_ones_do_not() -> None:
    settings = MarketSettings(shortened=0.005, varying_rate=False)
    counts = np.bincount(whole(settings).tick_ts // 10)[:-1]
    assert counts.mean() == pytest.approx(50, rel=0.02)
    assert counts.var() == pytest.approx(50, rel=0.1)
    even = np.bincount(
        whole(MarketSettings(shortened=0.005, varying_rate=False, arrivals=Arrivals.CONSTANT)).tick_ts // 10
    )
    assert set(even[:-1].tolist()) <= {49, 50, 51}


def test_the_number_of_ticks_follows_the_curve() -> None:
    ticks = whole(MarketSettings(shortened=0.02))
    curve = MarketSettings(shortened=0.02).curve
    assert len(ticks) == pytest.approx(curve.expected_ticks, rel=0.01)
    seconds = np.bincount(ticks.tick_ts // 1000)[5:-1]
    assert seconds == pytest.approx(curve.rate(np.arange(5, 5 + len(seconds)) + 0.5), rel=0.06)


def test_prices_are_brownian_and_those_of_a_pair_move_together() -> None:
    settings = MarketSettings(shortened=0.01, volatility=0.5, correlation=0.8)
    market = Market(settings)
    ticks = whole(settings)
    rounds = len(ticks) // 100
    # Every fifth round: the cents are rounded, and one step alone is not much more than a cent.
    steps = np.diff(np.log(ticks.price[: rounds * 100].reshape(rounds, 100)[::5]), axis=0)
    assert np.sqrt((steps**2).sum(axis=0)).mean() == pytest.approx(0.5, rel=0.05)
    related = np.corrcoef(steps.T)
    place = {name: i for i, name in enumerate(market.symbols)}
    pairs = [(place[one], place[other]) for one, other in market.correlations]
    assert np.mean([related[pair] for pair in pairs]) == pytest.approx(0.8, abs=0.02)
    alone = related[np.triu_indices(100, 1)].sum() - sum(related[pair] for pair in pairs)
    assert abs(alone / (4950 - 25)) < 0.01


@pytest.mark.parametrize("rows", [1, 777, 100_000])
def test_chunks_do_not_matter(rows: int) -> None:
    settings = MarketSettings(shortened=0.0003 if rows == 1 else 0.003)
    once, again = whole(settings), whole(settings, rows)
    for name in ("symbol", "price", "size", "tick_ts"):
        assert np.array_equal(getattr(once, name), getattr(again, name))


def test_the_seed_alone_decides() -> None:
    assert not np.array_equal(whole(SHORT).price[:1000], whole(MarketSettings(seed=2, shortened=0.005)).price[:1000])
    assert Market(SHORT).symbols != Market(MarketSettings(seed=2)).symbols


@pytest.mark.parametrize("format_", list(TickFormat))
@pytest.mark.parametrize("count", [1, 3])
def test_files_give_the_same_stream_again(tmp_path: Path, format_: TickFormat, count: int) -> None:
    settings = MarketSettings(shortened=0.001)
    market = Market(settings)
    paths = write_ticks(market.ticks(), market.symbols, tmp_path, count, format_)
    assert len(paths) == count
    reader = TickReader(paths)
    read = next(rechunked(reader.ticks(1000), 1 << 30))
    made = whole(settings)
    assert [reader.symbols[i] for i in read.symbol] == [market.symbols[i] for i in made.symbol]
    for name in ("price", "size", "tick_ts"):
        assert np.array_equal(getattr(read, name), getattr(made, name))


def test_the_auxiliary_file_comes_back(tmp_path: Path) -> None:
    auxiliary = Auxiliary(1, 25, Market(SHORT).correlations, ("ticks.parquet",))
    write_auxiliary(tmp_path, auxiliary)
    assert read_auxiliary(tmp_path) == auxiliary


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("AAA,1,10,5\nAAA,1,10,4\n", "tickTS decreases"),
        ("AAA,0,10,5\n", "price below 1 cent"),
        ("AAA,one,10,5\n", "not a file of ticks"),
        ("AAA,1,10\n", "not a file of ticks"),
        ("AAA,1,,5\n", "has no size"),
    ],
)
def test_bad_files_of_ticks_are_told(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "real.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        list(TickReader([path]).ticks())


def test_bad_settings_are_told() -> None:
    with pytest.raises(InputError, match="scale factor is 0"):
        MarketSettings(0)
    with pytest.raises(InputError, match="correlations is 51"):
        MarketSettings(correlations=51)
    with pytest.raises(InputError, match="peak"):
        _ = MarketSettings(peak_rate=1.0).curve
