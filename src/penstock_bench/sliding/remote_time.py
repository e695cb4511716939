"""Slides by the clock of a remote source, known only from the timestamps of tuples that come late: two approximations.

    `Arrivals`            the paper's Algorithm 2: a slide takes place with the first tuple whose timestamp has reached
                          it, and the next is counted from that timestamp
    `SynchronisedTimers`  a clock that follows the source's: a slide takes place when that clock says so, plus the delay
                          λ that tuples usually have, or when a tuple comes in that time

Both are there to be measured. They decide no results: those follow event time and the watermark, by the contract.
Times are whole numbers in one unit, of the source for timestamps and of this machine for arrivals.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.errors import InputError
from penstock.instruments import Candidates, SlideGroups, kernel


class Arrivals:
    """Algorithm 2. The tuples of one stream, in order; each slide is measured from the tuple that made the last one.

    >>> arrivals = Arrivals()
    >>> arrivals.register(1, slide=180)
    >>> arrivals.candidates(np.array([0, 120, 240, 360, 480]))
    Candidates(positions=array([2, 4]), queries=array([1, 1]))
    """

    def __init__(self) -> None:
        self._groups = SlideGroups()
        self._next: dict[int, int] = {}

    def register(self, query: int, slide: int) -> None:
        self._groups.add(query, slide)

    def remove(self, query: int) -> None:
        group, is_empty = self._groups.discard(query)
        if is_empty:
            self._next.pop(group, None)

    def candidates(self, timestamps: Int64s) -> Candidates:
        """Which queries slide with which tuples of a batch; positions are places in the batch."""
        places, groups = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group in self._groups.live().tolist() if len(timestamps) else ():
            slide = int(self._groups.slides[group])
            due = self._next.get(group, int(timestamps[0]) + slide)
            found, self._next[group] = _slides(timestamps, slide, due)
            places.append(found)
            groups.append(np.full(len(found), group, np.int64))
        at, which = np.concatenate(places), np.concatenate(groups)
        order = np.argsort(at, kind="stable")
        return Candidates(*self._groups.expand(at[order], which[order]))


@kernel
def _slides(timestamps: Int64s, slide: int, due: int) -> tuple[Int64s, int]:
    """Where the timestamps reach the next slide, which is counted from there on."""
    found = np.empty(len(timestamps), np.int64)
    count = 0
    for i in range(len(timestamps)):
        if timestamps[i] >= due:
            found[count] = i
            count += 1
            due = timestamps[i] + slide
    return found[:count], due


class Slid(NamedTuple):
    """A slide that takes place: the local time, and whose."""

    time: int
    stream: str
    queries: tuple[int, ...]


class _Timer(NamedTuple):
    """When something is to happen, in local time, and to which slide of which stream."""

    time: int
    stream: str
    group: int


@dataclass
class _Stream:
    """What is known of a source's clock: the first timestamp, when it came, and how late tuples usually are since."""

    groups: SlideGroups = field(default_factory=SlideGroups)
    ticking: set[int] = field(default_factory=set)
    first_timestamp: int | None = None
    first_arrival: int = 0
    usual_delay: float = 0.0


class SynchronisedTimers:
    """The paper's second way, for many streams with one timer: the owner of the timer calls `wake` at `next_wake`.

    `alpha` is the weight of what λ was: λ = alpha * λ + (1 - alpha) * delay with each tuple, where the delay is by how
    much the tuple is later, against the clock that the first one set, than its timestamp. Tuples that are quicker than
    the first make λ negative; still nothing slides before its tick.

    >>> timers = SynchronisedTimers()
    >>> timers.register("s", 1, slide=180)
    >>> timers.arrive("s", now=30, timestamp=0)
    []
    >>> timers.next_wake
    210
    >>> timers.wake(210)
    [Slid(time=210, stream='s', queries=(1,))]
    """

    def __init__(self, alpha: float = 0.8) -> None:
        if not 0 <= alpha <= 1:
            raise InputError(f"alpha is a weight from 0 to 1, not {alpha}")
        self._alpha = alpha
        self._streams: dict[str, _Stream] = {}
        self._ticks: list[_Timer] = []
        self._delayed: list[_Timer] = []

    def register(self, stream: str, query: int, slide: int) -> None:
        """By the stream's clock, from its next tuple on."""
        self._streams.setdefault(stream, _Stream()).groups.add(query, slide)

    def remove(self, stream: str, query: int) -> None:
        if stream not in self._streams:
            raise InputError(f"query {query} is not registered: there is no stream '{stream}'")
        known = self._streams[stream]
        group, is_empty = known.groups.discard(query)
        if is_empty:
            known.ticking.discard(group)
            self._ticks = _without(self._ticks, stream, group)
            self._delayed = _without(self._delayed, stream, group)

    @property
    def next_wake(self) -> int | None:
        """When the one timer should call."""
        return min((queue[0].time for queue in (self._ticks, self._delayed) if queue), default=None)

    def arrive(self, stream: str, now: int, timestamp: int) -> list[Slid]:
        """A tuple has come. What its stream has delayed slides now."""
        slid = self.wake(now)
        known = self._streams.setdefault(stream, _Stream())
        if known.first_timestamp is None:
            known.first_timestamp, known.first_arrival = timestamp, now
        delay = known.first_timestamp + (now - known.first_arrival) - timestamp
        known.usual_delay = self._alpha * known.usual_delay + (1 - self._alpha) * delay
        self._start_ticking(stream, known, now)
        waiting = sorted(timer for timer in self._delayed if timer.stream == stream)
        if waiting:
            self._delayed = _without(self._delayed, stream)
        return slid + [self._slide(timer._replace(time=now)) for timer in waiting]

    def _start_ticking(self, stream: str, known: _Stream, now: int) -> None:
        """Slides that have come since the last tuple tick at their multiples by the stream's clock."""
        for group in set(known.groups.live().tolist()) - known.ticking:
            slide = int(known.groups.slides[group])
            passed = (now - known.first_arrival) // slide
            heapq.heappush(self._ticks, _Timer(known.first_arrival + (passed + 1) * slide, stream, group))
            known.ticking.add(group)

    def wake(self, now: int) -> list[Slid]:
        """All ticks up to now are delayed, and what was delayed long enough slides."""
        slid: list[Slid] = []
        while (due := self.next_wake) is not None and due <= now:
            if self._delayed and self._delayed[0].time == due:
                slid.append(self._slide(heapq.heappop(self._delayed)))
                continue
            tick = heapq.heappop(self._ticks)
            known = self._streams[tick.stream]
            wait = max(0, round(known.usual_delay))
            heapq.heappush(self._delayed, tick._replace(time=due + wait))
            heapq.heappush(self._ticks, tick._replace(time=due + int(known.groups.slides[tick.group])))
        return slid

    def _slide(self, timer: _Timer) -> Slid:
        queries = self._streams[timer.stream].groups.members(np.array([timer.group], np.int64))
        return Slid(timer.time, timer.stream, tuple(sorted(queries.tolist())))


def _without(timers: list[_Timer], stream: str, group: int | None = None) -> list[_Timer]:
    """A heap of the timers of other streams, or other groups."""
    left = [timer for timer in timers if timer.stream != stream or group not in (None, timer.group)]
    heapq.heapify(left)
    return left
