"""RS-Algo: how many of a stream's rows a join keeps, by the rate at which they come.

    rows -> sample: events per slot of time -> size: what comes in d at that rate -> resize: the window's tail

Time is cut into slots of `every` microseconds since the epoch. At the boundary b of two slots the sample is the N
rows with times in [b - sample, b), and the size is the number of rows that come in d if they go on like that,

    n = ceil((N - 1) * d / (last - first))      N rows have N - 1 gaps between the first and the last of them
    n = ceil(N * d / sample), at least 1        where that has no meaning: fewer than two rows, or all at one time

The paper has N in place of N - 1, which for ten rows is one too many. A sample counts once the stream is as old as it
is long.

Invariants:
1. The size changes at boundaries alone, before the first event at or after it, and depends on the rows' times alone.
2. Whatever leaves never comes back: tails never fall. A smaller size drops the oldest at the boundary; a larger one
   drops nothing until the window is full again.
3. Until the first sample counts the window holds d by time.
4. Boundaries between two events count even if there are many: those that see an empty sample after an empty one change
   nothing and are left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Int64s
from penstock.jit import kernel
from penstock.windows.spec import RateSized

_NEVER = np.iinfo(np.int64).min
_HISTORY = 4096
"""So many of the last sizes are remembered."""


class Slots(NamedTuple):
    """What is known of a stream's rows by slots of time: which slots have rows, how many, and the first and last."""

    slots: Int64s
    counts: Int64s
    firsts: Int64s
    lasts: Int64s


@dataclass
class SizingMetrics:
    """What sizing has done: nanoseconds for sampling (t3 - t2 in the paper), for the algorithm (t5 - t4) and for
    resizing (t6 - t5), over so many `events` of the stream and `boundaries`; and the sizes and rows held at the last
    boundaries."""

    events: int = 0
    boundaries: int = 0
    resizes: int = 0
    sampling: int = 0
    algorithm: int = 0
    resizing: int = 0
    times: list[Int64s] = field(default_factory=list)
    sizes: list[Int64s] = field(default_factory=list)
    held: list[Int64s] = field(default_factory=list)


def sizes_of(counts: Int64s, firsts: Int64s, lasts: Int64s, spec: RateSized) -> Int64s:
    """The size for each sample.

    >>> sizes_of(np.array([10, 1, 0]), np.array([0, 5, 0]), np.array([9, 5, 0]), RateSized(10, 10, 1)).tolist()
    [10, 1, 1]
    """
    has_gaps = (counts > 1) & (lasts > firsts)
    gaps = np.where(has_gaps, counts - 1, counts)
    span = np.where(has_gaps, lasts - firsts, spec.sample)
    return np.maximum(ceil_ratio(gaps, spec.micros, span), 1)


