"""Several systems side by side: who is fastest at each point, and where that is not the one that is fastest at most.

The rate of events decides. Where all have the same, because the load was given and they kept it, the 99th percentile of
latency does. A system whose run failed, or that could not be asked, is behind those that came to an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.measure.report.document import Block, Notes, Paragraph, Section, Table
from penstock.measure.report.outcomes import Outcome, varied
from penstock.measure.report.wording import duration, three

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
        found = {
            system: [value for one in outcomes if one.state == "done" and (value := one.measure(path))]
            for system, outcomes in self.by_system.items()
        }
        return {system: median(values) for system, values in found.items() if values}

    @property
    def by_latency(self) -> bool:
        rates = self.measured(_RATE).values()
        return len(rates) > 1 and max(rates) <= _SAME * min(rates) and len(self.measured(_LATENCY)) == len(rates)

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The systems that came to an end, the best first."""
        figures = self.measured(_LATENCY if self.by_latency else _RATE)
        return sorted(figures.items(), key=lambda entry: entry[1], reverse=not self.by_latency)

    @property
    def lead(self) -> float | None:
        """By how much the best is better than the second; None if no other came to an end."""
        if len(self.ranked) < 2:
            return None
        (_, best), (_, second) = self.ranked[:2]
        return second / best if self.by_latency else best / second

    def told(self, system: str) -> str:
        if system not in self.by_system:
            return "–"
        rate = self.measured(_RATE).get(system)
        if rate is None:
            return self.by_system[system][0].state
        return f"{three(rate)}, p99 {duration(self.measured(_LATENCY)[system])}" if self.by_latency else three(rate)


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
                f"{point.ranked[0][0]}, {three(point.lead)} times" if point.lead else f"{point.ranked[0][0]}, alone",
                *(point.told(system) for system in systems),
                *(three(memory[system]) if system in memory else "–" for system in systems),
            ]
        )
    blocks: list[Block] = [Paragraph(_verdict(points)), Table(headings, rows, names=2)]
    failed = [
        f"{one.adapter} at {point.label}: {one.error}"
        for point in points
        for runs in point.by_system.values()
        for one in runs
        if one.error
    ]
    if failed:
        blocks.append(Notes(failed))
    return Section("The systems side by side", blocks)


def points_of(outcomes: Sequence[Outcome]) -> list[Point]:
    """In the order in which they first appear; a label has what is varied in its group."""
    names: dict[str, list[str]] = {}
    for group in dict.fromkeys(one.group for one in outcomes):
        names[group] = varied([one for one in outcomes if one.group == group])
    found: dict[str, dict[str, list[Outcome]]] = {}
    for one in outcomes:
        values = ", ".join(f"{name} {one.parameters.get(name)}" for name in names[one.group])
        label = f"{one.group}, {values}" if values else one.group
        found.setdefault(label, {}).setdefault(one.adapter, []).append(one)
    return [Point(label, by_system) for label, by_system in found.items()]


def _verdict(points: Sequence[Point]) -> str:
    best, times = Counter(point.ranked[0][0] for point in points).most_common(1)[0]
    asked = f"{times} of {len(points)} points that several were asked"
    said = f"Events a second and largest memory. At {asked}, {best} is the fastest."
    elsewhere = [point for point in points if point.ranked[0][0] != best]
    if not elsewhere:
        return said
    listed = "; ".join(f"{point.label}: {point.ranked[0][0]}" for point in elsewhere)
    return f"{said} It is not at {listed}."
