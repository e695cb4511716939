"""The figures of a run's report. Each is a list: empty where there is nothing to draw."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Floats
from penstock_bench.measure.report.charts import Axis, Bins, Chart, Lines, Scatter, Series, Span, svg
from penstock_bench.measure.report.document import Figure
from penstock_bench.measure.results.adaptivity import PEAK, RECOVERY, STEADY
from penstock_bench.measure.results.latency import Samples
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.usage import usage_series

MOST_QUERIES = 6
"""Queries that have a chart of their own."""

_TIME = Axis("seconds")
_MS = 1e6
_BINS = 60
_COLUMNS = 250
_POINTS = 3


def _spans(measures: Measures) -> list[Span]:
    """Phases are shown where there is more than one; overlapping names of many short ones are left out."""
    phases = measures.phases
    if len(phases) < 2:
        return []
    whole = max(phase.end_s for phase in phases) or 1
    return [
        Span(
            phase.name if phase.end_s - phase.begin_s > 0.012 * len(phase.name) * whole else "",
            phase.begin_s,
            phase.end_s,
        )
        for phase in phases
    ]


def throughput_figure(measures: Measures) -> list[Figure]:
    flows = measures.throughput
    spans = _spans(measures)
    charts: list[Chart] = []
    for title, unit, named in (("Events", "events/s", flows.streams), ("Results", "results/s", flows.queries)):
        series = [Series(name, flow.times_s, flow.rates) for name, flow in named.items() if len(flow.rates)]
        # Many lines are one: their sum.
        if len(series) > MOST_QUERIES:
            series = [_sum(series)]
        if series:
            charts.append(Lines(series, _TIME, Axis(unit), title, spans, steps=True))
    caption = f"Throughput over time, in intervals of {measures.step_s} s"
    return [Figure("throughput", svg(*charts, width=10, height=3), caption)] if charts else []


def _sum(series: list[Series]) -> Series:
    longest = max((one.x for one in series), key=len)
    total = np.zeros(len(longest))
    for one in series:
        total[: len(one.y)] += one.y
    return Series(f"all {len(series)}", longest, total)


def latency_figures(measures: Measures) -> list[Figure]:
    with_samples = [query for query, samples in measures.samples.items() if len(samples)]
    shown = with_samples[:MOST_QUERIES]
    spans = _spans(measures)
    charts: list[Chart] = []
    for query in shown:
        found = measures.latency_series(query)
        series = [
            Series(name, found.times_s, values / _MS)
            for name, values in (("max", found.max), ("p99", found.p99), ("p50", found.p50), ("mean", found.mean))
        ]
        charts.append(Lines(series, _TIME, Axis("latency (ms)", log=True), query, spans))
    if not charts:
        return []
    beyond = (
        f"; {len(with_samples) - len(shown)} more queries are in the table alone"
        if len(with_samples) > len(shown)
        else ""
    )
    caption = f"Latency over time ({measures.latency_mode.value}), of the results that came in each interval{beyond}"
    return [Figure("latency", svg(*charts, width=10, height=3), caption)]


def histogram_figure(measures: Measures) -> list[Figure]:
    counted = {query: measures.histogram(query) for query in measures.samples}
    shown = [query for query, histogram in counted.items() if histogram.count][:MOST_QUERIES]
    charts: list[Chart] = []
    for query in shown:
        low, high, counts = counted[query].bars()
        edges, heights = rebinned(low / _MS, high / _MS, counts.astype(float))
        axis = Axis("latency (ms)", log=True)
        charts.append(Bins("", edges[:-1], edges[1:], heights, axis, Axis("samples"), query))
    if not charts:
        return []
    return [
        Figure(
            "histogram", svg(*charts, width=10, height=3), f"Distribution of latency ({measures.latency_mode.value})"
        )
    ]


def rebinned(low: Floats, high: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Bins of equal width on a log axis: a bucket's values are taken to be spread evenly over it."""
    first = max(float(low[low > 0].min()) if (low > 0).any() else 1e-6, 1e-6)
    last = max(float(high.max()), first * 1.0001)
    edges = np.geomspace(first, last, _BINS + 1)
    # Between buckets there is nothing: the running count stays where it is.
    total = np.concatenate([[0.0], np.cumsum(counts)])
    places = np.column_stack([low, high]).ravel()
    below = np.column_stack([total[:-1], total[1:]]).ravel()
    running = np.interp(edges, places, below)
    running[0] = 0.0
    return edges, np.diff(running)


def usage_figure(measures: Measures) -> list[Figure]:
    found = usage_series(measures)
    spans = _spans(measures)
    cores, memory = [], []
    for name, used in found.items():
        # How the system started is a story of its own, and often a longer one.
        rows = used.times_s >= -1
        cores.append(Series(name, used.times_s[rows], used.cores[rows]))
        memory.append(Series(name, used.times_s[rows], used.rss_mb[rows]))
    if not any(len(series.x) > 1 for series in cores):
        return []
    charts = (
        Lines(cores, _TIME, Axis("cores"), "CPU", spans),
        Lines(memory, _TIME, Axis("MB"), "Resident memory", spans),
    )
    return [Figure("resources", svg(*charts, width=10, height=3), "CPU and memory of the run's processes over time")]


def adaptivity_figure(measures: Measures) -> list[Figure]:
    """Latency before, during and after the peak, as in the thesis' Figure 4.17; each result at its own moment."""
    names = {number: part.name.lower() for number, part in enumerate(measures.causes.parts)}
    charts: list[Chart] = []
    for query, samples in list(measures.samples.items())[:MOST_QUERIES]:
        series = []
        for phase in (STEADY, PEAK, RECOVERY):
            numbers = [number for number, name in names.items() if name == phase]
            own = samples.those(np.isin(samples.part, numbers))
            x, y = thinned(own, measures.began_ns)
            series.append(Series(phase, x, y))
        if any(len(one.x) for one in series):
            charts.append(Scatter(series, Axis("seconds"), Axis("latency (ms)", log=True), query))
    if not charts:
        return []
    caption = "Latency of results before, during and after the peak, by the phase of the event that caused them"
    return [Figure("adaptivity", svg(*charts, columns=1, width=10, height=3.6), caption)]


def thinned(samples: Samples, began_ns: int) -> tuple[Floats, Floats]:
    """Seconds and milliseconds of few of the samples: the longest, the shortest and one between of each short stretch
    of time, so that every peak is there."""
    x, y = (samples.received_ns - began_ns) / 1e9, samples.latency_ns / _MS
    if len(x) <= _COLUMNS * _POINTS:
        return x, y
    columns = np.minimum(((x - x.min()) / max(float(np.ptp(x)), 1e-9) * _COLUMNS).astype(int), _COLUMNS - 1)
    order = np.lexsort((y, columns))
    begins = np.flatnonzero(np.diff(columns[order], prepend=-1))
    ends = np.append(begins[1:], len(order)) - 1
    kept = order[np.unique(np.concatenate([begins, (begins + ends) // 2, ends]))]
    return x[kept], y[kept]
