"""The traffic of a number of expressways over three hours, as the input of Linear Road: seeded and in order of time.

The published three-hour input of one expressway is a file of 597 MB, about 12 million rows over 10,784 seconds; its
rate is commonly given as 17 rows a second at the beginning and 1,700 at the end. Here the number of cars on the road
follows a curve that gives both: 17 + 1,683 · (t / 10,784)^0.55 reports a second. A journey joins two random segments,
so the middle of the road is the fullest, and it has about 100 reports. Cars come back for another journey, to any of
the expressways.

`Traffic` gives Arrow tables of the 15 columns. Its memory is that of the cars on the road. Big numbers of expressways
are cheaper to have by `repeated`: the same traffic again under other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.types import Schema
from penstock_bench.workloads.linear_road import history, motion
from penstock_bench.workloads.linear_road.reports import REPORT, REPORT_EVERY, SEGMENTS

THREE_HOURS = 10_784
FIRST_RATE, LAST_RATE = 17, 1700
"""Reports a second of an expressway, at the beginning and at the end of the three hours."""

GROWTH = 0.55
VEHICLES = 1_000_000
"""An expressway has fewer cars and fewer questions: the distance between the numbers of two copies."""

_POOL = 1 << 16
_SECONDS_AT_ONCE = 60


@dataclass(frozen=True)
class Traffic:
    """`roads` expressways; the same fields give the same rows.

    Rows are from second `begin` on; before `full_from` only one car in `thinned` is seen, and none before `begin`. With
    a `stretch` the cars are only on these segments (the first and the last), as dense as on the whole road.
    """

    roads: int = 1
    seed: int = 1
    seconds: int = THREE_HOURS
    begin: int = 0
    full_from: int = 0
    thinned: int = 1
    stretch: tuple[int, int] = (0, SEGMENTS - 1)

    def tables(self, step: int = 60) -> Iterator[pa.Table]:
        """The rows, `step` seconds to a table."""
        first, last = self.stretch
        if self.roads < 1 or self.thinned < 1 or not 0 <= first < last < SEGMENTS:
            raise ValueError(f"{self}: roads and thinned are at least 1, a stretch is of two segments or more, 0 to 99")
        state = _State(self)
        second = state.run(0, self.begin, [])
        while second < self.seconds:
            pieces: list[NDArray[np.int32]] = []
            second = state.run(second, min(second + step, self.seconds), pieces)
            rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
            yield pa.table(list(rows), schema=REPORT.arrow)

    def tolls(self, vids: NDArray[np.int32]) -> pa.Table:
        """What these cars paid in the ten weeks before: `history.tolls`."""
        return history.tolls(self.seed, self.roads, vids)

    def segments(self) -> pa.Table:
        """How the segments were in the ten weeks before: `history.segments`."""
        return history.segments(self.seed, self.roads)

    def cars_wanted(self) -> NDArray[np.int64]:
        """For each second the cars on one expressway."""
        first, last = self.stretch
        passed = np.arange(self.seconds) / THREE_HOURS
        rate = FIRST_RATE + (LAST_RATE - FIRST_RATE) * passed**GROWTH
        return (rate * REPORT_EVERY * (last - first + 1) / SEGMENTS).astype(np.int64)


class _State:
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._wanted = traffic.cars_wanted()
        most = (int(self._wanted.max(initial=0)) + REPORT_EVERY) * traffic.roads
        self._world = np.zeros(1, motion.WORLD)
        world = self._world[0]
        world["random"], world["seed"], world["roads"] = traffic.seed, traffic.seed, traffic.roads
        world["first_segment"], world["last_segment"] = traffic.stretch
        world["next_vid"] = world["next_qid"] = 1
        self._cars = np.zeros(most, motion.CAR)
        self._free = np.append(np.arange(most), most)
        self._turns = np.zeros((REPORT_EVERY, 2 * most // REPORT_EVERY + REPORT_EVERY), np.int32)
        self._turn_cars = np.zeros(REPORT_EVERY, np.int64)
        self._counts = np.zeros((traffic.roads, 2, SEGMENTS), np.int64)
        self._on_road = np.zeros(traffic.roads, np.int64)
        self._accidents = np.zeros(2 * traffic.roads, motion.ACCIDENT)
        self._accidents["due"] = np.random.default_rng(traffic.seed).integers(300, 1200, 2 * traffic.roads)
        self._had_accident = np.zeros((2 * traffic.roads, SEGMENTS), np.int8)
        self._pool = np.zeros((_POOL * traffic.roads, 2), np.int64)

    def run(self, second: int, stop: int, pieces: list[NDArray[np.int32]]) -> int:
        """Appends the rows of the seconds up to `stop`; returns `stop`."""
        traffic = self._traffic
        while second < stop:
            seconds = min(stop - second, _SECONDS_AT_ONCE)
            enter = int(self._wanted[second + seconds - 1]) // REPORT_EVERY + 1
            report = int(self._turn_cars.max()) + 2 * enter * traffic.roads
            room = report * (seconds + 2) if stop > traffic.begin else 2
            out = np.empty((len(REPORT), room), np.int32)
            rows, second = motion.advance(
                second,
                second + seconds,
                self._wanted,
                self._world,
                self._cars,
                self._free,
                self._turns,
                self._turn_cars,
                self._counts,
                self._on_road,
                self._accidents,
                self._had_accident,
                self._pool,
                out,
                traffic.full_from,
                traffic.thinned,
                traffic.begin,
            )
            pieces.append(out[:, :rows])
        return stop


def repeated(tables: Iterable[pa.Table], copies: int, roads: int = 1) -> Iterator[pa.Table]:
    """Each table `copies` times, its `roads` expressways, cars and questions under other numbers, in order of time."""
    for table in tables:
        yield pa.table(list(_copied(table, copies, roads)), schema=REPORT.arrow)


def repeated_tolls(tolls: pa.Table, copies: int, roads: int = 1) -> pa.Table:
    """The ten-week tolls of such copies."""
    return _again(tolls, history.TOLL, copies, {"vid": VEHICLES * roads, "xway": roads})


def repeated_segments(segments: pa.Table, copies: int, roads: int = 1) -> pa.Table:
    """The statistics of the segments of such copies."""
    return _again(segments, history.SEGMENT, copies, {"xway": roads})


def _again(table: pa.Table, schema: Schema, copies: int, distance: Mapping[str, int]) -> pa.Table:
    number = np.repeat(np.arange(copies, dtype=np.int32), len(table))
    columns = [np.tile(table[n].to_numpy(), copies) + number * np.int32(distance.get(n, 0)) for n in schema.names]
    return pa.table(columns, schema=schema.arrow)


def _copied(table: pa.Table, copies: int, roads: int) -> NDArray[np.int32]:
    """Second by second one copy after the other."""
    columns = [column.to_numpy() for column in table.columns]
    out = np.empty((len(columns), len(table) * copies), np.int32)
    times = columns[REPORT.names.index("time")]
    starts = np.flatnonzero(np.diff(times, prepend=-1)).tolist()
    number = np.arange(copies, dtype=np.int32)[:, None]
    for name, column, target in zip(REPORT.names, columns, out, strict=True):
        distance = {"vid": VEHICLES * roads, "qid": VEHICLES * roads, "xway": roads}.get(name)
        for start, stop in zip(starts, [*starts[1:], len(table)], strict=True):
            rows = target[start * copies : stop * copies].reshape(copies, stop - start)
            rows[:] = column[start:stop]
            if distance is not None:
                np.add(rows, number * distance, out=rows, where=column[start:stop] >= 0)
    return out
