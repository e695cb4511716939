"""What processes used during a run, from the log of `resources`: sums and series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import Floats, Int64s
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.reading import Used

_MB = 1e6


@dataclass(frozen=True)
class UsageSeries:
    """Over seconds since the run's first event. `cores` and the two rates are those of the time since the look
    before."""

    times_s: Floats
    cores: Floats
    rss_mb: Floats
    read_mb_s: Floats
    written_mb_s: Floats


def usage_summary(measures: Measures) -> dict[str, dict[str, Any]]:
    """Of each process while measured events were worked on; of the whole run if it was not looked at often enough for
    that. `cpu_share` is CPU seconds in a second: 1 is one core."""
    begin, end = measures.interval_ns
    found = {}
    used = measures.logs.resources
    for process in _processes(used):
        rows = np.flatnonzero(used.process == process)
        within = rows[(used.time_ns[rows] >= begin) & (used.time_ns[rows] <= end)]
        if len(within) < 2:
            within = rows
        first, last = within[0], within[-1]
        seconds = (int(used.time_ns[last]) - int(used.time_ns[first])) / 1e9
        cpu = float(used.cpu_s[last] - used.cpu_s[first])
        rss = used.rss_bytes[within] / _MB
        found[process] = {
            "cpu_s": cpu,
            "cpu_share": cpu / seconds if seconds else 0.0,
            "max_rss_mb": float(rss.max()),
            "mean_rss_mb": float(rss.mean()),
            "read_mb": float(used.read_bytes[last] - used.read_bytes[first]) / _MB,
            "written_mb": float(used.written_bytes[last] - used.written_bytes[first]) / _MB,
        }
    return found


def usage_series(measures: Measures) -> dict[str, UsageSeries]:
    """Of each process, over the whole run."""
    used = measures.logs.resources
    found = {}
    for process in _processes(used):
        rows = np.flatnonzero(used.process == process)
        times = used.time_ns[rows]
        seconds = np.maximum(np.diff(times) / 1e9, 1e-9)
        found[process] = UsageSeries(
            (times - measures.began_ns) / 1e9,
            _rates(used.cpu_s[rows], seconds),
            used.rss_bytes[rows] / _MB,
            _rates(used.read_bytes[rows], seconds) / _MB,
            _rates(used.written_bytes[rows], seconds) / _MB,
        )
    return found


def _processes(used: Used) -> list[str]:
    return list(dict.fromkeys(used.process.tolist()))


def _rates(totals: Int64s | Floats, seconds: Floats) -> Floats:
    """The first look has none before it."""
    return np.concatenate([[np.nan], np.diff(totals) / seconds])[: len(totals)]
