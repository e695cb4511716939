"""Traffic on one expressway, after the Linear Road benchmark: cars that report their position every 30 seconds.

Each report is what a car sends: time in seconds, car, speed in miles per hour, expressway, lane, direction, segment (a
mile) and position in feet. Now and then two cars collide and stand for some minutes, and who drives behind them slows
down. The same seed gives the same traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.types import Field, Schema, SqlType

REPORT = Schema(
    tuple(
        Field(name, SqlType.INT, nullable=False)
        for name in ("time", "car", "speed", "expressway", "lane", "direction", "segment", "position")
    )
)
Report = tuple[int, int, int, int, int, int, int, int]

REPORT_EVERY = 30
SEGMENTS = 100
FEET_PER_MILE = 5280
_FEET_PER_SECOND = FEET_PER_MILE / 3600


def as_line(report: Report) -> bytes:
    """A report as the benchmark's input has it: 15 numbers, the kind of message first; the last six are for others.

    >>> as_line((30, 7, 55, 0, 2, 1, 3, 15900))
    b'0,30,7,55,0,2,1,3,15900,-1,-1,-1,-1,-1,-1'
    """
    return b",".join(b"%d" % value for value in (0, *report, *(-1,) * 6))


def from_line(line: bytes) -> tuple[int, ...]:
    """The report of such a line.

    >>> from_line(b"0,30,7,55,0,2,1,3,15900,-1,-1,-1,-1,-1,-1")
    (30, 7, 55, 0, 2, 1, 3, 15900)
    """
    return tuple(map(int, line.split(b",")))[1:9]


@dataclass(frozen=True)
class Traffic:
    """`cars` on the road at any time; each has an accident with this chance per report."""

    cars: int
    minutes: int
    accident_chance: float = 0.0005
    seed: int = 1

    def reports(self) -> Iterator[Report]:
        """All reports in the order of their times."""
        road = _Road(self)
        for second in range(self.minutes * 60):
            yield from road.second(second)


class _Road:
    def __init__(self, traffic: Traffic) -> None:
        self._random = np.random.default_rng(traffic.seed)
        self._chance = traffic.accident_chance
        places = traffic.cars
        self._cars = np.arange(places)
        self._next_car = places
        self._direction = self._random.integers(0, 2, places)
        self._position = self._random.uniform(0, SEGMENTS * FEET_PER_MILE, places)
        self._stands_until = np.zeros(places, np.int64)

    def second(self, second: int) -> list[Report]:
        """The reports of the cars whose turn it is."""
        places = np.arange(second % REPORT_EVERY, len(self._cars), REPORT_EVERY)
        standing = self._stands_until[places] > second
        speed = np.where(standing, 0, self._random.integers(20, 100, len(places)))
        self._position[places] += speed * _FEET_PER_SECOND * REPORT_EVERY
        self._replace_who_left(places)
        self._collide(places[~standing], second)
        position = self._position[places].astype(np.int64)
        lanes = self._random.integers(1, 4, len(places))
        columns = (self._cars[places], speed, lanes, self._direction[places], position // FEET_PER_MILE, position)
        listed = zip(*(column.tolist() for column in columns), strict=True)
        return [(second, car, v, 0, lane, direction, seg, pos) for car, v, lane, direction, seg, pos in listed]

    def _replace_who_left(self, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        left = places[self._position[places] >= SEGMENTS * FEET_PER_MILE]
        self._cars[left] = np.arange(self._next_car, self._next_car + len(left))
        self._next_car += len(left)
        self._position[left] = self._random.uniform(0, FEET_PER_MILE, len(left))

    def _collide(self, places: np.ndarray[tuple[int], np.dtype[np.int64]], second: int) -> None:
        """A car that has an accident takes its neighbour in the list with it, to the same place and direction."""
        hit = np.flatnonzero(self._random.random(len(places)) < self._chance)
        for index in hit[hit + 1 < len(places)].tolist():
            pair = places[[index, index + 1]]
            self._position[pair[1]], self._direction[pair[1]] = self._position[pair[0]], self._direction[pair[0]]
            self._stands_until[pair] = second + int(self._random.integers(6, 16)) * REPORT_EVERY
