"""Runs that are over, from their directories: which there are, and what the performance monitor shows of one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from penstock.errors import InputError
from penstock.web.kit import shown
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.statistics import Statistics
from penstock_bench.measure.results.summary import summary_of
from penstock_bench.measure.results.usage import usage_series
from penstock_bench.web.run_view import Bars, Points, QueryRow, RunView, bars_of, thinned

_PLACES = ("*", "*/runs/*", "*/*")
"""Runs lie in the directory, in those of sweeps, or one deeper."""
_MOST_RUNS = 300
_MOST_QUERIES = 40
_MODES = {"scheduled": "from the scheduled time", "end-to-end": "end to end", "adapter": "inside the adapter"}


class Runs:
    """Those in a directory. Only a name that the list has is opened, and only inside the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """The latest first."""
        inside = self.directory.resolve()
        found: dict[str, float] = {}
        for place in _PLACES:
            for setup in self.directory.glob(f"{place}/setup.json"):
                run = setup.parent
                if run.resolve().is_relative_to(inside) and (run / "run.json").is_file():
                    found[run.relative_to(self.directory).as_posix()] = setup.stat().st_mtime
        return sorted(found, key=lambda name: -found[name])[:_MOST_RUNS]

    def view(self, name: str) -> RunView:
        if name not in self.names():
            raise InputError(f"there is no run '{name}' in {self.directory} (any more)")
        return view_of(name, Measures(self.directory / name))


def view_of(name: str, measures: Measures) -> RunView:
    summary = summary_of(measures)
    throughput, latency = summary["throughput"], summary["latency_overall"]
    flows = measures.throughput
    schedule, system = summary["schedule"], summary["resources"].get("system")
    usage = usage_series(measures)
    some = list(measures.setup.queries)[:_MOST_QUERIES]
    sampled = latency["count"] > 0
    return RunView(
        name=name,
        state=summary["state"],
        adapter=summary["adapter"],
        mode=_MODES[summary["latency_mode"]],
        figures={
            "Throughput": (shown.rate(throughput["events_per_second"]), "of measured phases"),
            "Results": (shown.count(throughput["results"]), shown.rate(throughput["results_per_second"])),
            "Events": (shown.count(throughput["events"]), f"in {throughput['seconds']:.1f} s"),
            "Latency p50": (shown.nanoseconds(latency["p50"]) if sampled else "–", "of all queries"),
            "Latency p99": (shown.nanoseconds(latency["p99"]) if sampled else "–", "of all queries"),
            "Schedule": (
                "kept" if schedule["kept"] else "not kept",
                f"at most {shown.nanoseconds(schedule['max_lag_us'] * 1000)} late",
            ),
            "System": (
                "–" if system is None else f"{system['cpu_share']:.2f} cores",
                "" if system is None else f"at most {shown.size(system['max_rss_mb'] * 1e6)}",
            ),
        },
        throughput={
            **{stream: _points(flow.times_s, flow.rates) for stream, flow in flows.streams.items()},
            "results": _added([_points(flow.times_s, flow.rates) for flow in flows.queries.values()]),
        },
        latency={query: _latencies(measures, query) for query in some},
        histograms={query: _bars(measures, query) for query in some},
        queries={
            query: _row(flows.queries[query].count, flows.queries[query].rate, figures)
            for query, figures in measures.latency.items()
        },
        cores={name: _points(series.times_s, series.cores) for name, series in usage.items()},
        memory={name: _points(series.times_s, series.rss_mb * 1e6) for name, series in usage.items()},
        notes=tuple(summary["notes"]),
    )


def _points(times: Iterable[float], values: Iterable[float]) -> Points:
    pairs = [(float(at), None if math.isnan(value) else float(value)) for at, value in zip(times, values, strict=True)]
    return thinned(pairs)


def _added(series: list[Points]) -> Points:
    total: dict[float, float] = {}
    for points in series:
        for at, value in points:
            total[at] = total.get(at, 0.0) + (value or 0.0)
    return sorted(total.items())


def _latencies(measures: Measures, query: str) -> dict[str, Points]:
    series = measures.latency_series(query)
    return {
        name: [(at, None if value is None else max(value, 1.0)) for at, value in _points(series.times_s, values)]
        for name, values in (("p50", series.p50), ("p99", series.p99), ("max", series.max))
    }


def _bars(measures: Measures, query: str) -> Bars:
    low, high, counts = measures.histogram(query).bars()
    return bars_of(low.tolist(), high.tolist(), counts.tolist())


def _row(count: int, rate: float, of: Statistics) -> QueryRow:
    return QueryRow(count, rate, of.min, of.mean, of.stdev, of.p50, of.p90, of.p99, of.p999, of.max)
