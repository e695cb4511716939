"""A replay as a leg of a driver: records of a file at their own times, faster or slower, at a fixed rate, or closed.

Times within the leg are made of the records' times (or of their number) and never go back: a record that is older
than one before it is due together with that one. Each repetition follows the one before by the mean gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock_bench.measure.load.arrivals import Times
from penstock_bench.measure.load.legs import Part, Stretch
from penstock_bench.measure.load.recorded import LATEST_US, RecordedFile, Records
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Pace, Replay, Stream

_READ_ROWS = 8_192
_CLOSED_READ_ROWS = 65_536


class ReplayLeg:
    number: int = 0
    name: str = "replay"
    length_us: int | None = None
    events: int | None = None

    def __init__(self, replay: Replay, streams: Mapping[str, Stream], share: Share, where: str) -> None:
        self._replay = replay
        self._share = share
        self._where = where
        self._file = RecordedFile(replay, streams, where)
        self.paced = replay.pace is not Pace.MAX
        self._rows = 0
        self._first: int | None = None  # the time of the first record
        self._latest = 0  # the latest time of a record since the first one, repetitions included
        self._shift = 0  # what the repetitions before this one took, by the records' times
        self._left: tuple[Stretch, int] | None = None
        self._stretches = self._all()
        self._left = next(((stretch, 0) for stretch in self._stretches), None)
        if self._left is None:
            raise InputError(f"{where}.file: {replay.file} has no records")

    def take(self, rows: int) -> Stretch | None:
        if self._left is None:
            self._left = next(((stretch, 0) for stretch in self._stretches), None)
        if self._left is None:
            return None
        stretch, first = self._left
        stop = min(first + rows, len(stretch.times))
        self._left = (stretch, stop) if stop < len(stretch.times) else None
        return _cut(stretch, first, stop)

    def due(self, us: float) -> float:
        return 0.0 if self._replay.rate is None else self._replay.rate * us / 1e6

    def _all(self) -> Iterator[Stretch]:
        for _ in range(self._replay.repeat):
            before = self._rows
            for records in self._file.read(_READ_ROWS if self.paced else _CLOSED_READ_ROWS):
                yield self._stretch(records)
            rows = self._rows - before
            span = self._latest - self._shift
            self._shift = self._latest + max(1, round(span / (rows - 1)) if rows > 1 else 1_000_000)

    def _stretch(self, records: Records) -> Stretch:
        count = len(records)
        stamps = None
        since: Times | None = None
        if records.times is not None:
            if self._first is None:
                self._first = int(records.times[0])
            since = records.times - self._first + self._shift
            stamps = records.times + self._shift if self._replay.keep_times else None
            since = np.maximum(np.maximum.accumulate(since), self._latest)
            self._latest = int(since[-1])
        numbers = np.arange(self._rows, self._rows + count)
        self._rows += count
        if self._replay.rate is not None:
            times = (numbers * 1e6 / self._replay.rate).astype(np.int64)
        elif since is not None:
            times = self._scaled(since) if self._replay.speed != 1 else since
        else:
            times = numbers
        total = self._share.total
        times = times // total * total + self._share.number
        return Stretch(times, tuple(self._parts(records)), stamps)

    def _scaled(self, since: Times) -> Times:
        scaled = since / self._replay.speed
        if not scaled[-1] < LATEST_US:
            raise InputError(f"{self._where}.speed: at {self._replay.speed:g} times the speed records are never due")
        return scaled.astype(np.int64)

    def _parts(self, records: Records) -> Iterator[Part]:
        if records.streams is None:
            ((stream, payload),) = self._file.payload.items()
            yield Part(stream, {name: records.columns[name] for name in payload})
            return
        found = 0
        for stream, payload in self._file.payload.items():
            mask = pc.fill_null(pc.equal(records.streams, stream), False)
            places = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            found += len(places)
            if len(places):
                taken = pa.array(places)
                yield Part(stream, {name: records.columns[name].take(taken) for name in payload}, places)
        if found < len(records):
            known = pa.array(list(self._file.payload))
            odd = pc.index(pc.is_in(records.streams, known), False).as_py()
            raise InputError(
                f"{self._where}.type_column: record {self._rows - len(records) + odd + 1} of {self._replay.file} is of"
                f" type {records.streams[odd].as_py()!r}; the setup's streams that have their columns there:"
                f" {', '.join(self._file.payload)}"
            )


def _cut(stretch: Stretch, first: int, stop: int) -> Stretch:
    if first == 0 and stop == len(stretch.times):
        return stretch
    parts = []
    for part in stretch.parts:
        low, high = part.within(first, stop)
        columns = {name: column.slice(low, high - low) for name, column in part.columns.items()}
        places = None if part.places is None else part.places[low:high] - first
        parts.append(replace(part, columns=columns, places=places))
    stamps = None if stretch.stamps is None else stretch.stamps[first:stop]
    return Stretch(stretch.times[first:stop], tuple(parts), stamps)
