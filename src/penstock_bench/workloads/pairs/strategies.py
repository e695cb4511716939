"""The strategies of a Pairs run: parameters drawn from the thesis' Table B.1, five strategies for each user.

Correlations are served in groups of 25, the markets. In a group the first 25 strategies watch each correlation once,
the next 25 once more, up to ten for each; then comes the next group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from penstock.errors import InputError
from penstock.generators.chunks import random_source
from penstock_bench.workloads.pairs.market import CORRELATIONS_PER_MARKET

STRATEGIES_PER_USER: Final = 5
STRATEGIES_PER_CORRELATION: Final = 10

AVAILABLE_FUNDS: Final = (1_000_000, 2_000_000, 5_000_000)
"""In cents: 10k, 20k, 50k."""
PERIOD_LENGTHS: Final = (5, 10, 20, 30, 60)
NUMBERS_OF_PERIODS: Final = (5, 6, 7, 8, 9, 10, 15, 20, 25, 30)
BANDS_MULTIPLIERS: Final = (1.2, 1.5, 1.8, 2.0)
STOP_LOSSES: Final = (0.1, 0.2, 0.3)

_PARAMETERS = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Strategy:
    """One strategy; funds in cents, the length of a period in seconds, the stop loss as a part of one."""

    alias: str
    available_funds: int
    symbol1: str
    symbol2: str
    period_length: int
    num_periods: int
    bands_multiplier: float
    stop_loss_perc: float


def strategies(correlations: Sequence[tuple[str, str]], count: int, seed: int) -> list[Strategy]:
    """The first `count` strategies over these correlations; a longer list begins with the same ones."""
    most = STRATEGIES_PER_CORRELATION * len(correlations)
    if not 0 < count <= most:
        raise InputError(
            f"{count} strategies do not fit to {len(correlations)} correlations: write a number from 1 to {most}, "
            f"since at most {STRATEGIES_PER_CORRELATION} strategies watch one correlation"
        )
    random = random_source(seed, _PARAMETERS, 0)
    made = []
    for number in range(count):
        symbol1, symbol2 = correlations[_correlation_of(number, len(correlations))]
        made.append(
            Strategy(
                alias=f"st_{number + 1:05d}",
                available_funds=_one_of(random, AVAILABLE_FUNDS),
                symbol1=symbol1,
                symbol2=symbol2,
                period_length=_one_of(random, PERIOD_LENGTHS),
                num_periods=_one_of(random, NUMBERS_OF_PERIODS),
                bands_multiplier=_one_of(random, BANDS_MULTIPLIERS),
                stop_loss_perc=_one_of(random, STOP_LOSSES),
            )
        )
    return made


def user_of(number: int) -> int:
    """The user (from 0) that manages strategy `number` (from 0)."""
    return number // STRATEGIES_PER_USER


def _correlation_of(number: int, correlations: int) -> int:
    group, within = divmod(number, STRATEGIES_PER_CORRELATION * CORRELATIONS_PER_MARKET)
    first = group * CORRELATIONS_PER_MARKET
    return first + within % min(CORRELATIONS_PER_MARKET, correlations - first)


def _one_of(random: np.random.Generator, values: Sequence[T]) -> T:
    return values[int(random.integers(len(values)))]
