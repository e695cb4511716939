"""The validator of Pairs against cases worked out by hand and against the meaning said tick by tick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.strategies import Strategy, strategies
from penstock_bench.workloads.pairs.validator import expected_answers

from .by_hand import Row, step_by_step, validated

STRATEGY = Strategy("st_00001", 1_000_550, "AAA", "BBB", 5, 3, 1.0, 0.1)


def periods(prices: list[int], length: int = 5) -> list[Row]:
    """AAA at these prices and BBB at 100, one tick of each in a period."""
    rows: list[Row] = []
    for number, price in enumerate(prices):
        rows += [("AAA", price, number * length * 1000), ("BBB", 100, number * length * 1000 + 2)]
    return rows


def orders(rows: list[Row], strategy: Strategy = STRATEGY) -> list[tuple[object, ...]]:
    return [tuple(row.values())[1:] for row in validated(rows, [strategy]).orders.to_pylist()]


def test_crosses_stop_loss_and_the_end() -> None:
    """Ratios 1, 1.1, 1 | 1.3 is above its band 1.286, 1.45 is 10 % above that, 0.9 is below its band 0.932."""
    rows = [*periods([100, 110, 100, 130, 145, 90, 95]), ("AAA", 97, 34_000)]
    answers = validated(rows, [STRATEGY])
    assert answers.indicators["inputTickTS"].to_pylist() == [15_000, 20_000, 25_000, 30_000]
    assert answers.indicators["ratio"].to_pylist() == [1.0, 1.3, 1.45, 0.9]
    assert answers.indicators["upperBand"].to_pylist() == pytest.approx([1.0910684, 1.2860859, 1.4791288, 1.5009787])
    assert answers.indicators["avgRatio"].to_pylist() == pytest.approx([3.1 / 3, 3.4 / 3, 1.25, 3.65 / 3])
    assert answers.indicators["lowerBand"].to_pylist() == pytest.approx([0.9755983, 0.9805808, 1.0208712, 0.9323547])
    assert answers.stop_losses == 1
    assert [tuple(row.values())[1:] for row in answers.orders.to_pylist()] == [
        ("BUY", "BBB", 100, 10_000, 20_000),
        ("SELL", "BBB", 100, 10_000, 25_000),
        ("BUY", "AAA", 95, 10_530, 30_000),  # 95 is the price of the tick that closes the period
        ("SELL", "AAA", 97, 10_530, 34_000),
    ]


def test_the_opposite_cross_sells_and_buys_with_all_the_money() -> None:
    rows = periods([100, 110, 100, 130, 120, 100, 101])
    assert orders(rows) == [
        ("BUY", "BBB", 100, 10_000, 20_000),
        ("SELL", "BBB", 100, 10_000, 30_000),
        ("BUY", "AAA", 101, 9_900, 30_000),  # 1,000,550 / 1,010 = 990.6
        ("SELL", "AAA", 101, 9_900, 30_002),
    ]


def test_a_cross_to_the_position_that_is_held_does_nothing() -> None:
    once = orders(periods([100, 110, 100, 130, 110, 109, 139, 120]))
    assert [order[0] for order in once] == ["BUY", "SELL"]
    assert once[0][-1] == 20_000


def test_without_the_money_for_ten_shares_there_is_no_order() -> None:
    assert orders(periods([100, 110, 100, 130, 145, 90, 95]), replace(STRATEGY, available_funds=900)) == []


def test_money_that_is_lost_on_the_way_leaves_the_strategy_flat() -> None:
    # 1,000 cents buy ten BBB at 100. AAA then costs 101, and ten of it more than what the sale brings.
    sold = orders(periods([100, 110, 100, 130, 120, 100, 101]), replace(STRATEGY, available_funds=1_005))
    assert sold == [("BUY", "BBB", 100, 10, 20_000), ("SELL", "BBB", 100, 10, 30_000)]


def test_any_tick_closes_a_period_and_belongs_to_the_next() -> None:
    rows = [*periods([100, 110, 100]), ("CCC", 7, 15_000), ("AAA", 999, 15_001)]
    assert validated(rows, [STRATEGY]).indicators.to_pylist()[0]["inputTickTS"] == 15_000
    late = [*periods([100, 110, 100]), ("AAA", 999, 61_234)]
    assert validated(late, [STRATEGY]).indicators.to_pylist()[0]["inputTickTS"] == 61_234
    assert validated(late, [STRATEGY]).indicators["ratio"].to_pylist() == [1.0]
    open_ = [*periods([100, 110, 100]), ("AAA", 999, 14_999)]
    assert validated(open_, [STRATEGY]).indicators.num_rows == 0


def test_periods_without_a_tick_of_one_symbol_have_no_ratio() -> None:
    rows = [("AAA", 100, 0), ("BBB", 100, 1), ("AAA", 500, 5_000), ("AAA", 110, 10_000), ("BBB", 100, 10_001)]
    rows += [("BBB", 100, 20_000), ("AAA", 100, 24_000), ("BBB", 100, 30_000)]
    answers = validated(rows, [STRATEGY])
    assert answers.indicators["ratio"].to_pylist() == [1.0]
    assert answers.indicators["inputTickTS"].to_pylist() == [30_000]
    assert answers.indicators["avgRatio"].to_pylist() == pytest.approx([3.1 / 3])


def test_no_ticks_and_no_answers() -> None:
    assert expected_answers(iter(()), list, [STRATEGY]).indicators.num_rows == 0
    assert validated([("CCC", 1, 0), ("CCC", 1, 9_000)], [STRATEGY]).orders.num_rows == 0


def test_the_parameters_decide_whether_a_strategy_can_trade_at_all() -> None:
    """A ratio is at most (n − 1)/√n deviations from the mean of its window: 1.789 for five."""
    market = Market(MarketSettings(1, shortened=0.05, basis_rate=1000))
    some = [replace(one, num_periods=5, period_length=5) for one in strategies(market.correlations, 25, 1)]
    never = [replace(one, bands_multiplier=1.8) for one in some]
    assert expected_answers(market.ticks(), lambda: market.symbols, never).orders.num_rows == 0
    often = [replace(one, bands_multiplier=1.2) for one in some]
    assert expected_answers(market.ticks(), lambda: market.symbols, often).orders.num_rows > 50


@pytest.mark.parametrize("seed", range(4))
def test_random_ticks_with_gaps_tick_by_tick(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = ["AAA", "BBB", "CCC", "DDD"]
    times = np.sort(random.integers(0, 400_000, 1500))
    times = times[(times < 100_000) | (times > 117_000)]
    levels = np.cumsum(random.normal(0, 0.03, len(times)))
    rows = [
        (str(random.choice(names, p=[0.2, 0.2, 0.5, 0.1])), int(1000 * np.exp(level) + random.integers(100)), int(time))
        for level, time in zip(levels, times, strict=True)
    ]
    several = [
        Strategy(f"st_{length}_{count}", 1_000_000, one, other, length, count, 1.2, 0.1)
        for length, count, one, other in ((5, 3, "AAA", "BBB"), (2, 5, "AAA", "DDD"), (15, 4, "BBB", "AAA"))
    ]
    answers = validated(rows, several, chunk=170)
    for strategy in several:
        indicators, found = step_by_step(rows, strategy)
        mine = [row for row in answers.indicators.to_pylist() if row["strategy"] == strategy.alias]
        assert [tuple(row.values()) for row in mine] == indicators
        mine = [row for row in answers.orders.to_pylist() if row["strategy"] == strategy.alias]
        assert [tuple(row.values()) for row in mine] == found
    assert answers.orders.num_rows > 10


def test_generated_markets_cross_both_bands_and_stop_losses() -> None:
    market = Market(MarketSettings(4, shortened=0.05, basis_rate=1000))
    answers = expected_answers(market.ticks(), lambda: market.symbols, strategies(market.correlations, 100, 1))
    bought = [row for row in answers.orders.to_pylist() if row["type"] == "BUY"]
    firsts = {one for one, _ in market.correlations}
    assert sum(row["symbol"] in firsts for row in bought) > 10
    assert sum(row["symbol"] not in firsts for row in bought) > 10
    assert answers.stop_losses > 3
    assert answers.closest > 1e-9
