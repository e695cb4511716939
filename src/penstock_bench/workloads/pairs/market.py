"""The ticks of the Pairs markets: symbols in turn, prices by geometric Brownian motion, arrivals that follow a rate.

A scale factor SF has M = ceil(SF/10) markets of 100 symbols and 25 correlations. Tick i is of symbol i mod (100·M).
The logarithm of a price is a Brownian motion in the time of the run; those of a correlated pair share `correlation`
of their movement, so their ratio wanders less than either price, and leaves its own bands on both sides now and then.
`volatility` is the standard deviation of a price's logarithm at the end of the run, however long the run is:
shortened runs have crosses and stop losses, too.

Ticks are made in blocks of a fixed size, each with random generators of its own. So the ticks depend on the settings
alone, not on the chunks in which they are taken, and take constant memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InputError
from penstock.generators.chunks import random_source
from penstock_bench.workloads.pairs.rates import PEAK_TO_BASIS, RateCurve
from penstock_bench.workloads.pairs.ticks import CHUNK_TICKS, Ticks, rechunked

SYMBOLS_PER_MARKET: Final = 100
CORRELATIONS_PER_MARKET: Final = 25
STRATEGIES_PER_SCALE: Final = 25
BASIS_RATE_PER_MARKET: Final = 5_000
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_CENTS = (1 << 31) - 1
_BLOCK_TICKS = 1 << 16
_FIRST_PRICES = (2_000, 16_000)
_NAMES, _ARRIVALS, _PRICES, _SIZES = 1, 2, 3, 4


class Arrivals(StrEnum):
    POISSON = "poisson"
    CONSTANT = "constant"


def markets(scale_factor: int) -> int:
    return -(-scale_factor // 10)


@dataclass(frozen=True)
class MarketSettings:
    """What a generated market depends on; None takes the standard value for the scale factor."""

    scale_factor: int = 1
    seed: int = 1
    arrivals: Arrivals = Arrivals.POISSON
    varying_rate: bool = True
    shortened: float = 1.0
    basis_rate: float | None = None
    peak_rate: float | None = None
    symbols: int | None = None
    correlations: int | None = None
    strategies: int | None = None
    volatility: float = 0.7
    correlation: float = 0.9

    def __post_init__(self) -> None:
        _within("the scale factor", self.scale_factor, 1, 100_000)
        _within("the seed", self.seed, 0, (1 << 63) - 1)
        _within("the number of symbols", self.number_of_symbols, 2, 1_000_000)
        _within("the number of correlations", self.number_of_correlations, 1, self.number_of_symbols // 2)
        _within("the number of strategies", self.number_of_strategies, 1, 10 * self.number_of_correlations)
        _within("the volatility", self.volatility, 0.0, 10.0)
        _within("the correlation", self.correlation, -1.0, 1.0)

    @property
    def markets(self) -> int:
        return markets(self.scale_factor)

    @property
    def number_of_symbols(self) -> int:
        return SYMBOLS_PER_MARKET * self.markets if self.symbols is None else self.symbols

    @property
    def number_of_correlations(self) -> int:
        return self.number_of_symbols // 4 if self.correlations is None else self.correlations

    @property
    def number_of_strategies(self) -> int:
        return STRATEGIES_PER_SCALE * self.scale_factor if self.strategies is None else self.strategies

    @cached_property
    def curve(self) -> RateCurve:
        basis = float(BASIS_RATE_PER_MARKET * self.markets) if self.basis_rate is None else self.basis_rate
        peak = PEAK_TO_BASIS * basis if self.peak_rate is None else self.peak_rate
        return RateCurve(basis, peak, self.shortened, self.varying_rate)


def _within(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(f"{what} is {value:g}: write one from {least:g} to {most:g}")


class Market:
    """The symbols, the correlations and, each time anew from the first, the ticks of these settings."""

    def __init__(self, settings: MarketSettings) -> None:
        self.settings = settings
        self.symbols = _names(settings)
        self.correlations = _correlations(settings, self.symbols)
        self._dictionary = pa.array(self.symbols, pa.string())

    def batches(self, rows: int = CHUNK_TICKS) -> Iterator[pa.RecordBatch]:
        """All ticks as Arrow batches of `rows` rows (the last one may be shorter)."""
        return (ticks.batch(self._dictionary) for ticks in self.ticks(rows))

    def ticks(self, rows: int = CHUNK_TICKS) -> Iterator[Ticks]:
        """All ticks as columns of `rows` rows (the last ones may be shorter)."""
        return rechunked(self._blocks(), rows)

    def _blocks(self) -> Iterator[Ticks]:
        settings, curve = self.settings, self.settings.curve
        symbols = len(self.symbols)
        rounds = max(1, _BLOCK_TICKS // symbols)
        length = rounds * symbols
        turn = np.tile(np.arange(symbols, dtype=np.int32), rounds)
        paths = _Paths(settings, symbols, self._pair_places())
        arrived = 0.0
        block = 0
        while True:
            if settings.arrivals is Arrivals.POISSON:
                gaps = random_source(settings.seed, _ARRIVALS, block).standard_exponential(length)
                counts = arrived + np.cumsum(gaps)
                arrived = float(counts[-1])
            else:
                counts = np.arange(block * length, (block + 1) * length, dtype=np.float64)
            seconds = curve.times(np.minimum(counts, curve.expected_ticks))
            price = paths.prices(block, seconds.reshape(rounds, symbols)[:, 0])
            sizes = random_source(settings.seed, _SIZES, block).integers(10, 101, length, dtype=np.int32) * np.int32(10)
            ticks = Ticks(turn, price.ravel(), sizes, (seconds * 1000.0).astype(np.int64))
            kept = int(np.searchsorted(counts, curve.expected_ticks, side="left"))
            if kept < length:
                if kept:
                    yield ticks[:kept]
                return
            yield ticks
            block += 1

    def _pair_places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        place = {name: i for i, name in enumerate(self.symbols)}
        first = np.array([place[one] for one, _ in self.correlations])
        second = np.array([place[other] for _, other in self.correlations])
        return first, second


class _Paths:
    """The prices of all symbols, round by round; keeps where the logarithms stand."""

    def __init__(
        self, settings: MarketSettings, symbols: int, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> None:
        self._settings = settings
        self._symbols = symbols
        self._first, self._second = pairs
        low, high = np.log(_FIRST_PRICES)
        self._logarithms = random_source(settings.seed, _PRICES, 1 << 62).uniform(low, high, symbols)
        self._seconds = 0.0

    def prices(self, block: int, seconds: NDArray[np.float64]) -> NDArray[np.int32]:
        """One row for each round; a round takes place at `seconds`."""
        settings = self._settings
        passed = np.diff(seconds, prepend=self._seconds) / settings.curve.seconds
        self._seconds = float(seconds[-1])
        steps = random_source(settings.seed, _PRICES, block).standard_normal((len(seconds), self._symbols))
        own = math.sqrt(1.0 - settings.correlation**2)
        steps[:, self._second] = settings.correlation * steps[:, self._first] + own * steps[:, self._second]
        steps *= (settings.volatility * np.sqrt(passed))[:, np.newaxis]
        steps -= (settings.volatility**2 / 2 * passed)[:, np.newaxis]
        steps[0] += self._logarithms
        np.cumsum(steps, axis=0, out=steps)
        self._logarithms = steps[-1].copy()
        np.exp(steps, out=steps)
        np.rint(steps, out=steps)
        return np.clip(steps, 1, _MOST_CENTS, out=steps).astype(np.int32)


def _names(settings: MarketSettings) -> tuple[str, ...]:
    """Six random letters each, all different."""
    random = random_source(settings.seed, _NAMES, 0)
    names: dict[str, None] = {}
    while len(names) < settings.number_of_symbols:
        letters = random.integers(0, len(_LETTERS), (settings.number_of_symbols, 6))
        names.update(dict.fromkeys("".join(_LETTERS[i] for i in row) for row in letters))
    return tuple(names)[: settings.number_of_symbols]


def _correlations(settings: MarketSettings, symbols: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Pairs of symbols, none twice; a pair is of one market, and the correlations of a market follow each other."""
    random = random_source(settings.seed, _NAMES, 1)
    pairs: list[tuple[str, str]] = []
    groups = max(1, len(symbols) // SYMBOLS_PER_MARKET)
    for group, of_group in enumerate(np.array_split(np.arange(len(symbols)), groups)):
        wanted = settings.number_of_correlations * (group + 1) // groups - len(pairs)
        drawn = random.permutation(of_group)[: 2 * wanted]
        pairs.extend((symbols[one], symbols[other]) for one, other in zip(drawn[::2], drawn[1::2], strict=True))
    if len(pairs) < settings.number_of_correlations:
        raise InputError(
            f"{settings.number_of_correlations} correlations do not fit into {len(symbols)} symbols: "
            f"write at most one for two symbols of a market"
        )
    return tuple(pairs)
