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
5. Slot j of the stream is at place j mod (depth + 1) of the slots' arrays, if `slots` says so there; depth slots are a
   sample.

Why: docs/decisions/rates-in-slots.md
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.jit import kernel
from penstock.windows.spec import RateSized

_NEVER = -(1 << 62)
_HISTORY = 4096
"""So many of the last sizes are remembered."""


class MatchWaits:
    """How long the first row of a match has been in its window when the match is found (t7 - t6), in microseconds."""

    def __init__(self) -> None:
        self.matches = 0
        self.total = 0

    def add(self, found: Int64s, times: list[Int64s]) -> None:
        """`found` are the times of the events that made the matches, `times` those of their rows, by side."""
        self.matches += len(found)
        self.total += int((found - np.minimum.reduce(times)).sum())


@dataclass
class SizingMetrics:
    """What sizing has done: nanoseconds for sampling (t3 - t2 in the paper), for the algorithm (t5 - t4) and for
    resizing (t6 - t5), over so many `events` of the stream and `boundaries`; the rows held at the boundaries with a
    sample, all together, and the largest size; and sizes and rows held at the last boundaries."""

    events: int = 0
    boundaries: int = 0
    resizes: int = 0
    sampling: int = 0
    algorithm: int = 0
    resizing: int = 0
    samples: int = 0
    held_in_all: int = 0
    largest: int = 0
    times: list[Int64s] = field(default_factory=list)
    sizes: list[Int64s] = field(default_factory=list)
    held: list[Int64s] = field(default_factory=list)


