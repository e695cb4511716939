"""The figures that are given for latencies, exact from samples or near enough from a histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.instruments import Histogram

_PART = 1 << 20
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}


@dataclass(frozen=True)
class Statistics:
    """Nanoseconds. A percentile is the least sample that so many percent do not exceed (the nearest rank), never
    something between two samples; `stdev` is that of a sample. Of nothing, all are zero.

    >>> Statistics.exact(np.array([3, 1, 2, 4]))
    Statistics(count=4, min=1.0, mean=2.5, stdev=1.2909944487358056, p50=2.0, p90=4.0, p99=4.0, p999=4.0, max=4.0)
    """

    count: int = 0
    min: float = 0.0
    mean: float = 0.0
    stdev: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0

    @classmethod
    def exact(cls, samples: Int64s) -> Statistics:
        if not len(samples):
            return cls()
        values = percentiles(samples, list(PERCENTS.values()))
        return cls(
            count=len(samples),
            min=float(samples.min()),
            mean=float(samples.mean()),
            stdev=_stdev(samples),
            max=float(samples.max()),
            **dict(zip(PERCENTS, values, strict=True)),
        )

    @classmethod
    def near(cls, histogram: Histogram) -> Statistics:
        """Percentiles are within 0.4 %, all else is exact."""
        return cls(
            count=histogram.count,
            min=float(histogram.min),
            mean=histogram.mean,
            stdev=histogram.stdev,
            max=float(histogram.max),
            **{name: histogram.percentile(percent) for name, percent in PERCENTS.items()},
        )

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def _stdev(samples: Int64s) -> float:
    """A part at a time: numpy would hold all differences from the mean at once."""
    if len(samples) < 2:
        return 0.0
    mean = float(samples.mean())
    parts = (samples[first : first + _PART] - mean for first in range(0, len(samples), _PART))
    return math.sqrt(math.fsum(float(part @ part) for part in parts) / (len(samples) - 1))


def percentiles(samples: Int64s, percents: list[float]) -> list[float]:
    """By the nearest rank; the samples are not sorted for it.

    >>> percentiles(np.array([30, 10, 20]), [50, 99.9])
    [20.0, 30.0]
    """
    found = np.percentile(samples, percents, method="inverted_cdf")
    return [float(value) for value in found]
