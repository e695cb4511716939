"""Pairs in SQL gives the answers that the validator computes, however the ticks are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.workloads.pairs.answers import compared
from penstock_bench.workloads.pairs.application import PairsApp
from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.setup_xml import write_strategies
from penstock_bench.workloads.pairs.strategies import Strategy, strategies
from penstock_bench.workloads.pairs.ticks import Ticks
from penstock_bench.workloads.pairs.translator import bar_length, translate, translate_file
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER, Answers, expected_answers

SHORT = {5: 1, 10: 2, 20: 4, 30: 6, 60: 12}


def few(market: Market, count: int = 25) -> list[Strategy]:
    """Strategies whose periods are a fifth as long, so that a short run has all that a long one has."""
    drawn = strategies(market.correlations, count, 3)
    return [replace(one, period_length=SHORT[one.period_length], num_periods=min(one.num_periods, 8)) for one in drawn]


def answers_of(ticks: pa.RecordBatch, chosen: list[Strategy], folder: Path, cut: int) -> Answers:
    with PairsApp(chosen, folder) as app:
        for start in range(0, ticks.num_rows, cut):
            app.push(ticks.slice(start, cut))
        app.end()
        assert not app.app.rejects
        indicators, orders = app.indicators(), app.orders()
    assert indicators.column_names == [*INDICATOR.names, "inputTS"]
    assert orders.column_names == [*MARKET_ORDER.names, "inputTS"]
    return Answers(
        indicators.select(INDICATOR.names).cast(INDICATOR), orders.select(MARKET_ORDER.names).cast(MARKET_ORDER)
    )


def batch_of(ticks: Ticks, symbols: pa.Array) -> pa.RecordBatch:
    return ticks.batch(symbols).append_column("TS", pa.array(ticks.tick_ts + 1_000_000))


@pytest.mark.parametrize("cut", [701, 1 << 20])
def test_all_answers_are_the_validators(cut: int, tmp_path: Path) -> None:
    settings = MarketSettings(scale_factor=1, shortened=0.02, basis_rate=150.0, volatility=1.0)
    market = Market(settings)
    chosen = few(market)
    (ticks,) = market.ticks(1 << 22)
    expected = expected_answers(iter([ticks]), lambda: market.symbols, chosen)
    assert expected.orders.num_rows > 100
    report = compared(expected, answers_of(batch_of(ticks, pa.array(market.symbols)), chosen, tmp_path, cut))
    assert report.passed, report.text()


def with_silences(market: Market, chosen: list[Strategy]) -> Iterator[Ticks]:
    """Few ticks of few symbols: periods without a tick, ticks on a boundary, several of one time."""
    watched = {name for one in chosen for name in (one.symbol1, one.symbol2)}
    places = [place for place, name in enumerate(market.symbols) if name in watched] + [0]
    random = np.random.default_rng(7)
    count = 4_000
    steps = random.choice([0, 0, 1, 40, 250, 500, 1_000, 7_000], count)
    yield Ticks(
        random.choice(places, count).astype(np.int32),
        random.integers(900, 1_100, count).astype(np.int32),
        np.full(count, 100, np.int32),
        np.cumsum(steps),
    )


@pytest.mark.parametrize("cut", [1_000, 37])
def test_silences_and_ticks_on_boundaries(cut: int, tmp_path: Path) -> None:
    market = Market(MarketSettings(scale_factor=1))
    chosen = few(market, 4)
    (ticks,) = with_silences(market, chosen)
    expected = expected_answers(iter([ticks]), lambda: market.symbols, chosen)
    assert expected.orders.num_rows > 20
    report = compared(expected, answers_of(batch_of(ticks, pa.array(market.symbols)), chosen, tmp_path, cut))
    assert report.passed, report.text()


def test_what_strategies_say_is_not_in_the_text(tmp_path: Path) -> None:
    one = Strategy("st'; DROP", 1_000_000, "AAA", "BBB", 20, 5, 1.5, 0.1)
    folder = tmp_path / "it's"
    text = translate([one, replace(one, alias="st_2", period_length=30)], folder)
    assert "DROP" not in text
    assert "it''s" in text
    assert "RANGE 10000 MILLISECONDS" in text


def test_a_file_of_strategies_becomes_a_program(tmp_path: Path) -> None:
    xml = tmp_path / "strategies.xml"
    write_strategies(xml, [Strategy("st_1", 1_000_000, "AAA", "BBB", 20, 5, 1.5, 0.1)])
    program = translate_file(xml, tmp_path)
    assert program.read_text() == translate([Strategy("st_1", 1_000_000, "AAA", "BBB", 20, 5, 1.5, 0.1)], tmp_path)


def test_no_strategy_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        bar_length([])
