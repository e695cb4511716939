"""The report of one run: what it measured in tables, and over time in figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock_bench.measure.report.document import Block, Code, Document, Notes, Paragraph, Section, Table, Tiles
from penstock_bench.measure.report.run_figures import (
    adaptivity_figure,
    histogram_figure,
    latency_figures,
    throughput_figure,
    usage_figure,
)
from penstock_bench.measure.report.wording import duration, moment, ratio, three
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.summary import summary_of

MODES = {
    "scheduled": "from the moment at which the event that caused a result was due, by the driver's schedule, until the"
    " sink had the result; delays of the driver by a system that does not keep up are part of it",
    "end-to-end": "from the moment at which the driver sent the event that caused a result until the sink had it",
    "adapter": "from the moment at which the adapter gave the event that caused a result to the system until it had the"
    " result from it",
}
_STATISTICS = {
    "min": "min",
    "mean": "mean",
    "stdev": "stdev",
    "p50": "p50",
    "p90": "p90",
    "p99": "p99",
    "p999": "p99.9",
    "max": "max",
}


def run_report(directory: Path) -> Document:
    measures = Measures(directory)
    summary = _summary(measures)
    setup = measures.setup
    lead: list[Block] = []
    if setup.description:
        lead.append(Paragraph(setup.description))
    lead.append(Paragraph(_about(measures, summary)))
    lead.append(_tiles(summary))
    if summary["notes"]:
        lead.append(Notes(summary["notes"]))
    sections = [
        _queries(measures, summary),
        _streams(measures, summary),
        _phases(measures, summary),
        _over_time(measures),
        _adaptivity(measures, summary),
        _resources(measures, summary),
        _setup(measures, summary),
    ]
    title = f"{setup.name} on {setup.system.adapter}"
    return Document(title, lead, [section for section in sections if section is not None])


def _summary(measures: Measures) -> dict[str, Any]:
    """From the logs; from the file where the logs have been removed to save space."""
    stored = measures.logs.run.summary
    if not len(measures.causes.sent_ns) and stored.is_file():
        try:
            found = json.loads(stored.read_bytes())
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict):
            return {**summary_of(measures), **found}
    return summary_of(measures)


def _about(measures: Measures, summary: Mapping[str, Any]) -> str:
    words = {"done": "ran to its end", "stopped": "was stopped", "failed": "failed"}
    parameters = ", ".join(f"{name} = {value}" for name, value in summary["parameters"].items())
    began = measures.logs.facts.get("began_ns")
    return (
        f"The run {words.get(summary['state'], summary['state'])}"
        + (f"; it began on {moment(began)}" if began else "")
        + f". Measured for {three(summary['throughput']['seconds'])} s"
        + (f" with {parameters}." if parameters else ".")
    )


def _tiles(summary: Mapping[str, Any]) -> Tiles:
    latency, schedule = summary["latency_overall"], summary["schedule"]
    system = summary["resources"].get("system")
    items = [
        ("Throughput", f"{three(summary['throughput']['events_per_second'])}/s", "events accepted"),
        ("Results", f"{three(summary['throughput']['results_per_second'])}/s", "of all queries"),
    ]
    if latency["count"]:
        items.append(("Median latency", duration(latency["p50"]), summary["latency_mode"]))
        items.append(("99th percentile", duration(latency["p99"]), f"at most {duration(latency['max'])}"))
    kept = "kept" if schedule["kept"] else "not kept"
    items.append(("Schedule", kept, f"at most {duration(schedule['max_lag_us'] * 1000)} late"))
    if system:
        items.append(("CPU of the system", f"{three(system['cpu_share'])} cores", f"{three(system['cpu_s'])} s"))
        items.append(("Memory of the system", f"{three(system['max_rss_mb'])} MB", "resident, at most"))
    return Tiles(items)


def _latency_cells(figures: Mapping[str, float]) -> list[str]:
    if not figures["count"]:
        return ["–"] * len(_STATISTICS)
    return [duration(figures[name]) for name in _STATISTICS]


def _queries(measures: Measures, summary: Mapping[str, Any]) -> Section:
    mode = summary["latency_mode"]
    rates = summary["throughput"]["by_query"]
    rows = [
        [query, f"{three(rates.get(query, 0))}", f"{figures['count']:,}", *_latency_cells(figures)]
        for query, figures in summary["latency"].items()
    ]
    if len(rows) > 1:
        overall = summary["latency_overall"]
        total = three(summary["throughput"]["results_per_second"])
        rows.append(["all", total, f"{overall['count']:,}", *_latency_cells(overall)])
    table = Table(["query", "results/s", "samples", *_STATISTICS.values()], rows)
    share = measures.setup.measuring.sample
    sampled = f" Of all results, {share:.3g} were sampled." if share < 1 else ""
    blocks: list[Block] = [Paragraph(f"Latency is {mode}: {MODES.get(mode, '')}.{sampled}"), table]
    blocks += histogram_figure(measures)
    return Section("Queries", blocks)


def _streams(measures: Measures, summary: Mapping[str, Any]) -> Section:
    flows = measures.throughput.streams
    rates = summary["throughput"]["by_stream"]
    rows = [[stream, f"{flows[stream].count:,}" if stream in flows else "–", three(rates[stream])] for stream in rates]
    return Section("Streams", [Table(["stream", "events measured", "events/s"], rows)])


def _phases(measures: Measures, summary: Mapping[str, Any]) -> Section | None:
    phases = measures.phases
    if len(phases) < 2:
        return None
    rows = []
    for phase in phases:
        for query, figures in summary["latency_by_phase"].get(phase.name, {}).items():
            name = phase.name if phase.measured else f"{phase.name} (not measured)"
            times = [three(phase.begin_s), three(phase.end_s)]
            rows.append([name, query, *times, f"{figures['count']:,}", *_latency_cells(figures)])
    headings = ["phase", "query", "from (s)", "to (s)", "samples", *_STATISTICS.values()]
    told = "A result belongs to the phase of the event that caused it."
    return Section("Phases", [Paragraph(told), Table(headings, rows, names=2)])


def _over_time(measures: Measures) -> Section | None:
    figures: list[Block] = [*throughput_figure(measures), *latency_figures(measures)]
    return Section("Over time", figures) if figures else None


def _adaptivity(measures: Measures, summary: Mapping[str, Any]) -> Section | None:
    found = summary["adaptivity"]
    if not found:
        return None
    rows = [
        [
            query,
            duration(figures["max_peak_latency_ns"]),
            ratio(figures["degradation_ratio"]),
            "not recovered" if figures["recovery_s"] is None else f"{three(figures['recovery_s'])} s",
            ratio(figures["variation_ratio"]),
        ]
        for query, figures in found.items()
    ]
    headings = ["query", "maximum peak latency", "degradation ratio", "recovery time", "post-peak variation ratio"]
    return Section("Adaptivity to the burst", [Table(headings, rows), *adaptivity_figure(measures)])


def _resources(measures: Measures, summary: Mapping[str, Any]) -> Section | None:
    columns = ("cpu_s", "cpu_share", "max_rss_mb", "mean_rss_mb", "read_mb", "written_mb")
    rows = [[process, *(three(used[name]) for name in columns)] for process, used in summary["resources"].items()]
    if not rows:
        return None
    headings = ["process", "CPU (s)", "cores", "memory, most (MB)", "memory, mean (MB)", "read (MB)", "written (MB)"]
    return Section("Resources", [Table(headings, rows), *usage_figure(measures)])


def _setup(measures: Measures, summary: Mapping[str, Any]) -> Section:
    blocks: list[Block] = []
    machine = summary.get("machine")
    if isinstance(machine, dict):
        blocks.append(Table(["machine", ""], [[str(name), _shown(value)] for name, value in machine.items()], names=2))
    try:
        text = (measures.path / "setup.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = measures.setup.model_dump_json(indent=1)
    blocks.append(Code(text, "toml"))
    return Section("Setup and machine", blocks)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None)
    return str(value)
