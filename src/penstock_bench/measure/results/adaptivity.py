"""How a system takes a burst (thesis, 4.5.5): of runs with phases named `steady`, `peak` and `recovery`.

    maximum peak latency         the longest of the results caused in the peak or after it
    peak degradation ratio       99.9th percentile of the peak's latencies / that of the steady phase
    recovery time                from the peak's last event to the first result after it that took no longer than
                                 the mean of the steady phase
    post-peak variation ratio    mean latency after recovery / mean latency of the steady phase

A result belongs to the phase of the event that caused it. A system that has not recovered when the run ends has no
recovery time and no variation ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.statistics import percentiles
from penstock_bench.measure.setup.model import LatencyMode

STEADY, PEAK, RECOVERY = "steady", "peak", "recovery"


@dataclass(frozen=True)
class Adaptivity:
    """Of one query. Ratios are None where what they divide by is zero."""

    max_peak_latency_ns: float
    degradation_ratio: float | None
    recovery_s: float | None
    variation_ratio: float | None
    steady_mean_ns: float

    @property
    def recovered(self) -> bool:
        return self.recovery_s is not None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "recovered": self.recovered}


def adaptivity(measures: Measures) -> dict[str, Adaptivity] | None:
    """Of each query that has results of all three phases; None for a run that has no such phases."""
    parts = {name: _numbers(measures, name) for name in (STEADY, PEAK, RECOVERY)}
    if not all(parts.values()):
        return None
    found = {}
    peak_end_ns = _last_event_ns(measures, parts[PEAK])
    for query, samples in measures.samples.items():
        of = {name: np.isin(samples.part, numbers) for name, numbers in parts.items()}
        if peak_end_ns is None or not (of[STEADY].any() and of[PEAK].any()):
            continue
        latency = samples.latency_ns
        steady_mean = float(latency[of[STEADY]].mean())
        (steady_tail,) = percentiles(latency[of[STEADY]], [99.9])
        (peak_tail,) = percentiles(latency[of[PEAK]], [99.9])
        after = (of[PEAK] | of[RECOVERY]) & (samples.received_ns > peak_end_ns)
        good = after & (latency <= steady_mean)
        recovery_s = variation = None
        if good.any():
            recovered_ns = int(samples.received_ns[good].min())
            recovery_s = (recovered_ns - peak_end_ns) / 1e9
            rest = latency[after & (samples.received_ns >= recovered_ns)]
            variation = _ratio(float(rest.mean()), steady_mean)
        found[query] = Adaptivity(
            max_peak_latency_ns=float(latency[of[PEAK] | of[RECOVERY]].max()),
            degradation_ratio=_ratio(peak_tail, steady_tail),
            recovery_s=recovery_s,
            variation_ratio=variation,
            steady_mean_ns=steady_mean,
        )
    return found or None


def _numbers(measures: Measures, name: str) -> list[int]:
    return [number for number, part in enumerate(measures.causes.parts) if part.name.lower() == name]


def _last_event_ns(measures: Measures, parts: list[int]) -> int | None:
    """The timestamp of a phase's last event: when it was due, or sent, as the latencies count."""
    causes = measures.causes
    moments = causes.due_ns if measures.latency_mode is LatencyMode.SCHEDULED else causes.sent_ns
    rows = np.isin(causes.part, parts)
    return int(moments[rows].max()) if rows.any() else None


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None