def ceil_ratio(factors: Int64s, factor: int, divisors: Int64s) -> Int64s:
    """ceil(factors * factor / divisors), exactly, though the product may not fit a word: the remainder does, and a
    floating-point quotient is off by little."""
    quotients = np.floor(factors.astype(np.float64) * factor / divisors).astype(np.int64)
    remainders = factors * np.int64(factor) - quotients * divisors
    corrections = -(-remainders // divisors)
    return quotients + corrections


@kernel
def _triggered(wanted: Int64s, size: int, percent: int) -> tuple[Int64s, int]:
    """The sizes that are taken on, one boundary after the other, and how often they changed; 0 is no sample yet."""
    taken = np.empty_like(wanted)
    resizes = 0
    for place in range(len(wanted)):
        want = wanted[place]
        if want > 0 and want != size and abs(want - size) * 100.0 > percent * np.float64(size):
            size = want
            resizes += 1
        taken[place] = size
    return taken, resizes


@kernel
def _tails(
    times: Int64s,
    heads: Int64s,
    by_time: Int64s,
    boundaries: Int64s,
    heads_there: Int64s,
    sizes: Int64s,
    size: int,
    tail: int,
) -> tuple[Int64s, Int64s]:
    """The tails at the evaluations and at the boundaries."""
    found = np.empty_like(heads)
    there = np.empty_like(heads_there)
    place = 0
    for number in range(len(times)):
        while place < len(boundaries) and boundaries[place] <= times[number]:
            size = sizes[place]
            if size > 0:
                tail = max(tail, heads_there[place] - size)
            there[place] = tail
            place += 1
        tail = max(tail, heads[number] - size if size > 0 else by_time[number])
        found[number] = tail
    return found, there


class RateSizer:
    """Sizes the window of one side of a join. `tails` is called once for each run of the join's events, in order."""

    def __init__(self, spec: RateSized) -> None:
        self.spec = spec
        self._depth = spec.sample // spec.every
        self._size = 0
        self._tail = 0
        self._seen = 0
        self._slot = _NEVER
        self._first = _NEVER
        empty = np.empty(0, np.int64)
        self._slots = Slots(empty, empty, empty, empty)
        self.metrics = SizingMetrics()

    @property
    def size(self) -> int:
        """How many rows it holds at most; 0 while it goes by time."""
        return self._size

    def tails(self, times: Int64s, heads: Int64s, first: int, rows: Int64s) -> Int64s:
        """The window's tail at each of the join's events; `times` are theirs, `heads` how many rows the side has by
        then, and `rows` the times of the side's rows from position `first` on."""
        if len(times) == 0:
            return heads
        began = time.perf_counter_ns()
        head = int(heads[-1])
        slot = int(times[-1]) // self.spec.every
        new = rows[self._seen - first : head - first]
        if slot == self._slot and self._size:
            if len(new):
                self._add(new)
            tails = np.maximum(heads - self._size, self._tail)
            self.metrics.sampling += time.perf_counter_ns() - began
        else:
            tails = self._across_slots(times, heads, first, rows, new, began)
        self._seen, self._tail = head, int(tails[-1])
        self.metrics.events += len(new)
        return tails

    def _across_slots(self, times: Int64s, heads: Int64s, first: int, rows: Int64s, new: Int64s, began: int) -> Int64s:
        spec, metrics = self.spec, self.metrics
        slot = int(times[-1]) // spec.every
        if len(new):
            if self._first == _NEVER:
                self._first = int(new[0])
            self._add(new)
        boundaries = self._boundaries(int(times[0]) // spec.every if self._slot == _NEVER else self._slot, slot)
        self._slot = slot
        counts, firsts, lasts = self._samples(boundaries)
        sampled = time.perf_counter_ns()
        at = boundaries * spec.every
        wanted = np.where(self._counts_from(at), sizes_of(counts, firsts, lasts, spec), 0)
        sizes, resizes = _triggered(wanted, self._size, spec.percent)
        decided = time.perf_counter_ns()
        heads_there = first + np.searchsorted(rows[: int(heads[-1]) - first], at)
        by_time = heads if self._size else first + np.searchsorted(rows, times - spec.micros, side="right")
        tails, there = _tails(times, heads, by_time, at, heads_there, sizes, self._size, self._tail)
        self._size = int(sizes[-1]) if len(sizes) else self._size
        self._forget()
        metrics.boundaries += len(boundaries)
        metrics.resizes += int(resizes)
        metrics.sampling += sampled - began
        metrics.algorithm += decided - sampled
        metrics.resizing += time.perf_counter_ns() - decided
        if len(at):
            self._remember(at, sizes, heads_there - there)
        return tails

    def _counts_from(self, boundaries: Int64s) -> Any:
        """Whether a sample at a boundary covers only time since the stream's first row."""
        if self._first == _NEVER:
            return np.zeros(len(boundaries), np.bool_)
        return boundaries - self.spec.sample >= self._first

    def _add(self, new: Int64s) -> None:
        """Counts rows into their slots."""
        have, counted, firsts, lasts = self._slots
        if len(have) and int(new[-1]) // self.spec.every == have[-1]:
            counted[-1] += len(new)
            lasts[-1] = new[-1]
            return
        slots = new // self.spec.every
        starts = np.flatnonzero(np.diff(slots, prepend=_NEVER))
        counts = np.diff(starts, append=len(new))
        found = slots[starts]
        first_of, last_of = new[starts], new[starts + counts - 1]
        if len(have) and have[-1] == found[0]:
            counted[-1] += counts[0]
            lasts[-1] = last_of[0]
            found, counts, first_of, last_of = found[1:], counts[1:], first_of[1:], last_of[1:]
        if len(found):
            self._slots = Slots(
                np.concatenate([have, found]),
                np.concatenate([counted, counts]),
                np.concatenate([firsts, first_of]),
                np.concatenate([lasts, last_of]),
            )

    def _boundaries(self, before: int, slot: int) -> Int64s:
        """The slots that have begun since, without those whose sample is empty like the one before it."""
        every = slot - before
        slots = self._slots.slots
        if every <= 4 * len(slots) * (self._depth + 1):
            return np.arange(before + 1, slot + 1)
        near = np.unique((slots[:, None] + np.arange(1, self._depth + 2)).ravel())
        return near[(near > before) & (near <= slot)]

    def _samples(self, boundaries: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Of each boundary: how many rows the sample has, and the times of its first and last."""
        slots, counts, firsts, lasts = self._slots
        if len(slots) == 0:
            none = np.zeros(len(boundaries), np.int64)
            return none, none, none
        low, high = np.searchsorted(slots, boundaries - self._depth), np.searchsorted(slots, boundaries)
        total = np.concatenate([[0], np.cumsum(counts)])
        last = len(slots) - 1
        return total[high] - total[low], firsts[np.minimum(low, last)], lasts[np.maximum(high - 1, 0)]

    def _forget(self) -> None:
        """Slots that neither a sample to come covers nor the last one, after which the next may be the first empty."""
        gone = int(np.searchsorted(self._slots.slots, self._slot - self._depth))
        if gone:
            self._slots = Slots(*(column[gone:].copy() for column in self._slots))

    def _remember(self, at: Int64s, sizes: Int64s, held: Int64s) -> None:
        metrics = self.metrics
        metrics.times.append(at[-_HISTORY:])
        metrics.sizes.append(sizes[-_HISTORY:])
        metrics.held.append(held[-_HISTORY:])
        if len(metrics.times) > 64:
            for kept in (metrics.times, metrics.sizes, metrics.held):
                kept[:] = [np.concatenate(kept)[-_HISTORY:]]

    def snapshot(self) -> dict[str, Any]:
        return {
            "size": self._size,
            "tail": self._tail,
            "seen": self._seen,
            "slot": self._slot,
            "first": self._first,
            "slots": list(self._slots),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._size, self._tail, self._seen = snapshot["size"], snapshot["tail"], snapshot["seen"]
        self._slot, self._first = snapshot["slot"], snapshot["first"]
        self._slots = Slots(*(np.array(column) for column in snapshot["slots"]))
