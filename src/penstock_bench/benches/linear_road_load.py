"""The load of a trial: some expressways at the peak of the three hours, second by second.

A trial would have to wait for three hours until the peak, so it takes a stretch of a few seconds around the last full
minute. What leads up to it is thinned:

    five minutes before     one report from each segment in each minute, so that the windows over them are full
    the last round          a car reports every 30 seconds: the reports of those cars that report in the stretch
    the stretch             everything, at the road's own density, with a full minute in its middle

All expressways are one that is repeated under other numbers. The table of the ten weeks has the cars that ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from penstock_bench.workloads.linear_road.history import TOLL
from penstock_bench.workloads.linear_road.reports import BALANCE, EXPENDITURE, REPORT, REPORT_EVERY, write_integers
from penstock_bench.workloads.linear_road.traffic import THREE_HOURS, VEHICLES, Traffic, repeated, repeated_tolls

_MINUTE = 60
_WINDOW = 5 * _MINUTE
PEAK = THREE_HOURS // _MINUTE * _MINUTE
"""The last full minute of the three hours."""


@dataclass(frozen=True)
class Part:
    """A process has `own` expressways of `roads`, from `first` on, and the questions of balances of the others.

    An account is the sum of what a car was charged on all expressways, so every process answers with its part of it.
    """

    roads: int
    first: int = 0
    own: int | None = None

    @classmethod
    def of(cls, roads: int, number: int, processes: int) -> Part:
        """
        >>> Part.of(5, 0, 2), Part.of(5, 1, 2)
        (Part(roads=5, first=0, own=2), Part(roads=5, first=2, own=3))
        """
        first, stop = roads * number // processes, roads * (number + 1) // processes
        return cls(roads, first, stop - first)

    def batch(self, second: pa.Table) -> pa.RecordBatch:
        """The rows of one second of an expressway, as those that come to this process."""
        if self.own is None or self.own == self.roads:
            return _batch(repeated([second], self.roads))
        pieces = list(repeated([second], self.own)) if self.own else []
        shifted = [_shifted(piece, self.first) for piece in pieces]
        questions = second.filter(pa.array(second["type"].to_numpy() == BALANCE))
        before, behind = self.first, self.roads - self.first - self.own
        for copies, first in ((before, 0), (behind, self.first + self.own)):
            if copies and len(questions):
                shifted += [_shifted(piece, first) for piece in repeated([questions], copies)]
        return _batch(shifted)


def _batch(pieces: Iterable[pa.Table]) -> pa.RecordBatch:
    whole = pa.concat_tables([REPORT.arrow.empty_table(), *pieces]).combine_chunks()
    return whole.to_batches()[0] if len(whole) else pa.RecordBatch.from_pylist([], schema=whole.schema)


def _shifted(rows: pa.Table, first: int) -> pa.Table:
    """The same under the numbers of copies from `first` on."""
    for name, distance in (("vid", VEHICLES), ("qid", VEHICLES), ("xway", 1)) if first else ():
        place = rows.column_names.index(name)
        column = rows.column(place).to_numpy()
        moved = np.where(column < 0, column, column + np.int32(first * distance))
        rows = rows.set_column(place, rows.field(place), pa.array(moved))
    return rows


@dataclass(frozen=True)
class Stretch:
    """One expressway: the thinned reports that lead up to the stretch, its own, and what was paid before.

    The rows of `lead_up` and `reports` are in order of time. `begin` is the first second of the stretch.
    """

    begin: int
    seconds: int
    lead_up: pa.Table
    reports: pa.Table
    tolls: pa.Table

    @property
    def per_second(self) -> float:
        """Reports and questions of one expressway."""
        return len(self.reports) / self.seconds

    def lead_up_of(self, part: Part) -> Iterator[pa.RecordBatch]:
        """What leads up to the stretch, a batch for each second."""
        return (part.batch(second) for second in _seconds(self.lead_up))

    def reports_of(self, part: Part) -> list[pa.RecordBatch]:
        """A batch for each second of the stretch."""
        return [part.batch(second) for second in _seconds(self.reports)]

    def write_tolls(self, path: Path, part: Part) -> None:
        write_integers(path, [repeated_tolls(self.tolls, part.roads)], TOLL)

    def write(self, directory: Path) -> None:
        for name in ("lead_up", "reports", "tolls"):
            feather.write_feather(getattr(self, name), str(directory / f"{name}.feather"), compression="uncompressed")

    @classmethod
    def read(cls, directory: Path, begin: int, seconds: int) -> Stretch:
        """What `write` wrote."""
        parts = [feather.read_table(directory / f"{name}.feather") for name in ("lead_up", "reports", "tolls")]
        return cls(begin, seconds, *parts)


def peaks(lengths: Sequence[int], seed: int = 1, *, boundary: int = PEAK) -> list[Stretch]:
    """Stretches of so many seconds of one expressway, around a full minute."""
    longest = max(lengths)
    begin = max(0, boundary - longest // 2 - REPORT_EVERY - _WINDOW)
    traffic = Traffic(seed=seed, begin=begin, seconds=boundary + longest)
    rows = pa.concat_tables(traffic.tables()).combine_chunks()
    return [_around(boundary, seconds, rows, traffic) for seconds in lengths]


def _around(boundary: int, seconds: int, rows: pa.Table, traffic: Traffic) -> Stretch:
    begin = boundary - seconds // 2
    time = rows["time"].to_numpy()
    last_round = begin - REPORT_EVERY
    sparse = rows.filter(pa.array(time < last_round))
    reporting = rows.filter(pa.array((time >= last_round) & (time < last_round + seconds)))
    reports = rows.filter(pa.array((time >= begin) & (time < begin + seconds)))
    asking = reports.filter(pa.array(reports["type"].to_numpy() == EXPENDITURE))["vid"].to_numpy()
    lead_up = pa.concat_tables([_one_of_each_segment(sparse), reporting]).combine_chunks()
    return Stretch(begin, seconds, lead_up, reports, traffic.tolls(np.unique(asking)))


def _one_of_each_segment(rows: pa.Table) -> pa.Table:
    """The first report of each minute from each segment."""
    minute, way, segment = rows["time"].to_numpy() // _MINUTE, rows["dir"].to_numpy(), rows["seg"].to_numpy()
    _, first = np.unique((minute * 2 + way) * 1000 + segment, return_index=True)
    return rows.take(pa.array(np.sort(first)))


def _seconds(rows: pa.Table) -> list[pa.Table]:
    """The rows of each second."""
    cuts = np.flatnonzero(np.diff(rows["time"].to_numpy())) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    return [rows.slice(start, stop - start) for start, stop in pairwise(bounds)]
