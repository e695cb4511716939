"""A histogram of durations with a fixed relative precision, after HdrHistogram.

Durations are whole numbers, of nanoseconds or any other unit. Those below 256 have buckets of their own. Above that,
each power of two is divided into 128 buckets of equal width, so that the middle of a bucket is within 0.4 % of every
value in it, from one to an hour of nanoseconds, in 4,562 counts. Histograms can be added and subtracted: processes send
each other what is new.

The package `hdrhistogram` records one value at a time, in Python, some microseconds each: a sink that takes a million
results a second cannot use it. Here a whole numpy array is recorded at once, by `bincount`.

Invariants: `count`, `sum` and `squares` are exact (Python integers do not overflow); so are `min` and `max`, but in a
difference, where they are known to a bucket. Values below zero count in the first bucket, values beyond the last one in
the last: both show as `min` and `max`.

Why: docs/decisions/own-histogram.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.arrays import Int64s

_BITS = 8
_HALF = 1 << (_BITS - 1)
LONGEST = 3600 * 10**9
_SPLIT = 21
_SPLIT_MASK = (1 << _SPLIT) - 1
_CHUNK = 1 << 20


def _buckets_of(values: Int64s) -> Int64s:
    """The bucket of each value: its first eight bits, and how many follow.

    >>> _buckets_of(np.array([0, 1, 255, 256, 257, 258, 511, 512])).tolist()
    [0, 1, 255, 256, 256, 257, 383, 384]
    """
    held = np.clip(values, 0, LONGEST)
    # A double has 53 bits, more than an hour needs: its exponent is the length of the integer.
    shift = np.maximum(np.frexp(held.astype(np.float64))[1].astype(np.int64) - _BITS, 0)
    found: Int64s = shift * _HALF + (held >> shift)
    return found


_BUCKETS = int(_buckets_of(np.array([LONGEST]))[0]) + 1


def _lowest_of(buckets: Int64s) -> Int64s:
    """The smallest value of each bucket."""
    shift = np.maximum(buckets // _HALF - 1, 0)
    found: Int64s = (buckets - shift * _HALF) << shift
    return found


_LOWEST = _lowest_of(np.arange(_BUCKETS + 1))
_MIDDLE = (_LOWEST[:-1] + _LOWEST[1:] - 1) / 2


def _sum_and_squares(values: Int64s) -> tuple[int, int]:
    """Both exact: each value is split in two halves whose products do not overflow when a chunk of them is added."""
    total = squares = 0
    for first in range(0, len(values), _CHUNK):
        chunk = values[first : first + _CHUNK]
        high, low = chunk >> _SPLIT, chunk & _SPLIT_MASK
        if int(np.abs(high).max()) >> _SPLIT:
            total += sum(chunk.tolist())
            squares += sum(value * value for value in chunk.tolist())
            continue
        total += (int(high.sum()) << _SPLIT) + int(low.sum())
        squares += (int(high @ high) << 2 * _SPLIT) + (int(high @ low) << (_SPLIT + 1)) + int(low @ low)
    return total, squares


class Histogram:
    """
    >>> latencies = Histogram()
    >>> latencies.record(np.array([1_000, 2_000, 3_000, 400_000]))
    >>> latencies.count, latencies.min, latencies.max, latencies.mean
    (4, 1000, 400000, 101500.0)
    >>> latencies.percentile(50), latencies.percentile(99)
    (2003.5, 400000.0)
    """

    def __init__(self) -> None:
        self._counts: Int64s = np.zeros(_BUCKETS, np.int64)
        self.count = 0
        self.sum = 0
        self.squares = 0
        self.min = 0
        """Of no values 0, like `max`."""
        self.max = 0

    def record(self, values: Int64s) -> None:
        if not len(values):
            return
        values = np.asarray(values, np.int64)
        self._counts += np.bincount(_buckets_of(values), minlength=_BUCKETS)
        total, squares = _sum_and_squares(values)
        self._add(len(values), total, squares, int(values.min()), int(values.max()))

    def add(self, value: int, count: int = 1) -> None:
        """Records one value `count` times, without the cost of an array."""
        held = min(max(value, 0), LONGEST)
        shift = max(held.bit_length() - _BITS, 0)
        self._counts[shift * _HALF + (held >> shift)] += count
        self._add(count, value * count, value * value * count, value, value)

    def merge(self, other: Histogram) -> None:
        """Adds what the other one has."""
        if other.count:
            self._counts += other._counts
            self._add(other.count, other.sum, other.squares, other.min, other.max)

    def minus(self, earlier: Histogram) -> Histogram:
        """What was recorded since `earlier`, which was a copy of this one. `min` and `max` are those of buckets."""
        rest = Histogram()
        rest._counts = self._counts - earlier._counts
        if (rest._counts < 0).any():
            raise ValueError("the earlier histogram holds values that this one does not")
        filled = np.flatnonzero(rest._counts)
        if len(filled):
            low, high = int(_LOWEST[filled[0]]), int(_LOWEST[filled[-1] + 1]) - 1
            # The outermost buckets hold what lies beyond them as well.
            low = self.min if filled[0] == 0 else max(low, self.min)
            high = self.max if filled[-1] == _BUCKETS - 1 else min(high, self.max)
            count = self.count - earlier.count
            rest._add(count, self.sum - earlier.sum, self.squares - earlier.squares, low, high)
        return rest

    def copy(self) -> Histogram:
        same = Histogram()
        same.merge(self)
        return same

    def percentile(self, percent: float) -> float:
        """The value that `percent` of all values do not exceed (by the nearest rank), to within 0.4 %; of none, 0."""
        if not self.count:
            return 0.0
        rank = max(1, math.ceil(self.count * percent / 100 - 1e-9))
        if rank >= self.count:
            return float(self.max)
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        if bucket == _BUCKETS - 1:
            return float(self.max)
        return float(min(max(_MIDDLE[bucket], self.min), self.max))

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    @property
    def stdev(self) -> float:
        """The standard deviation of a sample; of fewer than two values 0."""
        if self.count < 2:
            return 0.0
        return math.sqrt((self.squares * self.count - self.sum * self.sum) / (self.count * (self.count - 1)))

    def bars(self) -> tuple[Int64s, Int64s, Int64s]:
        """The buckets that hold values: where each begins, where the next one would, how many values."""
        filled = np.flatnonzero(self._counts)
        return _LOWEST[filled], _LOWEST[filled + 1], self._counts[filled]

    def to_json(self) -> dict[str, Any]:
        """
        >>> one = Histogram()
        >>> one.record(np.array([7, 7, 300]))
        >>> one.to_json()
        {'buckets': [7, 278], 'counts': [2, 1], 'sum': 314, 'squares': 90098, 'min': 7, 'max': 300}
        """
        filled = np.flatnonzero(self._counts)
        return {
            "buckets": filled.tolist(),
            "counts": self._counts[filled].tolist(),
            "sum": self.sum,
            "squares": self.squares,
            "min": self.min,
            "max": self.max,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """Raises ValueError for what is none."""
        try:
            buckets, counts = np.array(data["buckets"], np.int64), np.array(data["counts"], np.int64)
            total, squares, low, high = (int(data[name]) for name in ("sum", "squares", "min", "max"))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"this is no histogram: {error}") from error
        if buckets.shape != counts.shape or buckets.ndim != 1:
            raise ValueError("this is no histogram: there must be a count for each bucket")
        if len(buckets) and (buckets.min() < 0 or buckets.max() >= _BUCKETS or counts.min() < 0):
            raise ValueError(f"this is no histogram: buckets are 0 to {_BUCKETS - 1}, and no count is negative")
        made = cls()
        if len(buckets):
            np.add.at(made._counts, buckets, counts)
            made._add(int(counts.sum()), total, squares, low, high)
        return made

    def _add(self, count: int, total: int, squares: int, low: int, high: int) -> None:
        self.min = min(self.min, low) if self.count else low
        self.max = max(self.max, high) if self.count else high
        self.count += count
        self.sum += total
        self.squares += squares
