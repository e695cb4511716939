"""The expected answers of a Pairs run, computed from the ticks and the strategies alone.

This is written from the readings in docs/pairs.md and shares nothing with any implementation of the strategies.
Ratios are doubles. Sums of ratios and of their squares are kept as whole numbers on a common power of two, so they
have no error however many ratios come and go; averages and variances are rounded once at their end. A comparison of a
ratio with a band therefore has one possible outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_bench.workloads.pairs.periods import Periods, PeriodSums
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.ticks import Ticks

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

INDICATOR: Final = pa.schema(
    [
        ("strategy", pa.string()),
        ("ratio", pa.float64()),
        ("avgRatio", pa.float64()),
        ("upperBand", pa.float64()),
        ("lowerBand", pa.float64()),
        ("inputTickTS", pa.int64()),
    ]
)
MARKET_ORDER: Final = pa.schema(
    [
        ("strategy", pa.string()),
        ("type", pa.string()),
        ("symbol", pa.string()),
        ("price", pa.int64()),
        ("size", pa.int64()),
        ("inputTickTS", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Answers:
    """Both output streams, by inputTickTS and then by strategy; without inputTS, which is a time of the run."""

    indicators: pa.Table
    orders: pa.Table
    stop_losses: int = 0
    closest: float = math.inf
    """How near a ratio came to a band that it is compared with, relative to the ratio."""


def expected_answers(
    ticks: Iterator[Ticks],
    symbols: Callable[[], Sequence[str]],
    strategies: Sequence[Strategy],
    progress: Callable[[int], None] = lambda _: None,
) -> Answers:
    """`symbols` gives the names of the numbers in the ticks read so far; `progress` is told how many those are."""
    watched = sorted({name for strategy in strategies for name in (strategy.symbol1, strategy.symbol2)})
    place = {name: number for number, name in enumerate(watched)}
    lengths = sorted({strategy.period_length for strategy in strategies})
    sums = PeriodSums(watched, lengths)
    for piece in ticks:
        sums.take(piece, symbols())
        progress(sums.ticks)
    made = _Made()
    if sums.ticks:
        by_length = {length: _symbol_by_symbol(sums.of(length)) for length in lengths}
        for number, strategy in enumerate(strategies):
            one, other = place[strategy.symbol1], place[strategy.symbol2]
            run = _Run(number, strategy, made)
            run.follow(by_length[strategy.period_length], one, other)
            run.end(int(sums.last_prices[one]), int(sums.last_prices[other]), sums.last_tick)
    return made.answers([strategy.alias for strategy in strategies])


def _symbol_by_symbol(periods: Periods) -> Periods:
    """The same, with the periods of a symbol beside each other in memory."""
    sums, counts, last = map(np.asfortranarray, (periods.sums, periods.counts, periods.last_prices))
    return Periods(sums, counts, periods.closed_by, last)


@dataclass
class _Made:
    """The answers as they are found, strategy by strategy."""

    indicators: list[tuple[int, Doubles, Doubles, Doubles, Doubles, Integers]] = field(default_factory=list)
    """The number of a strategy, and columns."""
    orders: list[tuple[int, str, str, int, int, int]] = field(default_factory=list)
    stop_losses: int = 0
    closest: float = math.inf

    def answers(self, aliases: Sequence[str]) -> Answers:
        found = list(zip(*self.indicators, strict=True)) or [(), *[(np.empty(0),)] * 5]
        numbers = np.repeat(np.array(found[0], np.int64), [len(times) for times in found[5]] if self.indicators else 0)
        indicators = [numbers, *map(np.concatenate, found[1:])]
        orders: list[Sequence[object]] = list(zip(*self.orders, strict=True)) or [()] * len(MARKET_ORDER)
        return Answers(
            _table(indicators, INDICATOR, aliases),
            _table(orders, MARKET_ORDER, aliases),
            self.stop_losses,
            self.closest,
        )


class _Run:
    """One strategy: its window of ratios, its position and its money."""

    def __init__(self, number: int, strategy: Strategy, made: _Made) -> None:
        self._number = number
        self._strategy = strategy
        self._made = made
        self._balance = strategy.available_funds
        self._owned = 0
        """The security that is owned: 1, 2, or 0 while flat."""
        self._shares = 0
        self._ratio_of_position = 0.0

    def follow(self, periods: Periods, one: int, other: int) -> None:
        counts1, counts2 = periods.counts[:, one], periods.counts[:, other]
        there = np.flatnonzero((counts1 > 0) & (counts2 > 0))
        ratios = (periods.sums[there, one] / counts1[there]) / (periods.sums[there, other] / counts2[there])
        size = self._strategy.num_periods
        shown = there[size - 1 :]
        if not len(shown):
            return
        averages, deviations = _moments(ratios, size)
        ratios, times = ratios[size - 1 :], periods.closed_by[shown]
        width = self._strategy.bands_multiplier * deviations
        upper, lower = averages + width, averages - width
        made = self._made
        made.indicators.append((self._number, ratios, averages, upper, lower, times))
        distances = np.minimum(np.abs(ratios - upper), np.abs(ratios - lower)) / ratios
        made.closest = min(made.closest, float(distances.min()))
        prices = periods.last_prices[shown, one], periods.last_prices[shown, other]
        self._trade(ratios, _crosses(ratios, upper, lower), times, prices)

    def _trade(self, ratios: Doubles, wanted: Integers, times: Integers, prices: tuple[Integers, Integers]) -> None:
        """From one change of the position to the next. A cross comes before a loss of the same period."""
        crosses = [(at, int(wanted[at])) for at in np.flatnonzero(wanted).tolist()]
        now, end = 0, len(ratios)
        while True:
            crosses = [cross for cross in crosses if cross[0] >= now]
            cross, security = next((cross for cross in crosses if cross[1] != self._owned), (end, 0))
            at = min(cross, self._loss(ratios, now))
            if at == end:
                return
            price1, price2, tick_ts = int(prices[0][at]), int(prices[1][at]), int(times[at])
            self._sell(price1, price2, tick_ts)
            if at == cross:
                self._buy(security, price1, price2, tick_ts)
                self._ratio_of_position = float(ratios[at])
            else:
                self._made.stop_losses += 1
            now = at + 1

    def _loss(self, ratios: Doubles, now: int) -> int:
        """Where the first loss is from `now` on that ends the position; behind the last ratio if there is none."""
        part, entered = self._strategy.stop_loss_perc, self._ratio_of_position
        if self._owned == 0 or now == len(ratios):
            return len(ratios)
        rest = ratios[now:]
        lost = rest >= (1 + part) * entered if self._owned == 2 else rest <= (1 - part) * entered
        first = int(lost.argmax())
        return now + first if lost[first] else len(ratios)

    def end(self, price1: int, price2: int, tick_ts: int) -> None:
        """All strategies finish flat."""
        self._sell(price1, price2, tick_ts)

    def _sell(self, price1: int, price2: int, tick_ts: int) -> None:
        if self._owned == 0:
            return
        price = price1 if self._owned == 1 else price2
        self._order("SELL", price, tick_ts)
        self._balance += self._shares * price
        self._owned = self._shares = 0

    def _buy(self, security: int, price1: int, price2: int, tick_ts: int) -> None:
        price = price1 if security == 1 else price2
        size = 10 * (self._balance // (10 * price))
        if size == 0:
            return
        self._owned, self._shares = security, size
        self._order("BUY", price, tick_ts)
        self._balance -= size * price

    def _order(self, kind: str, price: int, tick_ts: int) -> None:
        symbol = self._strategy.symbol1 if self._owned == 1 else self._strategy.symbol2
        self._made.orders.append((self._number, kind, symbol, price, self._shares, tick_ts))


def _crosses(ratios: Doubles, upper: Doubles, lower: Doubles) -> Integers:
    """What each indicator wants to own, by the one before: 2 above the upper band, 1 below the lower one, or 0."""
    high, low = np.zeros(len(ratios), np.bool_), np.zeros(len(ratios), np.bool_)
    high[1:] = (ratios[:-1] < upper[:-1]) & (ratios[1:] >= upper[1:])
    low[1:] = (ratios[:-1] > lower[:-1]) & (ratios[1:] <= lower[1:])
    return np.where(high, 2, np.where(low, 1, 0))


def _moments(ratios: Doubles, size: int) -> tuple[Doubles, Doubles]:
    """The average and the deviation of each window of so many ratios. Sums are those of whole numbers, and each is the
    difference of two that begin with the first ratio."""
    whole, shift = _as_whole(ratios), _shift(ratios)
    sums = list(accumulate(whole, initial=0))
    squares = list(accumulate([number * number for number in whole], initial=0))
    one, divisor = 1 << shift, size * (size - 1) << 2 * shift
    totals = [behind - before for before, behind in zip(sums, sums[size:], strict=False)]
    # The quotient of two whole numbers is rounded once.
    averages = [total / one / size for total in totals]
    variances = [
        (size * (behind - before) - total * total) / divisor
        for total, before, behind in zip(totals, squares, squares[size:], strict=False)
    ]
    return np.array(averages), np.sqrt(np.array(variances))


def _shift(ratios: NDArray[np.float64]) -> int:
    """The power of two by which all these ratios become whole numbers."""
    return 53 - int(np.frexp(ratios)[1].min()) if len(ratios) else 0


def _as_whole(ratios: NDArray[np.float64]) -> list[int]:
    """The ratios times 2 ** _shift(ratios), without any error."""
    parts, exponents = np.frexp(ratios)
    mantissas = np.ldexp(parts, 53).astype(np.int64).tolist()
    least = min(exponents.tolist(), default=0)
    return [mantissa << (exponent - least) for mantissa, exponent in zip(mantissas, exponents.tolist(), strict=True)]


def _table(
    columns: Sequence[Sequence[object] | NDArray[np.generic]], schema: pa.Schema, aliases: Sequence[str]
) -> pa.Table:
    """In the order of inputTickTS, the last column, then as they were found. The first one numbers strategies."""
    order = np.argsort(np.array(columns[-1], np.int64), kind="stable")
    names = pa.array(aliases, pa.string()).take(pa.array(columns[0], pa.int64()))
    arrays = [names, *(pa.array(values, f.type) for values, f in zip(columns[1:], list(schema)[1:], strict=True))]
    return pa.table(arrays, schema=schema).take(pa.array(order))
