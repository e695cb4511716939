"""What the performance monitor shows of a run, the same for one that goes on and one that is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.web.kit import shown

Points = Sequence[tuple[float, float | None]]
"""(seconds since the run began, value); None where there is none."""

_MOST_BARS = 44


@dataclass(frozen=True)
class Bars:
    """A histogram: how many results took from `names[i]` to the next."""

    names: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class QueryRow:
    """Latencies in nanoseconds."""

    count: int
    rate: float
    min: float
    mean: float
    stdev: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class RunView:
    """`latency` and `histograms` are by query; `mode` says from when to when latencies are taken. `figures` are a value
    and a few words by name."""

    name: str
    state: str
    adapter: str
    mode: str
    figures: Mapping[str, tuple[str, str]]
    throughput: Mapping[str, Points]
    latency: Mapping[str, Mapping[str, Points]]
    histograms: Mapping[str, Bars]
    queries: Mapping[str, QueryRow]
    cores: Mapping[str, Points]
    memory: Mapping[str, Points]
    notes: Sequence[str]
    error: str | None = None


FIGURES = ("Throughput", "Results", "Events", "Latency p50", "Latency p99", "Schedule", "System")


def bars_of(low: Sequence[int], high: Sequence[int], counts: Sequence[int]) -> Bars:
    """Few enough bars to look at, of equal width on a logarithmic scale.

    >>> bars_of([1000, 1008, 8000], [1008, 1016, 8064], [3, 1, 2]).counts[0]
    4
    """
    if not len(counts):
        return Bars((), ())
    first, last = max(low[0], 1), max(high[-1], 2)
    edges = np.geomspace(first, last, _MOST_BARS + 1)
    middles = np.clip((np.asarray(low) + np.asarray(high)) / 2, first, last)
    weights, _ = np.histogram(middles, bins=edges, weights=np.asarray(counts))
    names = tuple(f"{shown.nanoseconds(a)} – {shown.nanoseconds(b)}" for a, b in pairwise(edges))
    return Bars(names, tuple(int(weight) for weight in weights))


def thinned(points: Points, most: int = 300) -> Points:
    """No more points than a chart can show."""
    step = -(-len(points) // most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]
