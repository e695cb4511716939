"""Which events of a stream are late, where its source knows the order in which they come.

Such a source gives each row its place in the order (`PLACE`). An event is late if its time is below the largest time of
all events before it minus LATENESS; with a SEQUENCE also if its time is exactly there and an event before it has the
same time and a greater sequence. So says the contract, and so does `operators.reorder`, for one run of events.

On Spark the events of a micro-batch are read side by side, so the judgement is made in two parts:

    packer   sees a stretch: a run of events with none of the stream's others between. It marks every event (`marks`)
             and tells all buckets of the stretch's place, its largest time and its `Ties`.
    bucket   knows what all stretches tell, and all micro-batches before: so what comes before a stretch (`Arrivals`).

Invariants:
1. The places of a micro-batch rise within each task, and the places that one task reads are not between two of another.
2. All events of a micro-batch come after those of the one before.

Why: docs/decisions/arrival-by-file-place.md
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s
from penstock.operators.reorder import START

Marks = NDArray[np.int8]

PLACE = "_penstock_place"
"""The column by which a source says where in its order a row is; NULL for rows that are no events."""

MARK = "$mark"
"""The hidden column of marks in packed events."""

LATE, DUE, PRECEDES = 1, 2, 4
"""Marks of an event, by the events of its stretch alone: it is late; the watermark has reached its time; an event
before it has the same time and a greater sequence."""


class Ties(NamedTuple):
    """For rising times the greatest sequence of an event at that time; all times that can still be the watermark."""

    times: Int64s
    sequences: Int64s

    def precedes(self, times: Int64s, sequences: Int64s) -> Bools:
        """Whether there is an event at the same time with a greater sequence."""
        if not len(self.times):
            return np.zeros(len(times), np.bool_)
        at = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        found: Bools = (self.times[at] == times) & (self.sequences[at] > sequences)
        return found


NO_TIES = Ties(np.empty(0, np.int64), np.empty(0, np.int64))


def sequences_of(events: pa.RecordBatch, sequence: str | None) -> Int64s | None:
    if sequence is None:
        return None
    found: Int64s = events.column(sequence).cast(pa.int64()).fill_null(START).to_numpy(zero_copy_only=False)
    return found


def marks(times: Int64s, sequences: Int64s | None, lateness: int) -> Marks:
    """The marks of a stretch's events, in the order in which they come.

    >>> marks(np.array([10, 4, 5, 11, 5]), None, lateness=5).tolist()
    [0, 1, 2, 0, 1]
    """
    watermarks = np.full(len(times), START)
    np.maximum.accumulate(times[:-1], out=watermarks[1:])
    watermarks[1:] -= lateness
    late, due = times < watermarks, times == watermarks
    found = np.where(late, LATE, 0) | np.where(due, DUE, 0)
    if sequences is not None:
        precedes = _precede(times, sequences)
        found |= np.where(precedes, PRECEDES, 0) | np.where(due & precedes, LATE, 0)
    return found.astype(np.int8)


def _precede(times: Int64s, sequences: Int64s) -> Bools:
    """Which events come after one with the same time and a greater sequence."""
    steps = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (sequences[1:] >= sequences[:-1]))
    if steps.all():
        return np.zeros(len(times), np.bool_)
    ranks = np.empty(len(times), np.int64)
    ranks[np.lexsort((np.arange(len(times)), sequences, times))] = np.arange(len(times))
    # By time, and as they came; the greatest rank so far is of the same time, or less than all of this time.
    order = np.argsort(times, kind="stable")
    so_far = np.maximum.accumulate(ranks[order])
    found = np.empty(len(times), np.bool_)
    found[order] = so_far > ranks[order]
    return found


def ties(times: Int64s, sequences: Int64s | None, lateness: int) -> Ties:
    """Those of a stretch. An event of a later stretch is at the watermark only if that is at least the stretch's."""
    if sequences is None:
        return NO_TIES
    return _latest([Ties(times, sequences)], int(times.max()) - lateness)


def _latest(several: Iterable[Ties], since: int) -> Ties:
    """The greatest sequence of each time that is not before `since`."""
    times = np.concatenate([one.times for one in several])
    sequences = np.concatenate([one.sequences for one in several])
    kept = times >= since
    times, sequences = times[kept], sequences[kept]
    order = np.lexsort((sequences, times))
    times, sequences = times[order], sequences[order]
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    return Ties(times[last], sequences[last])


def encode_ties(found: Ties) -> bytes | None:
    return None if not len(found.times) else np.concatenate(found).astype("<i8").tobytes()


def decode_ties(encoded: bytes | None) -> Ties:
    if not encoded:
        return NO_TIES
    both = np.frombuffer(encoded, "<i8").astype(np.int64)
    return Ties(both[: len(both) // 2], both[len(both) // 2 :])


class Told(NamedTuple):
    """What a packer tells of a stretch."""

    place: int
    last: int
    ties: Ties


class Arrivals:
    """One stream in one micro-batch. `last` is the largest time of the micro-batches before, if there were events, and
    `before` are their ties."""

    def __init__(self, last: int | None, before: Ties, stretches: Sequence[Told], lateness: int) -> None:
        self._lateness = lateness
        told = sorted(stretches, key=lambda stretch: stretch.place)
        self._places = [stretch.place for stretch in told]
        self._ties = [before, *(stretch.ties for stretch in told)]
        first = START + lateness if last is None else last
        self._largest = np.maximum.accumulate([first, *(stretch.last for stretch in told)]).tolist()

    def watermark(self, place: int) -> int:
        """The one that the stretch at a place begins with: events below it are late."""
        largest: int = self._largest[bisect_left(self._places, place)]
        return largest - self._lateness

    def late(self, place: int, times: Int64s, sequences: Int64s | None, marked: Marks) -> Bools:
        """Which of some events of the stretch at a place are late."""
        watermark = self.watermark(place)
        late: Bools = (marked & LATE != 0) | (times < watermark)
        if sequences is not None:
            due = np.flatnonzero(~late & ((marked & DUE != 0) | (times == watermark)))
            if len(due):
                precedes = marked[due] & PRECEDES != 0
                for told in self._ties[: bisect_left(self._places, place) + 1]:
                    precedes |= told.precedes(times[due], sequences[due])
                late[due] = precedes
        return late

    def ties(self) -> Ties:
        """Those that the next micro-batch has to know."""
        return _latest(self._ties, self._largest[-1] - self._lateness)
