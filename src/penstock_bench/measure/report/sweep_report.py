"""The report of several runs: a table with a row for each, and a line for each adapter over what was varied.

It is made of a sweep's directory, or of any directory that holds runs. In figures, runs of the same point are taken
together by their median, and those that failed are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.report.charts import Axis, Bars, Chart, Lines, Series, svg
from penstock_bench.measure.report.comparison import comparison
from penstock_bench.measure.report.document import Block, Document, Figure, Notes, Paragraph, Section, Table
from penstock_bench.measure.report.outcomes import Outcome, failures, outcomes_of, varied
from penstock_bench.measure.report.wording import duration, three


@dataclass(frozen=True)
class _Shown:
    title: str
    unit: str
    log: bool
    path: tuple[str, ...]
    scale: float = 1.0

    def of(self, outcome: Outcome) -> float | None:
        value = outcome.measure(self.path)
        if self.path[0] == "latency_overall" and not outcome.measure(("latency_overall", "count")):
            return None
        return None if value is None else value * self.scale


_FIGURES = (
    _Shown("Throughput", "events/s", False, ("throughput", "events_per_second")),
    _Shown("Median latency", "ms", True, ("latency_overall", "p50"), 1e-6),
    _Shown("99th percentile of latency", "ms", True, ("latency_overall", "p99"), 1e-6),
    _Shown("Memory of the system", "MB", False, ("resources", "system", "max_rss_mb")),
)


def sweep_report(directory: Path) -> Document:
    outcomes = outcomes_of(directory)
    if not outcomes:
        raise InputError(f"{directory}: holds no run: no directory in it has a setup.json")
    groups = list(dict.fromkeys(outcome.group for outcome in outcomes))
    adapters = list(dict.fromkeys(outcome.adapter for outcome in outcomes))
    sections = [
        section_of([one for one in outcomes if one.group == group], group, f"{number}", adapters)
        for number, group in enumerate(groups, 1)
    ]
    compared = comparison(outcomes)
    if compared is not None:
        sections.insert(0, compared)
    failed = failures(outcomes)
    states = [one.state for one in outcomes]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lead: list[Block] = [Paragraph(f"{len(outcomes)} runs on {', '.join(adapters)}: {counted}.")]
    if failed:
        lead.append(Notes(failed))
    machines = [one.summary["machine"] for one in outcomes if isinstance(one.summary.get("machine"), dict)]
    if machines:
        named = "; ".join(f"{name} {value}" for name, value in machines[0].items() if not isinstance(value, dict))
        lead.append(Paragraph(f"Machine: {named}."))
    return Document(groups[0] if len(groups) == 1 else f"Runs in {directory.name}", lead, sections)


def section_of(outcomes: Sequence[Outcome], title: str, number: str, adapters: Sequence[str]) -> Section:
    names = varied(outcomes)
    blocks: list[Block] = [_table(outcomes, names)]
    for name in names:
        others = [other for other in names if other != name]
        charts = _charts(outcomes, name, others, adapters)
        if charts:
            caption = f"{title}: measures over {name}"
            order = () if others else adapters
            blocks.append(
                Figure(f"{number}-over-{_safe(name)}", svg(*charts, width=10, height=3.2, order=order), caption)
            )
    if not names and len(outcomes) > 1:
        charts = _bars(outcomes)
        if charts:
            figure = svg(*charts, width=10, height=3.2, order=adapters)
            blocks.append(Figure(f"{number}-adapters", figure, f"{title}: measures of each adapter"))
    return Section(title, blocks)


def _table(outcomes: Sequence[Outcome], names: Sequence[str]) -> Table:
    headings = [
        *names,
        "adapter",
        "state",
        "events/s",
        "results/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "schedule",
        "cores",
        "MB",
    ]
    rows = []
    for one in outcomes:
        throughput, latency = one.summary.get("throughput") or {}, one.summary.get("latency_overall") or {}
        schedule = one.summary.get("schedule") or {}
        system = (one.summary.get("resources") or {}).get("system") or {}
        timed = [duration(latency[name]) if latency.get("count") else "–" for name in ("p50", "p99", "p999", "max")]
        kept = {True: "kept", False: "not kept"}.get(schedule.get("kept", ""), "–")
        rows.append(
            [
                *(str(one.parameters.get(name, "")) for name in names),
                one.adapter,
                one.state,
                *(_three(throughput.get(name)) for name in ("events_per_second", "results_per_second")),
                *timed,
                kept,
                *(_three(system.get(name)) for name in ("cpu_share", "max_rss_mb")),
            ]
        )
    return Table(headings, rows, names=len(names) + 2)


def _three(value: float | None) -> str:
    return "–" if value is None else three(value)


def _charts(outcomes: Sequence[Outcome], name: str, others: Sequence[str], adapters: Sequence[str]) -> list[Chart]:
    """One chart for each measure that some run has: lines where the parameter is a number, bars where not."""
    lines: dict[str, list[Outcome]] = {}
    for adapter in adapters:
        for one in outcomes:
            if one.adapter == adapter and one.state != "failed":
                rest = ", ".join(f"{other} {one.parameters.get(other)}" for other in others)
                lines.setdefault(f"{adapter}, {rest}" if rest else adapter, []).append(one)
    values: list[Any] = list(dict.fromkeys(one.parameters.get(name) for one in outcomes))
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    charts: list[Chart] = []
    for shown in _FIGURES:
        points = {label: _medians(shown, own, name) for label, own in lines.items()}
        if not any(points.values()):
            continue
        above_zero = all(value > 0 for own in points.values() for value in own.values())
        y = Axis(shown.unit, log=shown.log and above_zero)
        if numeric:
            wide = min(values) > 0 and max(values) / min(values) >= 20
            x = Axis(name, log=wide, ticks=sorted(values) if wide and len(values) <= 8 else None)
            series = [
                Series(label, sorted(own), [own[at] for at in sorted(own)]) for label, own in points.items() if own
            ]
            charts.append(Lines(series, x, y, shown.title))
        else:
            groups = {label: [own.get(value, float("nan")) for value in values] for label, own in points.items()}
            charts.append(Bars([str(value) for value in values], groups, Axis(name), y, shown.title))
    return charts


def _medians(shown: _Shown, outcomes: Sequence[Outcome], name: str) -> dict[Any, float]:
    found: dict[Any, list[float]] = {}
    for one in outcomes:
        value = shown.of(one)
        if value is not None:
            found.setdefault(one.parameters.get(name), []).append(value)
    return {at: median(values) for at, values in found.items()}


def _bars(outcomes: Sequence[Outcome]) -> list[Chart]:
    """Nothing was varied but the adapter."""
    charts: list[Chart] = []
    for shown in _FIGURES:
        found: dict[str, list[float]] = {}
        for one in outcomes:
            value = shown.of(one)
            if value is not None and one.state != "failed":
                found.setdefault(one.adapter, []).append(value)
        if found:
            heights = [median(values) for values in found.values()]
            y = Axis(shown.unit, log=shown.log and min(heights) > 0)
            charts.append(Bars(list(found), {"": heights}, Axis(), y, shown.title))
    return charts


def _safe(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:60]
