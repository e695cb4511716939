"""What a driver has to do, as *legs* that follow one another: the phases of made events, or a replay.

A leg gives its events in *stretches*: the times at which they are due, and for each stream the columns of its events.
The pacer says how long a stretch shall be, makes it between two sends, and cuts it into batches when it knows the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_bench.measure.load.arrivals import Schedule, Times
from penstock_bench.measure.load.fields import Fields
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Driver, Phase, Stream


@dataclass(frozen=True)
class Part:
    """The events of one stream in a stretch: `places[i]` is the place of event i among all; None is all of them."""

    stream: str
    columns: Mapping[str, pa.Array]
    places: NDArray[np.int64] | None = None

    def within(self, first: int, stop: int) -> tuple[int, int]:
        """Which of these events are among those from `first` to before `stop` of the stretch."""
        if self.places is None:
            return first, stop
        low, high = np.searchsorted(self.places, (first, stop))
        return int(low), int(high)


@dataclass(frozen=True)
class Stretch:
    """`times` are microseconds since the leg began; `stamps`, where given, are what the time column shall hold."""

    times: Times
    parts: tuple[Part, ...]
    stamps: Times | None = None


class Leg(Protocol):
    """`length_us` says when the next leg begins, at the earliest; None: after the last event. A leg that is not
    `paced` has its events sent as fast as they are taken, until they or the length have passed."""

    number: int
    name: str
    paced: bool
    length_us: int | None
    events: int | None
    """How many there are, where that is known."""

    def take(self, rows: int) -> Stretch | None:
        """The next events, `rows` at most; None when there are no more."""

    def due(self, us: float) -> float:
        """How many events are due by a time since the leg began, on average."""


class MadeLeg:
    """A phase of made events. Fields go on from leg to leg, so they are handed in."""

    def __init__(self, phase: Phase, number: int, share: Share, makers: Mapping[str, Fields]) -> None:
        self.number = number
        self.name = phase.name
        self._schedule = Schedule(phase, number, share)
        self.paced = self._schedule.paced
        self.length_us = self._schedule.length_us
        self.events = self._schedule.events
        mix = dict.fromkeys(makers, 1.0) if phase.mix is None else phase.mix
        self._makers = {name: makers[name] for name, weight in mix.items() if weight > 0}
        weights = np.array([mix[name] for name in self._makers])
        self._shares = np.cumsum(weights / weights.sum())[:-1]
        self._picks = share.random(phase.seed, number, 1)

    def take(self, rows: int) -> Stretch | None:
        times = self._schedule.take(rows)
        return Stretch(times, tuple(self._parts(len(times)))) if len(times) else None

    def _parts(self, count: int) -> Iterator[Part]:
        if len(self._makers) == 1:
            ((name, maker),) = self._makers.items()
            yield Part(name, maker.take(count))
            return
        picked = np.searchsorted(self._shares, self._picks.random(count), side="right")
        for index, (name, maker) in enumerate(self._makers.items()):
            places = np.flatnonzero(picked == index)
            yield Part(name, maker.take(len(places)), places)

    def due(self, us: float) -> float:
        return self._schedule.due(us)


def made_legs(driver: Driver, streams: Mapping[str, Stream], share: Share) -> list[Leg]:
    """The phases of a driver."""
    seed = driver.phases[0].seed
    makers = {}
    for name, fields in driver.fields.items():
        stream = streams[name]
        columns = {column: kind for column, kind in stream.columns.items() if column != stream.time}
        makers[name] = Fields(columns, fields, share, seed, f"drivers.{driver.name}.fields.{name}")
    return [MadeLeg(phase, number, share, makers) for number, phase in enumerate(driver.phases)]
