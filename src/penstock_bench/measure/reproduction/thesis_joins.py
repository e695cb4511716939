"""Mendes' thesis, Chapter 4, joins, patterns, bursts and many queries: Figures 4.10 to 4.18, Table 4.5.

Where a bench of our own repeats an experiment, its curve stands beside those of the adapters: it calls the engine in
its own process, without drivers and sinks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock_bench.measure.report.charts import Axis, Chart, Lines, Scatter, Series, Span
from penstock_bench.measure.reproduction.item import Cell, Item, Points, Shown, Table, by_number, exact, lines, number
from penstock_bench.measure.reproduction.results import MEMORY_MB, Results, Run, curves
from penstock_bench.measure.reproduction.thesis_engines import HARDWARE, MICRO_CUT, MICRO_QUICK, RATE, query, spread

OWN = "Penstock, called directly"
_STREAM = "CREATE STREAM {} (id INT, a1 DOUBLE, ts TIMESTAMP NOT NULL, EVENT TIME ts);"
_DRAWN = 120
"""Points of a scatter plot."""

_TABLE_4_5 = {
    # name: what a sweep calls it, in which part of the unit; X, Y, Z
    "maximum peak latency (ms)": ("max_peak_latency_ns", 1e-6, 4725.0, 1262.0, 1483.0),
    "peak latency degradation ratio": ("degradation_ratio", 1, 82.8, 57.4, 5.9),
    "recovery time (s)": ("recovery_s", 1, 43.1, 1.3, 1.6),
    "post-peak latency variation ratio": ("variation_ratio", 1, 1.0, 0.9, 1.0),
}


def _with_own(own: Points, others: Mapping[str, Points]) -> dict[str, Points]:
    return {**({OWN: own} if own else {}), **others}


def _table(parts: Mapping[str, tuple[Mapping[str, Points], tuple[float, ...]]]) -> Table | None:
    """All points, one below the other: each part has its adapters and its places."""
    adapters = list(dict.fromkeys(adapter for found, _ in parts.values() for adapter in found))
    rows: list[tuple[Cell, ...]] = []
    for what, (found, places) in parts.items():
        for place in places:
            values = {row[0]: row[1] for row in spread("", found, (place,))}
            if values and any(value is not None for value in values.values()):
                rows.append((what.format(number(place)), *(values.get(adapter) for adapter in adapters)))
    return Table(("events/s", *adapters), rows) if rows else None


def _figure_4_11(results: Results) -> Shown:
    bench, runs = results.bench("join-window"), results.runs("join-windows")
    sizes = _with_own(by_number(bench.get("events_per_second", {})), curves(runs, "window", where={"matches": 1}))
    matches = _with_own(
        by_number(bench.get("events_per_second_by_matches", {})), curves(runs, "matches", where={"window": 50_000})
    )
    at, per_event = (500, 5_000, 50_000, 500_000), (0.01, 0.1, 1, 10)
    charts: list[Chart] = [
        *lines(sizes, Axis("window (events)", log=True, ticks=at), RATE, "J1-1: one match for each event"),
        *lines(matches, Axis("matches for an event", log=True, ticks=per_event), RATE, "J1-2: windows of 50,000"),
    ]
    return Shown(_table({"windows of {} events": (sizes, at), "{} matches": (matches, per_event)}), charts)


def _figure_4_13(results: Results) -> Shown:
    memory = results.bench("join-table").get("by_rows", {})
    database = results.bench("join-db").get("by_rows", {})
    chosen = {rows: at["grace" if at["by_grace"] else "hash"] for rows, at in memory.items()}
    in_memory = _with_own(by_number(chosen), curves(results.runs("join-table"), "rows"))
    asked = {rows: at["batched"] for rows, at in database.items()}
    single = {rows: at["single"] for rows, at in database.items()}
    in_database: dict[str, Points] = _with_own(by_number(asked), curves(results.runs("join-database"), "rows"))
    if single:
        in_database["one question for each event"] = by_number(single)
    at = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
    x = Axis("rows of the table", log=True, ticks=at)
    charts: list[Chart] = [
        *lines(in_memory, x, RATE, "J2: table in memory"),
        *lines(in_database, x, RATE, "J3: table in a database"),
    ]
    return Shown(_table({"J2, {} rows": (in_memory, at), "J3, {} rows": (in_database, at)}), charts)


_COMMON = {"interval": 60.0, "ids": 10_000.0, "selectivity": 0.1}
"""What is not varied: seconds, ids, per cent."""


def _figure_4_15(results: Results) -> Shown:
    own = [
        {"interval": row["interval_seconds"], "ids": row["ids"], "selectivity": row["selectivity"] * 100, "rate": row}
        for row in results.bench("pattern").get("rates", [])
    ]
    at = {"interval": (10, 30, 60, 120, 300, 600), "ids": (100, 1e3, 1e4, 1e5), "selectivity": (0.1, 0.5, 1, 5, 10)}
    labels = {"interval": "window (s)", "ids": "ids", "selectivity": "selectivity (%)"}
    charts: list[Chart] = []
    parts: dict[str, tuple[Mapping[str, Points], tuple[float, ...]]] = {}
    for varied, label in labels.items():
        fixed = {name: value for name, value in _COMMON.items() if name != varied}
        points = sorted(
            (round(float(row[varied]), 6), float(row["rate"]["events_per_second"]))
            for row in own
            if all(abs(row[name] - value) < 1e-9 for name, value in fixed.items())
        )
        found = _with_own(points, curves(results.runs("pattern"), varied, where=fixed))
        charts += lines(found, Axis(label, log=True, ticks=at[varied]), RATE, f"Varying {label}")
        parts[label.partition(" ")[0] + " {}"] = (found, at[varied])
    return Shown(_table(parts), charts)


def _figure_4_16(results: Results) -> Shown:
    """The load of the thesis, which is defined and not measured."""
    load = Series("injection rate", [0, 60, 360, 360, 370, 370, 670], [0, 1, 1, 1.5, 1.5, 1, 1])
    spans = [Span("warm-up", 0, 60), Span("steady", 60, 360), Span("peak", 360, 370), Span("recovery", 370, 670)]
    return Shown(charts=[Lines([load], Axis("time (s)"), Axis("times λ"), "", spans)], columns=1)


def _table_4_5(results: Results) -> Shown:
    own = {run.system: run for run in results.runs("adaptivity")}
    rows = []
    for name, (key, scale, *thesis) in _TABLE_4_5.items():
        cells: list[Cell] = [_adaptivity(run, key, scale) for run in own.values()]
        rows.append((name, *map(exact, thesis), *cells))
    rates = [run.parameters.get("rate") for run in own.values()]
    kept = [run.summary.get("schedule", {}).get("kept") for run in own.values()]
    rows += [("rate (events/s)", *[None] * 3, *rates), ("driver kept its schedule all the time", *[None] * 3, *kept)]
    return Shown(Table(("", "thesis, X", "Y", "Z", *own), rows))


def _adaptivity(run: Run, key: str, scale: float) -> Cell:
    """Of the only query that there is."""
    query = next(iter(run.summary.get("adaptivity") or {}), "")
    found = run.measure(("adaptivity", query, key))
    if found is None and query and not run.summary["adaptivity"][query]["recovered"]:
        return "not recovered"
    return None if found is None else found * scale


def _figure_4_17(results: Results) -> Shown:
    """One chart for each system, as in the thesis."""
    charts: list[Chart] = []
    for run, measures in [(run, run.measures) for run in results.runs("adaptivity")]:
        if measures is None:
            continue
        for samples in measures.samples.values():
            step = max(1, -(-len(samples) // _DRAWN))
            order = np.argsort(samples.received_ns)[::step]
            times = (samples.received_ns[order] - measures.began_ns) / 1e9
            latency = Series("latency", times, samples.latency_ns[order] / 1e6)
            spans = [Span(phase.name, phase.begin_s, phase.end_s) for phase in measures.phases]
            charts.append(Scatter([latency], Axis("time (s)"), Axis("ms", log=True), run.system, spans))
    return Shown(charts=charts, columns=1)


def _figure_4_18(results: Results) -> Shown:
    bench = results.bench("join-window")
    at = (1, 4, 16, 64)
    x = Axis("queries", log=True, ticks=at)
    rates = _with_own(
        by_number(bench.get("queries", {}).get("identical", {})), curves(results.runs("queries-identical"), "queries")
    )
    memory: dict[str, Points] = _with_own(
        by_number(bench.get("queries_memory_mb", {}).get("similar", {})),
        curves(results.runs("queries-similar"), "queries", MEMORY_MB),
    )
    charts: list[Chart] = [
        *lines(rates, x, RATE, "Test 1: identical queries"),
        *lines(memory, x, Axis("MB", log=True), "Test 2: similar queries"),
    ]
    rows: list[tuple[Cell, ...]] = [(f"test 1 (events/s), {row[0]}", *row[1:]) for row in spread("", rates, at)]
    rows += [(f"test 2 (MB), {row[0]}", *row[1:]) for row in spread("", memory, at)]
    return Shown(Table(("queries", *map(str, at)), rows) if rows else None, charts)


_DIRECT = f" '{OWN}' is our own bench, which calls the engine in its process with batches and drops the results."

ITEMS = (
    Item(
        "Figure 4.10",
        "Q5, two windows joined",
        "Section 4.5.3",
        (),
        lambda results: query(
            "\n".join(_STREAM.format(name) for name in ("stream1", "stream2"))
            + "\nSELECT * FROM stream1 [ROWS 500] AS s1, stream2 [ROWS 500] AS s2 WHERE s1.id = s2.id;"
        ),
        "A figure of the query's text; this is ours.",
    ),
    Item(
        "Figure 4.11",
        "Window to window: sizes and matches",
        "Section 4.5.3",
        ("join-window", "micro/join-windows"),
        _figure_4_11,
        HARDWARE + _DIRECT,
        stated="No values are given.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.12",
        "Q6, a stream and a table",
        "Section 4.5.3",
        (),
        lambda results: query(
            _STREAM.format("stream1")
            + "\nCREATE TABLE table1 (id INT PRIMARY KEY, b1 DOUBLE);"
            + "\nSELECT s.id, s.a1, t.b1 FROM stream1 AS s, table1 AS t WHERE s.id = t.id;"
        ),
        "A figure of the query's text; this is ours.",
    ),
    Item(
        "Figure 4.13",
        "Stream to table: in memory and in a database",
        "Section 4.5.3",
        ("join-table", "join-db", "micro/join-table", "micro/join-database"),
        _figure_4_13,
        "In J3 the thesis asks the database for each event, and that bounds it; we ask for a batch in one question, and"
        " show one question for each event beside it. The database is PostgreSQL on the same machine, not SQL Server or"
        " Oracle. " + HARDWARE,
        stated="No values are given; engine Y ran out of memory with 10 million rows, J3 is level from 1,000 to"
        " 1 million.",
        cut="As a microbenchmark J3 goes to 1 million rows; as a bench of ours to 100 million, as in the thesis.",
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.14",
        "Q7, two events of one id within an interval",
        "Section 4.5.4",
        (),
        lambda results: query(
            _STREAM.format("A")
            + "\nSELECT * FROM PATTERN SEQ(A x, A y) WHERE x.id = y.id AND y.a1 > 99.9 WITHIN 60 SECONDS;"
        ),
        "A figure of the query's text; this is ours.",
    ),
    Item(
        "Figure 4.15",
        "Pattern matching: interval, ids, selectivity",
        "Section 4.5.4",
        ("pattern", "micro/pattern"),
        _figure_4_15,
        "The thesis does not say how many events a second of event time has; here it is 1,000, and 600 seconds"
        " have sixty"
        " times the matches of 10. " + HARDWARE + _DIRECT,
        stated="From 10 to 600 seconds engine X loses 50 % and engine Y 54 %; from 10 to 120 seconds X 24 %, Y 29 %,"
        " Z 28 %.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.16",
        "The load of the adaptivity test",
        "Section 4.5.5",
        (),
        _figure_4_16,
        "A drawing of the definition; the setup `adaptivity` has the same phases.",
    ),
    Item(
        "Table 4.5",
        "Adaptivity to a burst of half as many events again",
        "Section 4.5.5",
        ("micro/adaptivity",),
        _table_4_5,
        "The thesis finds for each engine the rate that keeps it three quarters busy; `bench all` searches the rate"
        " that each system sustains and gives it three quarters of that. At millions of events a second driver and sink"
        " take much of the two cores, and what is left for catching up is little.",
        quick_cut="A steady phase of 8 seconds and a burst of 2, not 5 minutes and 10 seconds.",
    ),
    Item(
        "Figure 4.17",
        "Latency before, during and after the peak",
        "Section 4.5.5",
        ("micro/adaptivity",),
        _figure_4_17,
        "Latency counts from when an event was scheduled, so a system that blocks its driver is charged for it.",
        stated="The largest latencies are those of Table 4.5.",
        quick_cut="A steady phase of 8 seconds and a burst of 2, not 5 minutes and 10 seconds.",
    ),
    Item(
        "Figure 4.18",
        "1 to 64 queries: the same, and similar ones",
        "Section 4.5.6",
        ("join-window", "micro/queries-identical", "micro/queries-similar"),
        _figure_4_18,
        "Our engine computes identical queries once and keeps the rows of similar windows once; only engine X shares in"
        " test 1, and none in test 2. Memory of adapters is that of the process, of the engine called directly what it"
        " accounts for; that one has windows up to 50,000 events and no predicates.",
        stated="Throughput of Y and Z drops with the number of queries and X stays level in test 1; memory of X and Y"
        " grows with it in test 2, and Y runs out of it with 64.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
)
