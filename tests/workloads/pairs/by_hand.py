"""Ticks written out, and the meaning of Pairs said tick by tick with exact fractions, to check the validator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import sqrt

import numpy as np

from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.ticks import Ticks
from penstock_bench.workloads.pairs.validator import Answers, expected_answers

Row = tuple[str, int, int]
"""Symbol, price, tickTS."""


def columns(rows: Sequence[Row], names: Sequence[str], chunk: int) -> Iterator[Ticks]:
    place = {name: number for number, name in enumerate(names)}
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        yield Ticks(
            np.array([place[name] for name, _, _ in part], np.int32),
            np.array([price for _, price, _ in part], np.int32),
            np.full(len(part), 100, np.int32),
            np.array([time for _, _, time in part], np.int64),
        )


def validated(rows: Sequence[Row], strategies: Sequence[Strategy], chunk: int = 1000) -> Answers:
    names = sorted({name for name, _, _ in rows})
    return expected_answers(columns(rows, names, chunk), lambda: names, strategies)


@dataclass
class _State:
    prices: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ratios: list[float] = field(default_factory=list)
    before: tuple[float, float, float] | None = None
    shares: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    balance: int = 0
    entry: float = 0.0


def step_by_step(rows: Sequence[Row], strategy: Strategy) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Indicators and orders of one strategy, each tick in its turn."""
    length = strategy.period_length * 1000
    state = _State(balance=strategy.available_funds)
    last: dict[str, int] = {}
    indicators: list[tuple[object, ...]] = []
    orders: list[tuple[object, ...]] = []
    period = rows[0][2] // length
    for name, price, time in rows:
        last[name] = price
        if time // length > period:
            indicator = _indicator(state, strategy)
            state.prices.clear()
            if indicator:
                indicators.append((strategy.alias, *indicator, time))
                orders.extend(_decide(state, strategy, indicator, last, time))
            period = time // length
        state.prices[name].append(price)
    for name in (strategy.symbol1, strategy.symbol2):
        if state.shares[name]:
            orders.append((strategy.alias, "SELL", name, last[name], state.shares[name], rows[-1][2]))
    return indicators, orders


def _indicator(state: _State, strategy: Strategy) -> tuple[float, float, float, float] | None:
    prices1, prices2 = state.prices[strategy.symbol1], state.prices[strategy.symbol2]
    if not prices1 or not prices2:
        return None
    ratio = (sum(prices1) / len(prices1)) / (sum(prices2) / len(prices2))
    state.ratios.append(ratio)
    window = [Fraction(value) for value in state.ratios[-strategy.num_periods :]]
    if len(window) < strategy.num_periods:
        return None
    average = float(sum(window)) / len(window)
    mean = sum(window) / len(window)
    deviation = sqrt(float(sum((value - mean) ** 2 for value in window) / (len(window) - 1)))
    spread = strategy.bands_multiplier * deviation
    return ratio, average, average + spread, average - spread


def _decide(
    state: _State, strategy: Strategy, now: tuple[float, float, float, float], last: dict[str, int], time: int
) -> Iterator[tuple[object, ...]]:
    ratio, _, upper, lower = now
    before, state.before = state.before, (ratio, upper, lower)
    wanted = None
    if before and ratio >= upper and before[0] < before[1]:
        wanted = strategy.symbol2
    elif before and ratio <= lower and before[0] > before[2]:
        wanted = strategy.symbol1
    owned = next((name for name in (strategy.symbol1, strategy.symbol2) if state.shares[name]), None)
    if wanted and wanted != owned:
        if owned:
            yield _sold(state, strategy, owned, last, time)
        size = 10 * (state.balance // (last[wanted] * 10))
        if size:
            yield strategy.alias, "BUY", wanted, last[wanted], size, time
            state.balance -= size * last[wanted]
            state.shares[wanted] = size
            state.entry = ratio
        return
    up = owned == strategy.symbol2 and ratio >= (1 + strategy.stop_loss_perc) * state.entry
    down = owned == strategy.symbol1 and ratio <= (1 - strategy.stop_loss_perc) * state.entry
    if owned and (up or down):
        yield _sold(state, strategy, owned, last, time)


def _sold(state: _State, strategy: Strategy, owned: str, last: dict[str, int], time: int) -> tuple[object, ...]:
    size = state.shares.pop(owned)
    state.balance += size * last[owned]
    return strategy.alias, "SELL", owned, last[owned], size, time