@kernel
def _sample(
    new: Int64s,
    every: int,
    before: int,
    upto: int,
    slots: Int64s,
    counts: Int64s,
    firsts: Int64s,
    lasts: Int64s,
    found: Int64s,
) -> int:
    """Counts rows into their slots. For each slot that has begun since `before`, up to `upto`, a line of `found`: the
    slot, how many rows the sample before it has, and the times of the first and last; returns how many lines."""
    depth = len(slots) - 1
    lines = 0
    row = 0
    slot = before + 1
    while slot <= upto:
        while row < len(new) and new[row] // every < slot:
            _count(new[row], every, slots, counts, firsts, lasts)
            row += 1
        rows = 0
        found[lines, 2] = 0
        found[lines, 3] = 0
        for sampled in range(slot - depth, slot):
            at = sampled % (depth + 1)
            if slots[at] == sampled:
                if rows == 0:
                    found[lines, 2] = firsts[at]
                rows += counts[at]
                found[lines, 3] = lasts[at]
        found[lines, 0] = slot
        found[lines, 1] = rows
        lines += 1
        slot += 1
        if rows == 0:
            slot = upto + 1 if row == len(new) else max(slot, new[row] // every + 1)
    for left in range(row, len(new)):
        _count(new[left], every, slots, counts, firsts, lasts)
    return lines


@kernel
def _count(time: int, every: int, slots: Int64s, counts: Int64s, firsts: Int64s, lasts: Int64s) -> None:
    slot = time // every
    at = slot % len(slots)
    if slots[at] != slot:
        slots[at] = slot
        counts[at] = 0
        firsts[at] = time
    counts[at] += 1
    lasts[at] = time


@kernel
def ceil_ratio(factor: int, other: int, divisor: int) -> int:
    """ceil(factor * other / divisor), exactly, though the product may not fit a word: the remainder does, and a
    floating-point quotient is off by little."""
    quotient = int(np.floor(np.float64(factor) * np.float64(other) / np.float64(divisor)))
    remainder = factor * other - quotient * divisor
    return quotient - (-remainder // divisor)


@kernel
def _decide(
    samples: Int64s, every: int, micros: int, length: int, percent: int, first: int, size: int, sizes: Int64s
) -> tuple[int, int]:
    """The sizes that are taken on, one boundary after the other, the last of them and how often they changed. `first`
    is the time of the stream's first row; samples that reach before it do not count."""
    resizes = 0
    for line in range(len(samples)):
        if samples[line, 0] * every - length >= first:
            rows, begin, end = samples[line, 1], samples[line, 2], samples[line, 3]
            if rows > 1 and end > begin:
                wanted = max(1, ceil_ratio(rows - 1, micros, end - begin))
            else:
                wanted = max(1, ceil_ratio(rows, micros, length))
            if wanted != size and abs(wanted - size) * 100.0 > percent * np.float64(size):
                size = wanted
                resizes += 1
        sizes[line] = size
    return size, resizes


@kernel
def _resize(
    times: Int64s,
    heads: Int64s,
    first: int,
    rows: Int64s,
    micros: int,
    boundaries: Int64s,
    sizes: Int64s,
    size: int,
    tail: int,
    tails: Int64s,
    held: Int64s,
) -> tuple[int, int, int]:
    """The tails at the events and the rows held at the boundaries; `size` is the one before them, 0 by time. Returns
    how many boundaries have a size, the rows held at them all together, and the largest size."""
    samples = total = largest = 0
    place = 0
    for number in range(len(times)):
        while place < len(boundaries) and boundaries[place] <= times[number]:
            head = first + np.searchsorted(rows, boundaries[place])
            size = sizes[place]
            if size > 0:
                tail = max(tail, head - size)
                samples += 1
                total += head - tail
                largest = max(largest, size)
            held[place] = head - tail
            place += 1
        if size > 0:
            tail = max(tail, heads[number] - size)
        else:
            while tail < heads[number] and rows[tail - first] <= times[number] - micros:
                tail += 1
        tails[number] = tail
    return samples, total, largest


@component("RateSizer")
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
        self._slots = np.full(self._depth + 1, _NEVER, np.int64)
        self._counts, self._firsts, self._lasts = (np.zeros(self._depth + 1, np.int64) for _ in range(3))
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
        spec, metrics = self.spec, self.metrics
        head, upto = int(heads[-1]), int(times[-1]) // spec.every
        new = rows[self._seen - first : head - first]
        if len(new) and self._first == _NEVER:
            self._first = int(new[0])
        before = int(times[0]) // spec.every if self._slot == _NEVER else self._slot
        samples = np.empty((min(upto - before, (len(new) + 1) * (self._depth + 2)), 4), np.int64)
        slots = (self._slots, self._counts, self._firsts, self._lasts)
        lines = _sample(new, spec.every, before, upto, *slots, samples)
        samples = samples[:lines]
        sampled = time.perf_counter_ns()
        sizes = np.empty(lines, np.int64)
        first_row = -_NEVER if self._first == _NEVER else self._first
        size, resizes = _decide(
            samples, spec.every, spec.micros, spec.sample, spec.percent, first_row, self._size, sizes
        )
        decided = time.perf_counter_ns()
        tails, held, at = np.empty(len(times), np.int64), np.empty(lines, np.int64), samples[:, 0] * spec.every
        counted, total, largest = _resize(
            times, heads, first, rows[: head - first], spec.micros, at, sizes, self._size, self._tail, tails, held
        )
        self._size, self._slot, self._seen, self._tail = int(size), upto, head, int(tails[-1])
        if lines:
            self._remember(at, sizes, held)
        metrics.events += len(new)
        metrics.boundaries += lines
        metrics.samples += counted
        metrics.held_in_all += total
        metrics.largest = max(metrics.largest, largest)
        metrics.resizes += int(resizes)
        metrics.sampling += sampled - began
        metrics.algorithm += decided - sampled
        metrics.resizing += time.perf_counter_ns() - decided
        return tails

    def _remember(self, at: Int64s, sizes: Int64s, held: Int64s) -> None:
        metrics = self.metrics
        metrics.times.append(at[-_HISTORY:])
        metrics.sizes.append(sizes[-_HISTORY:])
        metrics.held.append(held[-_HISTORY:])
        if len(metrics.times) > _HISTORY:
            for kept in (metrics.times, metrics.sizes, metrics.held):
                kept[:] = [np.concatenate(kept)[-_HISTORY:]]

    def snapshot(self) -> dict[str, Any]:
        return {
            "size": self._size,
            "tail": self._tail,
            "seen": self._seen,
            "slot": self._slot,
            "first": self._first,
            "slots": [self._slots, self._counts, self._firsts, self._lasts],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._size, self._tail, self._seen = snapshot["size"], snapshot["tail"], snapshot["seen"]
        self._slot, self._first = snapshot["slot"], snapshot["first"]
        self._slots, self._counts, self._firsts, self._lasts = (np.array(column) for column in snapshot["slots"])
