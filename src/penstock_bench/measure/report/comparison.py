"""Several systems side by side: the fastest system at each point, and the points where it is not the usual one.

The rate of events decides. Among systems with the same highest rate, because they all kept the given load, the 99th
percentile of latency decides. A system whose run failed is behind those that came to an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from penstock_bench.measure.report.document import Block, Paragraph, Section, Table
from penstock_bench.measure.report.outcomes import Outcome, varied
from penstock_bench.measure.report.wording import duration, three

_RATE = ("throughput", "events_per_second")
_LATENCY = ("latency_overall", "p99")
_MEMORY = ("resources", "system", "max_rss_mb")

_SAME = 1.02
"""Rates that differ by no more are those of the load."""


@dataclass(frozen=True)
class Point:
    """What several systems did with the same question."""

    label: str
    by_system: Mapping[str, Sequence[Outcome]]

    def measured(self, path: Sequence[str]) -> dict[str, float]:
        """The median of each system's runs that are done."""
        found: dict[str, list[float]] = {}
        for system, outcomes in self.by_system.items():
            for one in outcomes:
                value = one.measure(path)
                if one.state == "done" and value is not None:
                    found.setdefault(system, []).append(value)
        return {system: median(values) for system, values in found.items()}

    @cached_property
    def rates(self) -> dict[str, float]:
        return self.measured(_RATE)

    @cached_property
    def latencies(self) -> dict[str, float]:
        return self.measured(_LATENCY)

    @cached_property
    def ranked(self) -> list[str]:
        """The systems that came to an end, the best first."""
        by_rate = sorted(self.rates, key=lambda system: self.rates[system], reverse=True)
        level = [system for system in by_rate if self.rates[by_rate[0]] <= _SAME * self.rates[system]]
        if not all(system in self.latencies for system in level):
            return by_rate
        return sorted(level, key=lambda system: self.latencies[system]) + by_rate[len(level) :]

    @property
    def by_latency(self) -> bool:
        """Whether the first two have the same rate."""
        two = self.ranked[:2]
        same = len(two) == 2 and max(self.rates.values()) <= _SAME * self.rates[two[1]]
        return same and all(system in self.latencies for system in two)

    @property
    def lead(self) -> str:
        """The best, and how many times better it is than the second."""
        first, *others = self.ranked
        if not others:
            return f"{first}, alone"
        if self.by_latency:
            return f"{first}, {_times(self.latencies[others[0]], self.latencies[first])} by latency"
        return f"{first}, {_times(self.rates[first], self.rates[others[0]])}"

    def told(self, system: str) -> str:
        if system not in self.by_system:
            return "–"
        if system not in self.rates:
            return self.by_system[system][0].state
        rate = three(self.rates[system])
        if self.by_latency and system in self.latencies:
            return f"{rate}, p99 {duration(self.latencies[system])}"
        return rate


def comparison(outcomes: Sequence[Outcome]) -> Section | None:
    """None if no two systems were asked the same."""
    points = [point for point in points_of(outcomes) if len(point.by_system) > 1 and point.ranked]
    if not points:
        return None
    systems = list(dict.fromkeys(system for point in points for system in point.by_system))
    headings = ["point", "fastest", *systems, *(f"MB: {system}" for system in systems)]
    rows = []
    for point in points:
        memory = point.measured(_MEMORY)
        rows.append(
            [
                point.label,
                point.lead,
                *(point.told(system) for system in systems),
                *(three(memory[system]) if system in memory else "–" for system in systems),
            ]
        )
    blocks: list[Block] = [Paragraph(_verdict(points)), Table(headings, rows, names=2)]
    return Section("The systems side by side", blocks)


def points_of(outcomes: Sequence[Outcome]) -> list[Point]:
    """In the order in which they first appear; a label has what is varied in its group. Where each system has a value
    of its own, such as the rate that it sustains, they have no point in common."""
    names: dict[str, list[str]] = {}
    for group in dict.fromkeys(one.group for one in outcomes):
        names[group] = varied([one for one in outcomes if one.group == group])
    found: dict[str, dict[str, list[Outcome]]] = {}
    for one in outcomes:
        values = ", ".join(f"{name} {one.parameters.get(name)}" for name in names[one.group])
        label = f"{one.group}, {values}" if values else one.group
        found.setdefault(label, {}).setdefault(one.adapter, []).append(one)
    return [Point(label, by_system) for label, by_system in found.items()]


def _times(better: float, worse: float) -> str:
    return f"{three(better / worse)} times" if worse else "beyond compare"


def _verdict(points: Sequence[Point]) -> str:
    best, times = Counter(point.ranked[0] for point in points).most_common(1)[0]
    asked = f"{times} of {len(points)} points that several were asked"
    said = f"Events a second and largest memory. At {asked}, {best} is the fastest."
    elsewhere = [point for point in points if point.ranked[0] != best]
    if not elsewhere:
        return said
    listed = "; ".join(f"{point.label}: {point.ranked[0]}" for point in elsewhere)
    return f"{said} It is not at {listed}."
