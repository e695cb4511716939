"""How long events wait and how long it takes until they are recognised, as histograms with percentiles.

    waiting    an event comes -> it is taken
    service    an event comes -> all queries are done with it
    match      the first event of an incident comes -> the row that recognises it is out

Everything is measured on the clock of the app, in microseconds, to within 0.4 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.histogram import Histogram


@dataclass(frozen=True)
class Spread:
    """Durations in seconds."""

    count: int = 0
    mean: float = 0.0
    median: float = 0.0
    p99: float = 0.0
    longest: float = 0.0

    def __str__(self) -> str:
        if not self.count:
            return "none"
        return f"{self.count:,}: mean {self.mean:.3g} s, median {self.median:.3g}, p99 {self.p99:.3g}"


class Durations:
    """
    >>> durations = Durations()
    >>> durations.add(2_000_000, 3)
    >>> durations.add_all(np.array([1_000_000]))
    >>> print(durations.spread)
    4: mean 1.75 s, median 2, p99 2
    """

    def __init__(self) -> None:
        self._histogram = Histogram()

    def add(self, micros: int, count: int = 1) -> None:
        self._histogram.add(micros, count)

    def add_all(self, micros: Int64s) -> None:
        self._histogram.record(micros)

    @property
    def spread(self) -> Spread:
        """Percentiles are the middles of the histogram's buckets; the mean is exact."""
        found = self._histogram
        median, p99 = (found.percentile(p) / 1e6 for p in (50, 99))
        return Spread(found.count, found.mean / 1e6, median, p99, found.max / 1e6)


@dataclass(frozen=True)
class DispatchMetrics:
    """Since this process began. `held` is how many events of each stream wait now; `matches` are there for queries that
    show arrival instants (ARRIVED columns)."""

    policy: str
    held: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Spread] = field(default_factory=dict)
    service: Mapping[str, Spread] = field(default_factory=dict)
    matches: Mapping[str, Spread] = field(default_factory=dict)


def first_arrivals(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Int64s:
    """When the first event of each row came, by its columns of arrival instants; rows that have none are left out."""
    latest = np.iinfo(np.int64).max
    first: Int64s = np.full(batch.num_rows, latest)
    for name in columns:
        instants = batch.column(name).view(pa.int64())
        np.minimum(first, instants.fill_null(int(latest)).to_numpy(zero_copy_only=False), out=first)
    return first[first < latest]
