"""Sums of prices by period, and the last prices at the tick that closed each: what the validator knows of the ticks.

One pass over the ticks cuts time at the greatest common divisor of all period lengths. A slice of time becomes a row
when a tick closes it. The slices of one period are put together afterwards, for each period length. Only symbols that
strategies watch are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.instruments import kernel
from penstock_bench.workloads.pairs.ticks import Ticks

Integers = NDArray[np.int64]
_NONE_YET = -1


@dataclass(frozen=True)
class Periods:
    """One row for each closed period that has a tick, in order; the columns of the matrices are the watched symbols."""

    sums: Integers
    counts: Integers
    closed_by: Integers
    """tickTS of the tick that closed the period."""
    last_prices: Integers
    """As of that tick, which counts; 0 for a symbol that has had no tick."""


class PeriodSums:
    """Takes all ticks in order, then gives the periods of any length that `seconds` has."""

    def __init__(self, watched: Sequence[str], seconds: Iterable[int]) -> None:
        self._watched = {name: place for place, name in enumerate(watched)}
        self._slice = math.gcd(*seconds) * 1000
        self._places = np.empty(0, np.int64)
        count = len(watched)
        self._now = np.full(1, _NONE_YET, np.int64)
        self._sums, self._counts, self._last = (np.zeros(count, np.int64) for _ in range(3))
        self._rows: list[tuple[Integers, ...]] = []
        self._joined: tuple[Integers, ...] | None = None
        self.last_tick = _NONE_YET
        self.ticks = 0

    @property
    def last_prices(self) -> Integers:
        """As of the last tick."""
        return self._last

    def take(self, ticks: Ticks, symbols: Sequence[str]) -> None:
        """`symbols` are the names by their numbers in `ticks`."""
        if not len(ticks):
            return
        if len(symbols) != len(self._places):
            self._places = np.array([self._watched.get(name, -1) for name in symbols], np.int64)
        slices = ticks.tick_ts // self._slice
        most = int(np.count_nonzero(np.diff(slices))) + 1
        width = len(self._watched)
        number, closed_by = np.empty(most, np.int64), np.empty(most, np.int64)
        sums, counts, last = (np.empty((most, width), np.int64) for _ in range(3))
        made = _take(
            self._places, ticks.symbol, ticks.price, ticks.tick_ts, slices,
            self._now, self._sums, self._counts, self._last, number, closed_by, sums, counts, last,
        )  # fmt: skip
        self._rows.append((number[:made], closed_by[:made], sums[:made], counts[:made], last[:made]))
        self._joined = None
        self.last_tick = int(ticks.tick_ts[-1])
        self.ticks += len(ticks)

    def of(self, seconds: int) -> Periods:
        """All closed periods of this length."""
        if self._joined is None:
            self._joined = tuple(np.concatenate(column) for column in zip(*self._rows, strict=True))
        number, closed_by, sums, counts, last = self._joined
        length = seconds * 1000
        period = number * self._slice // length
        first = np.flatnonzero(np.diff(period, prepend=-1))
        final = np.append(first[1:], len(period)) - 1 if len(first) else first
        closed = closed_by[final] // length > period[final]
        whole = [np.add.reduceat(column, first, axis=0) if len(first) else column for column in (sums, counts)]
        return Periods(whole[0][closed], whole[1][closed], closed_by[final][closed], last[final][closed])


@kernel
def _take(
    places: Integers,
    symbol: NDArray[np.int32],
    price: NDArray[np.int32],
    tick_ts: Integers,
    slices: Integers,
    now: Integers,
    sums: Integers,
    counts: Integers,
    last: Integers,
    row_number: Integers,
    row_closed_by: Integers,
    row_sums: Integers,
    row_counts: Integers,
    row_last: Integers,
) -> int:
    """A tick counts among the last prices before it closes a slice, and in the sums of the slice after."""
    made = 0
    for tick in range(len(tick_ts)):
        place = places[symbol[tick]]
        if place >= 0:
            last[place] = price[tick]
        if slices[tick] != now[0]:
            if now[0] != _NONE_YET:
                row_number[made] = now[0]
                row_closed_by[made] = tick_ts[tick]
                row_sums[made] = sums
                row_counts[made] = counts
                row_last[made] = last
                made += 1
                sums[:] = 0
                counts[:] = 0
            now[0] = slices[tick]
        if place >= 0:
            sums[place] += price[tick]
            counts[place] += 1
    return made
