"""The expected answers of a Pairs run, computed from the ticks and the strategies alone.

This is written from the readings in docs/pairs.md and shares nothing with any implementation of the strategies.
Ratios are doubles. Sums of ratios and of their squares are kept as whole numbers on a common power of two, so they
have no error however many ratios come and go; averages and variances are rounded once at their end. A comparison of a
ratio with a band therefore has one possible outcome.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_bench.workloads.pairs.periods import Periods, PeriodSums
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.ticks import Ticks

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
        by_length = {length: sums.of(length) for length in lengths}
        for number, strategy in enumerate(strategies):
            one, other = place[strategy.symbol1], place[strategy.symbol2]
            run = _Run(number, strategy, made)
            run.follow(by_length[strategy.period_length], one, other)
            run.end(int(sums.last_prices[one]), int(sums.last_prices[other]), sums.last_tick)
    return made.answers([strategy.alias for strategy in strategies])


@dataclass
class _Made:
    """Columns of the answers as they are found, strategy by strategy."""

    indicators: list[tuple[int, float, float, float, float, int]] = field(default_factory=list)
    orders: list[tuple[int, str, str, int, int, int]] = field(default_factory=list)
    stop_losses: int = 0
    closest: float = math.inf

    def answers(self, aliases: Sequence[str]) -> Answers:
        return Answers(
            _table(self.indicators, INDICATOR, aliases),
            _table(self.orders, MARKET_ORDER, aliases),
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
        there = (counts1 > 0) & (counts2 > 0)
        ratios = (periods.sums[there, one] / counts1[there]) / (periods.sums[there, other] / counts2[there])
        rows = zip(
            ratios.tolist(),
            _as_whole(ratios),
            periods.closed_by[there].tolist(),
            periods.last_prices[there, one].tolist(),
            periods.last_prices[there, other].tolist(),
            strict=True,
        )
        self._follow(rows, _shift(ratios))

    def _follow(self, rows: Iterator[tuple[float, int, int, int, int]], shift: int) -> None:
        size, multiplier = self._strategy.num_periods, self._strategy.bands_multiplier
        one = 1 << shift
        divisor = size * (size - 1) << 2 * shift
        window: deque[int] = deque()
        total = squares = 0
        was_below = was_above = False
        for ratio, whole, tick_ts, price1, price2 in rows:
            window.append(whole)
            total += whole
            squares += whole * whole
            if len(window) > size:
                gone = window.popleft()
                total -= gone
                squares -= gone * gone
            elif len(window) < size:
                continue
            # The quotient of two whole numbers is rounded once.
            average = total / one / size
            deviation = math.sqrt((size * squares - total * total) / divisor)
            upper, lower = average + multiplier * deviation, average - multiplier * deviation
            self._made.indicators.append((self._number, ratio, average, upper, lower, tick_ts))
            self._made.closest = min(self._made.closest, abs(ratio - upper) / ratio, abs(ratio - lower) / ratio)
            wanted = 2 if was_below and ratio >= upper else 1 if was_above and ratio <= lower else 0
            was_below, was_above = ratio < upper, ratio > lower
            if wanted and wanted != self._owned:
                self._sell(price1, price2, tick_ts)
                self._buy(wanted, price1, price2, tick_ts)
                self._ratio_of_position = ratio
            elif self._is_loss(ratio):
                self._sell(price1, price2, tick_ts)
                self._made.stop_losses += 1

    def end(self, price1: int, price2: int, tick_ts: int) -> None:
        """All strategies finish flat."""
        self._sell(price1, price2, tick_ts)

    def _is_loss(self, ratio: float) -> bool:
        part = self._strategy.stop_loss_perc
        if self._owned == 2:
            return ratio >= (1 + part) * self._ratio_of_position
        return self._owned == 1 and ratio <= (1 - part) * self._ratio_of_position

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


def _shift(ratios: NDArray[np.float64]) -> int:
    """The power of two by which all these ratios become whole numbers."""
    return 53 - int(np.frexp(ratios)[1].min()) if len(ratios) else 0


def _as_whole(ratios: NDArray[np.float64]) -> list[int]:
    """The ratios times 2 ** _shift(ratios), without any error."""
    parts, exponents = np.frexp(ratios)
    mantissas = np.ldexp(parts, 53).astype(np.int64).tolist()
    least = min(exponents.tolist(), default=0)
    return [mantissa << (exponent - least) for mantissa, exponent in zip(mantissas, exponents.tolist(), strict=True)]


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema, aliases: Sequence[str]) -> pa.Table:
    """In the order of inputTickTS, the last column, then as they were found."""
    times = np.array([row[-1] for row in rows], np.int64)
    order = np.argsort(times, kind="stable")
    columns: list[Sequence[object]] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    names = pa.array(aliases, pa.string()).take(pa.array(columns[0], pa.int64()))
    arrays = [names, *(pa.array(values, f.type) for values, f in zip(columns[1:], list(schema)[1:], strict=True))]
    return pa.table(arrays, schema=schema).take(pa.array(order))
