"""Mendes' thesis, Chapter 4, filters and aggregations: Figures 4.3 to 4.9, Tables 4.3 and 4.4.

The thesis has engines X, Y and Z, two of them unnamed products and one Esper; we have adapters. Its values are stated
for single points only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock_bench.measure.report.charts import Axis, Chart, Lines, Series
from penstock_bench.measure.reproduction.item import Cell, Item, Points, Shown, Table, first, lines
from penstock_bench.measure.reproduction.results import MEMORY_MB, Results, curves
from penstock_bench.measure.results.usage import usage_series

RATE = Axis("events/s", log=True)
HARDWARE = (
    "The thesis gives each engine one core of a Xeon E5420 at 2.5 GHz and sends events from outside, as CSV over a"
    " socket; here driver, system and sink are processes that share two cores and send columns."
)
MICRO_CUT = "10 seconds are measured at each point instead of ten minutes."
MICRO_QUICK = "Three seconds at each point, and fewer points."

_RATES = (500, 5_000, 50_000, 100_000)
_OUT = "out of memory"
_TABLE_4_3: Mapping[tuple[str, str], Sequence[Cell]] = {
    ("X", "Q3"): (187, 1553, _OUT, _OUT),
    ("X", "Q4"): (39, 40, 64, 98),
    ("Y", "Q3"): (455, 3173, _OUT, _OUT),
    ("Y", "Q4"): (139, 141, 1610, 1652),
    ("Z", "Q3"): (56, 64, 56, 55),
    ("Z", "Q4"): (69, 68, 77, 91),
}
_MINUTES = (20, 60, 120, 360, 720)
_TABLE_4_4: Mapping[tuple[str, str], Sequence[Cell]] = {
    ("X", "Q4"): (114, 128, 141, 146, 147),
    ("Y", "Q4"): (5275, 5303, 5232, 5362, 5279),
    ("Z", "Q3"): (70, 73, 55, 58, 52),
    ("Z", "Q4"): (63, 58, 46, 48, 48),
}
_QUERIES = {"Q3": "time-window", "Q4": "time-window-two-level"}


def spread(name: str, found: Mapping[str, Points], places: Sequence[float]) -> list[tuple[Cell, ...]]:
    """A row for each adapter: its values at these places."""
    return [(f"{name}{adapter}", *(first(points, place) for place in places)) for adapter, points in found.items()]


def _figure_4_3(results: Results) -> Shown:
    selection = curves(results.runs("selection"), "selectivity")
    projection = curves(results.runs("projection"), "attributes")
    shares, widths = (1, 5, 25, 50), (5, 10, 25, 50, 125)
    charts: list[Chart] = [
        *lines(selection, Axis("selectivity (%)", ticks=shares), RATE, "Selection"),
        *lines(projection, Axis("input attributes", ticks=widths), RATE, "Projection"),
    ]
    systems = list(dict.fromkeys((*selection, *projection)))

    def at(found: Mapping[str, Points], place: float) -> list[float | None]:
        return [first(found.get(system, ()), place) for system in systems]

    rows = [(f"selection, {percent} %", *at(selection, percent)) for percent in shares]
    rows += [(f"projection, {width} attributes", *at(projection, width)) for width in widths]
    return Shown(Table(("events/s", *systems), rows) if systems else None, charts)


_ROWS = (500, 5_000, 50_000, 500_000)


def _figure_4_5(results: Results) -> Shown:
    x = Axis("window (events)", log=True, ticks=_ROWS)
    charts: list[Chart] = []
    rows: list[tuple[Cell, ...]] = []
    stated: dict[str, dict[str, Points]] = {
        "sliding": {"thesis: engine Z, largest window": [(500_000, 50)]},
        "tumbling": {"thesis: engine Z, about": [(500, 550_000), (500_000, 550_000)]},
    }
    for kind, paper in stated.items():
        for function in ("AVG", "MAX"):
            found = curves(results.runs(f"aggregation-{kind}"), "window", where={"function": function})
            charts += lines(found, x, RATE, f"{kind.capitalize()} windows, {function}", paper=paper)
            rows += spread(f"{kind}, {function}, ", found, _ROWS)
    rows.append(("thesis: engine Z, sliding", None, None, None, 50))
    rows.append(("thesis: engine Z, tumbling", *["around 550,000"] * 4))
    return Shown(Table(("events/s", *(f"{size:,}" for size in _ROWS)), rows), charts)


def _figure_4_6(results: Results) -> Shown:
    runs = [run for run in results.runs("aggregation-tumbling") if run.parameters.get("function") == "AVG"]
    largest = max((run.parameters["window"] for run in runs), default=0)
    drawn = []
    for run in runs:
        measures = run.measures if run.parameters["window"] == largest else None
        used = usage_series(measures).get("system") if measures is not None else None
        if used is not None:
            loaded = used.times_s >= 0  # before the first event the system starts
            drawn.append(Series(run.system, used.times_s[loaded], used.cores[loaded] * 100))
    axes = Axis("time (s)"), Axis("CPU (% of a core)")
    return Shown(charts=[Lines(drawn, *axes, f"Windows of {largest:,} events")] if drawn else [], columns=1)


_DRAWN = ("SUM", "MAX", "MEDIAN")


def _figure_4_7(results: Results) -> Shown:
    x = Axis("window (events)", log=True, ticks=_ROWS)
    charts: list[Chart] = []
    rows: list[tuple[Cell, ...]] = []
    for kind in ("sliding", "tumbling"):
        both: dict[str, Points] = {}
        for function in ("SUM", "AVG", "STDDEV", "MAX", "MEDIAN"):
            found = curves(results.runs(f"aggregation-{kind}"), "window", where={"function": function})
            both |= {f"{system}, {function}": points for system, points in found.items() if function in _DRAWN}
            rows += spread(f"{kind}, {function}, ", found, _ROWS)
        charts += lines(both, x, RATE, f"{kind.capitalize()} windows")
    return Shown(Table(("events/s", *(f"{size:,}" for size in _ROWS)), rows) if rows else None, charts)


def _memory(
    results: Results,
    varied: str,
    places: Sequence[int],
    paper: Mapping[tuple[str, str], Sequence[Cell]],
    fixed: Mapping[str, int],
) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = [(f"thesis, {engine}", query, *cells) for (engine, query), cells in paper.items()]
    for query, setup in _QUERIES.items():
        found = curves(results.runs(setup), varied, MEMORY_MB, fixed)
        rows += [(row[0], query, *row[1:]) for row in spread("", found, places)]
    return rows


def _table_4_3(results: Results) -> Shown:
    headings = ("engine", "query", *(f"{rate:,} events/s" for rate in _RATES))
    return Shown(Table(headings, _memory(results, "rate", _RATES, _TABLE_4_3, {"minutes": 10})))


def _table_4_4(results: Results) -> Shown:
    headings = ("engine", "query", "20 min", "1 h", "2 h", "6 h", "12 h")
    return Shown(Table(headings, _memory(results, "minutes", _MINUTES, _TABLE_4_4, {"rate": 100_000})))


def _figure_4_9(results: Results) -> Shown:
    found = {
        f"{adapter}, {query}": points
        for query, setup in _QUERIES.items()
        for adapter, points in curves(results.runs(setup), "minutes", where={"rate": 100_000}).items()
    }
    charts = lines(found, Axis("window (minutes)", ticks=_MINUTES[:3]), RATE, "Long time windows")
    rows = spread("", found, _MINUTES[:3])
    return Shown(Table(("events/s", "20 min", "1 h", "2 h"), rows) if rows else None, charts, columns=1)


def query(text: str) -> Shown:
    """A figure that is a query: ours in its place."""
    return Shown(text=f"```sql\n{text}\n```")


_STREAM = "CREATE STREAM stream1 (id INT, a1 DOUBLE, ts TIMESTAMP NOT NULL, EVENT TIME ts);"
_LONG = (
    "Our window of rows goes to disk when it outgrows its budget, and a time window with a slide is made of panes where"
    " that is less, so Q3 needs no rewriting; memory is that of the whole process, Python and its libraries included."
)

ITEMS = (
    Item(
        "Figure 4.3",
        "Selection and projection",
        "Section 4.5.1",
        ("micro/selection", "micro/projection"),
        _figure_4_3,
        HARDWARE + " As there more selective predicates are faster and wider events slower.",
        stated="Throughputs are in millions of events a second; no values are given.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.4",
        "Q2, aggregation over windows by count",
        "Section 4.5.2",
        (),
        lambda results: query(
            f"{_STREAM}\nSELECT id, AVG(a1) AS value FROM stream1 [ROWS 500] GROUP BY id;\n"
            "SELECT id, MAX(a1) AS value FROM stream1 [ROWS 500 SLIDE 500] GROUP BY id;"
        ),
        "A figure of the query's text; this is ours.",
    ),
    Item(
        "Figure 4.5",
        "Aggregation over windows by count: size and expiration",
        "Section 4.5.2",
        ("micro/aggregation-sliding", "micro/aggregation-tumbling"),
        _figure_4_5,
        HARDWARE,
        stated="Engine Z makes about 550,000 events a second with tumbling windows and 50 with sliding ones of"
        " 500,000.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.6",
        "CPU over time while tumbling windows expire",
        "Section 4.5.2",
        ("micro/aggregation-tumbling",),
        _figure_4_6,
        "The thesis shows engine X, whose processor is busiest whenever a window ends; the same is drawn here of each"
        " system, with the largest window that there is.",
        stated="No values are given.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.7",
        "MEDIAN and SUM",
        "Section 4.5.2",
        ("micro/aggregation-sliding", "micro/aggregation-tumbling"),
        _figure_4_7,
        HARDWARE + " As there MEDIAN is slower than SUM and suffers more from larger windows.",
        stated="No values are given.",
        cut=MICRO_CUT,
        quick_cut=MICRO_QUICK,
    ),
    Item(
        "Figure 4.8",
        "Q3 and Q4, an average over a time window and the same in two levels",
        "Section 4.5.2",
        (),
        lambda results: query(
            f"{_STREAM}\nSELECT AVG(a1) AS value FROM stream1 [RANGE 1 HOUR SLIDE 1 SECOND];\n"
            "SELECT SUM(s1) / SUM(c1) AS value FROM (\n"
            "    SELECT SUM(a1) AS s1, COUNT(a1) AS c1 FROM stream1 [RANGE 1 SECOND SLIDE 1 SECOND]\n"
            ") [RANGE 1 HOUR];"
        ),
        "A figure of the queries' text; these are ours.",
    ),
    Item(
        "Table 4.3",
        "Memory (MB) by the rate, window of 10 minutes",
        "Section 4.5.2",
        ("micro/time-window", "micro/time-window-two-level"),
        _table_4_3,
        _LONG,
        cut="Event time runs as fast as the system takes it, not in real time.",
        quick_cut="1.1 windows long, not 1.5.",
    ),
    Item(
        "Table 4.4",
        "Memory (MB) by the window, 100,000 events/s",
        "Section 4.5.2",
        ("micro/time-window", "micro/time-window-two-level"),
        _table_4_4,
        _LONG,
        cut="Windows go to two hours, not twelve, and event time runs as fast as the system takes it.",
        quick_cut="1.1 windows long, not 1.5.",
    ),
    Item(
        "Figure 4.9",
        "Throughput of Q3 and Q4 over large time windows",
        "Section 4.5.2",
        ("micro/time-window", "micro/time-window-two-level"),
        _figure_4_9,
        "In the thesis Q3 drops on engine Z as the window grows, and Q4 stays level. " + HARDWARE,
        stated="No values are given.",
        cut="Windows go to two hours, not twelve.",
        quick_cut="1.1 windows long, not 1.5.",
    ),
)
