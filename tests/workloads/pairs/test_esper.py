"""Pairs on Esper: its statements are made from strategies, and its answers are those of the validator."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.benches.pairs_systems import TICKS, EsperSystem
from penstock_bench.workloads.pairs.answers import compared
from penstock_bench.workloads.pairs.esper import translated
from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.strategies import Strategy, strategies
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER, Answers, expected_answers

ONE = Strategy("st_00001", 1_000_000, "MCBEIV", "AYFBLW", 20, 5, 1.2, 0.3)


def test_strategies_are_rows_and_share_the_averages_of_a_symbol() -> None:
    other = replace(ONE, alias="st_00002", symbol2="QQQQQQ", num_periods=8)
    made = translated([ONE, other])
    assert made.rows["AverageRow"].column("symbol").to_pylist() == ["MCBEIV", "AYFBLW", "QQQQQQ"]
    assert made.rows["StrategyRow"].column("average1").to_pylist() == [0, 0]
    assert made.queries["Indicator"].count("#groupwin(strategy)") == 2
    assert "'AYFBLW', 'MCBEIV', 'QQQQQQ'" in made.queries["Indicator"]


def test_a_symbol_that_is_no_word_does_not_get_into_the_text() -> None:
    with pytest.raises(InputError, match="letters, digits"):
        translated([replace(ONE, symbol1="A') or ('")])


def test_lengths_must_be_multiples_of_the_shortest() -> None:
    with pytest.raises(InputError, match="multiples of 20"):
        translated([ONE, replace(ONE, alias="st_00002", period_length=30)])


@pytest.mark.slow
def test_answers_of_esper_are_those_of_the_validator() -> None:
    settings = MarketSettings(scale_factor=11, shortened=0.1, basis_rate=400, volatility=1.5)
    market = Market(settings)
    made = strategies(market.correlations, settings.number_of_strategies, seed=3)
    names = pa.array(market.symbols)
    given: dict[str, list[pa.RecordBatch]] = {"Indicator": [], "MarketOrder": []}
    system = EsperSystem("512m")
    try:
        system.start(made, lambda stream, batch: given[stream].append(batch))
        last = 0
        for ticks in market.ticks(4096):
            columns = [ticks.price, ticks.size, ticks.tick_ts, ticks.tick_ts * 1000]
            symbols = names.take(pa.array(ticks.symbol))
            system.push(pa.record_batch([symbols, *map(pa.array, columns)], schema=TICKS))
            last = int(ticks.tick_ts[-1])
        system.end(last, last * 1000)
    finally:
        system.close()
    expected = expected_answers(market.ticks(), lambda: market.symbols, made)
    tables = {stream: pa.Table.from_batches(batches) for stream, batches in given.items()}
    answers = Answers(tables["Indicator"].select(INDICATOR.names), tables["MarketOrder"].select(MARKET_ORDER.names))
    report = compared(expected, answers)
    assert expected.stop_losses > 0
    assert report.orders.correct > 100
    assert report.passed, report.text()
