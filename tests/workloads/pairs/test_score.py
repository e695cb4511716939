"""The score of Pairs against the figures of the thesis."""

from __future__ import annotations

import pytest

from penstock.errors import InputError
from penstock_bench.workloads.pairs.market import BASIS_RATE_PER_MARKET, MarketSettings
from penstock_bench.workloads.pairs.score import load, p_score


@pytest.mark.parametrize(
    ("scale_factor", "milliseconds", "score"),
    [
        (1, 63, 47.62),
        (2, 175, 34.29),
        (3, 203, 44.33),
        (4, 351, 34.19),
        (5, 91_862, 0.16),
        (1, 22, 136.36),
        (2, 24, 250),
    ],
)
def test_the_table_of_the_thesis(scale_factor: int, milliseconds: float, score: float) -> None:
    assert round(p_score(scale_factor, milliseconds / 1000), 2) == score


@pytest.mark.parametrize("scale_factor", [1, 2, 4, 9, 10, 11, 15, 20, 21, 100])
def test_load_is_rate_times_work_as_appendix_a_derives_it(scale_factor: int) -> None:
    settings = MarketSettings(scale_factor)
    # Half of the ticks are of no strategy; the others meet ten, in the last market as many as it has for each pair.
    matched = [10] * (settings.markets - 1) + [settings.number_of_strategies // 25 - 10 * (settings.markets - 1)]
    average = sum(matched) / len(matched) / 2
    work = settings.number_of_strategies + 100 * average
    rate = BASIS_RATE_PER_MARKET * settings.markets
    assert load(scale_factor) == pytest.approx(rate * work / (25 * BASIS_RATE_PER_MARKET))


def test_known_loads() -> None:
    assert [load(scale_factor) for scale_factor in (1, 2, 4, 10, 11)] == [3, 6, 12, 30, 44]
    assert load(100) == 1000 + 200


def test_a_score_needs_a_latency() -> None:
    for latency in (0.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="latency"):
            p_score(1, latency)
