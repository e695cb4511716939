"""The load of a Pairs run, made before it: frames as they go over the wire, and when each is due.

A full run is the thesis' two hours in real time. A short one first sends history as fast as it is taken, so that all
count windows are full (30 periods of 60 seconds), and then a stretch in real time at the benchmark's own rates.
History is thinned: each symbol has a tick every 4 seconds, so one at least in every period. The stretch has a few
seconds that are not measured, the measurement interval, in which the rate goes from the basis to the peak and back, and
a short rest.

Invariants:
1. A tick is due at its tickTS, which is in whole milliseconds: the ticks of a millisecond are one frame. TS is that
   moment on the run's clock, in microseconds from the begin of the stretch; that of history is negative.
2. Between history and the stretch there is a frame without rows. The ticks are the same for each system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_bench.benches.pairs_systems import TICKS
from penstock_bench.measure.running.wire import FrameWriter
from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.rates import RateCurve
from penstock_bench.workloads.pairs.setup_xml import write_strategies
from penstock_bench.workloads.pairs.strategies import Strategy, strategies
from penstock_bench.workloads.pairs.ticks import Ticks

_HISTORY_PER_SYMBOL = 0.25
"""Ticks a second."""
_HISTORY_ROWS = 4096
_CORNER = 0.001
STOCK_TICK = 0
FRAMES, SCHEDULE, STRATEGIES = "frames.bin", "schedule.npy", "strategies.xml"


@dataclass(frozen=True)
class Phases:
    """Seconds: history, and of the stretch in real time what comes before, is, and comes after the measurement."""

    history: float
    before: float
    measured: float
    after: float

    @property
    def begin(self) -> float:
        """Where the measurement interval begins in event time."""
        return self.history + self.before

    @property
    def end(self) -> float:
        return self.begin + self.measured

    @property
    def stretch(self) -> float:
        return self.before + self.measured + self.after

    @property
    def whole(self) -> float:
        return self.history + self.stretch


@dataclass(frozen=True)
class ShortCurve(RateCurve):
    """The rate of a short run; `phases` has its lengths."""

    phases: Phases = Phases(0, 0, 1, 0)
    history_rate: float = 1.0

    @property
    def seconds(self) -> float:
        return self.phases.whole

    @cached_property
    def corners(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        p, thin = self.phases, self.history_rate
        times = [0.0, p.history, p.history + _CORNER, p.begin, p.begin + p.measured / 2, p.end, p.whole]
        rates = [thin, thin, self.basis, self.basis, self.peak, self.basis, self.basis]
        return np.array(times), np.array(rates)


@dataclass(frozen=True)
class ShortMarket(MarketSettings):
    phases: Phases = Phases(0, 0, 1, 0)

    @cached_property
    def curve(self) -> RateCurve:
        usual = super().curve
        thin = _HISTORY_PER_SYMBOL * self.number_of_symbols
        return ShortCurve(usual.basis, usual.peak, phases=self.phases, history_rate=thin)


@dataclass(frozen=True)
class Load:
    """What a run is made of; `directory` has it for the processes that send and take it."""

    directory: Path
    market: Market
    strategies: list[Strategy]
    phases: Phases

    @property
    def scale_factor(self) -> int:
        return self.market.settings.scale_factor

    @property
    def peak_rate(self) -> float:
        return self.market.settings.curve.peak


def prepared(market: Market, phases: Phases, directory: Path) -> Load:
    """Makes the strategies, the ticks and the files from which they are sent."""
    settings = market.settings
    made = strategies(market.correlations, settings.number_of_strategies, settings.seed)
    directory.mkdir(parents=True, exist_ok=True)
    write_strategies(directory / STRATEGIES, made)
    names = pa.array(market.symbols, pa.string())
    with (directory / FRAMES).open("wb") as file:
        frames = _Frames(file, names, round(phases.history * 1000))
        for ticks in market.ticks():
            frames.add(ticks)
        np.save(directory / SCHEDULE, frames.schedule())
    return Load(directory, market, made, phases)


class _Frames:
    """Writes frames one after the other; knows of each where it ends and the millisecond of the stretch that it is due.
    History is due at -1, and so is the frame without rows that ends it."""

    def __init__(self, file: Any, names: pa.Array, first: int) -> None:
        self._recorded = _Recorded(file)
        self._writer = FrameWriter(cast(Any, self._recorded))
        self._names = names
        self._first = first
        self._ended = False
        self._ends: list[int] = []
        self._due: list[int] = []

    def add(self, ticks: Ticks) -> None:
        batch = pa.record_batch(
            [
                self._names.take(pa.array(ticks.symbol)),
                pa.array(ticks.price),
                pa.array(ticks.size),
                pa.array(ticks.tick_ts),
                pa.array((ticks.tick_ts - self._first) * 1000),
            ],
            schema=TICKS,
        )
        begin = int(np.searchsorted(ticks.tick_ts, self._first))
        for start in range(0, begin, _HISTORY_ROWS):
            self._write(batch.slice(start, min(_HISTORY_ROWS, begin - start)), -1)
        if begin == len(ticks):
            return
        if not self._ended:
            self._ended = True
            self._write(batch.slice(0, 0), -1)
        moments, starts = np.unique(ticks.tick_ts[begin:], return_index=True)
        bounds = [*(begin + starts).tolist(), len(ticks)]
        for moment, start, end in zip((moments - self._first).tolist(), bounds[:-1], bounds[1:], strict=True):
            self._write(batch.slice(start, end - start), moment)

    def _write(self, batch: pa.RecordBatch, due: int) -> None:
        self._writer.write(STOCK_TICK, batch)
        self._ends.append(self._recorded.length)
        self._due.append(due)

    def schedule(self) -> NDArray[np.int64]:
        return np.column_stack((np.array(self._ends, np.int64), np.array(self._due, np.int64)))


class _Recorded:
    """A connection that keeps what is sent."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.length = 0

    def sendmsg(self, parts: Sequence[Any]) -> int:
        sent = sum(int(self._file.write(part)) for part in parts)
        self.length += sent
        return sent


def described(phases: Phases) -> str:
    """What a short run is, in words."""
    return (
        f"history of {phases.history:g} s as fast as it is taken, each symbol every {1 / _HISTORY_PER_SYMBOL:g} s;"
        f" then {phases.stretch:g} s in real time at the benchmark's rates, of which {phases.measured:g} s are measured"
    )
