"""Mendes' thesis, Chapter 5: Figures 5.8 to 5.12, Tables 5.1 to 5.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock_bench.measure.report.charts import Axis, Chart
from penstock_bench.measure.reproduction.item import (
    Cell,
    Item,
    Points,
    Shown,
    Table,
    by_number,
    exact,
    lines,
    per_cent,
    times,
)
from penstock_bench.measure.reproduction.results import Results

_FORMS = {
    "Map": "dict",
    "Array": "list",
    "POJO": "object",
    "Col-Store": "columns",
    "Col-Store Proj.": "projected columns",
}
_WINDOWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_TABLE_5_1 = {
    "Map": (0.8, 5.5, 51.4, 511.5, 5112.9, None),
    "Array": (0.5, 2.1, 17.9, 176.5, 1755.0, None),
    "POJO": (0.3, 0.8, 6.3, 61.2, 682.1, 6103.0),
    "Col-Store": (0.2, 0.5, 2.8, 26.9, 267.2, 2670.5),
    "Col-Store Proj.": (0.2, 0.3, 0.9, 7.8, 76.0, 763.1),
}
_TABLES = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_TABLE_5_2 = {
    "Map": (0.2, 1.1, 9.3, 92.1, 920.0, 9131.2),
    "Array": (0.2, 0.4, 2.8, 27.3, 268.4, 2654.8),
    "POJO": (0.2, 0.3, 1.4, 13.6, 130.6, 1275.3),
    "Col-Store": (0.2, 0.3, 1.4, 13.2, 126.8, 1237.0),
    "Col-Store Proj.": (0.2, 0.3, 1.3, 11.7, 111.5, 1083.8),
}


def _measured(results: Results, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = results.bench("tuples").get("series", {}).get(what, [])
    return found


def _rates(results: Results, what: str) -> dict[str, list[tuple[float, float]]]:
    """By form the throughput over the size."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in _measured(results, what):
        found.setdefault(row["form"], []).append((row["size"], row["events_per_second"]))
    return found


def _figure_5_8(results: Results) -> Shown:
    aggregation, join = _rates(results, "aggregation"), _rates(results, "join")
    named = {form: f"{java} ({form})" for java, form in _FORMS.items()} | {"our store": "our engine's store"}

    def of(found: Mapping[str, Points]) -> dict[str, Points]:
        return {label: found[form] for form, label in named.items() if form in found}

    y = Axis("events/s", log=True)
    charts: list[Chart] = [
        *lines(of(aggregation), Axis("window (events)", log=True), y, "(a) Aggregation"),
        *lines(of(join), Axis("rows of the table", log=True), y, "(b) Join"),
    ]
    # A form is measured up to some size; two are compared at the largest that both have.
    rows = [
        ("aggregation: projected columns to maps", "about 35×", times(_gain(aggregation, "projected columns"))),
        ("join: the best form to maps", "more than 3×", times(_best(join))),
        ("join: columns to objects", "-5 % to +3 %", times(_gain(join, "columns", "object"))),
    ]
    return Shown(Table(("throughput", "thesis", "ours"), rows), charts)


def _gain(found: Mapping[str, Points], form: str, to: str = "dict") -> float | None:
    ours, other = ({point[0]: point[1] for point in found.get(name, ())} for name in (form, to))
    common = sorted(ours.keys() & other.keys())
    return ours[common[-1]] / other[common[-1]] if common else None


def _best(found: Mapping[str, Points]) -> float | None:
    return max((gain for form in found if (gain := _gain(found, form)) is not None), default=None)


def _memory(results: Results, what: str, sizes: Sequence[int], thesis: Mapping[str, Sequence[float | None]]) -> Table:
    ours = {(row["form"], row["size"]): row["bytes"] * row["size"] / 1e6 for row in _measured(results, what)}
    rows: list[tuple[Cell, ...]] = []
    for name, cells in thesis.items():
        rows.append((name, *map(exact, cells)))
        rows.append((f"ours: {_FORMS[name]}", *(ours.get((_FORMS[name], size)) for size in sizes)))
    if what == "aggregation":
        rows.append(("ours: the engine's store", *(ours.get(("our store", size)) for size in sizes)))
    return Table(("form", *(f"{size:,}" for size in sizes)), rows)


def _throughput_and_cpi(results: Results) -> Shown:
    aggregation, join = _rates(results, "aggregation"), _rates(results, "join")
    curves = {
        "aggregation, objects": aggregation.get("object", []),
        "aggregation, columns": aggregation.get("columns", []),
        "join, objects": join.get("object", []),
        "join, columns": join.get("columns", []),
    }
    level = {label: [(x, y / points[0][1]) for x, y in points] for label, points in curves.items() if points}
    charts = lines(level, Axis("size of the state", log=True), Axis("throughput, of the smallest"), "Throughput")
    rows = [(label, points[0][0], points[-1][0], per_cent(points[-1][1] - 1, 0)) for label, points in level.items()]
    return Shown(Table(("ours", "from", "to", "throughput"), rows) if rows else None, charts, columns=1)


def _figure_5_10(results: Results) -> Shown:
    rates = _rates(results, "aggregation")
    curves = {
        "conventional column store": rates.get("columns", []),
        "cache-aware algorithm": rates.get("buffered columns", []),
    }
    charts = lines(curves, Axis("window (events)", log=True), Axis("events/s"), "AVG over a window")
    plain, buffered = (dict(points) for points in curves.values())
    rows: list[tuple[Cell, ...]] = [
        (f"{int(size):,}", plain[size], buffered.get(size), per_cent(buffered[size] / plain[size] - 1))
        for size in sorted(plain)
    ]
    rows.append(("thesis", None, None, "28 % to 35 %"))
    return Shown(Table(("window (events)", "conventional (events/s)", "cache-aware", "gain"), rows), charts, columns=1)


def _figure_5_11(results: Results) -> Shown:
    found: dict[str, dict[str, float]] = results.bench("join-table").get("by_rows", {})
    curves = {
        "conventional hash join": by_number({rows: at["hash"] for rows, at in found.items()}),
        "batch grace hash join": by_number({rows: at["grace"] for rows, at in found.items()}),
    }
    charts = lines(curves, Axis("rows of the table", log=True), Axis("events/s", log=True), "Join with a table")
    rows: list[tuple[Cell, ...]] = [
        (f"{int(rows):,}", at["hash"], at["grace"], per_cent(at["grace_to_hash"] - 1))
        for rows, at in sorted(found.items(), key=lambda item: int(item[0]))
    ]
    rows.append(("thesis, 10 to 80 million", None, None, "11 % to 44 %"))
    return Shown(Table(("rows", "hash (events/s)", "batch grace hash", "gain"), rows), charts, columns=1)


def _figure_5_12(results: Results) -> Shown:
    found: dict[str, dict[str, float]] = results.bench("multi").get("results_per_second", {})
    titles = {
        "one stream": "(a) one stream, one thread",
        "N streams": "(b) N streams, one thread",
        "N threads": "(c) N streams, N threads",
    }
    x, y = Axis("queries", log=True, ticks=(1, 2, 4, 8, 16)), Axis("results/s")
    charts: list[Chart] = []
    rows: list[tuple[Cell, ...]] = []
    for setting, title in titles.items():
        points = by_number(found.get(setting, {}))
        charts += lines({"aggregation": points}, x, y, title)
        rows.append((title, *(dict(points).get(count) for count in (1, 2, 4, 8, 16))))
    joins: dict[str, dict[str, dict[str, float]]] = results.bench("multi").get("join_results_per_second", {})
    for letter, (setting, ways) in zip("def", joins.items(), strict=False):
        curves = {f"{way} join": by_number(found) for way, found in ways.items()}
        charts += lines(curves, x, y, f"({letter}) joins, {titles[setting][4:]}")
        rows += [
            (f"({letter}) {label}", *(dict(points).get(count) for count in (1, 2, 4, 8, 16)))
            for label, points in curves.items()
        ]
    return Shown(Table(("results/s, by queries", "1", "2", "4", "8", "16"), rows), charts)


def _table_5_3(results: Results) -> Shown:
    gain = results.bench("tuples").get("buffered_to_plain")
    own = None if gain is None else per_cent(gain - 1)
    return Shown(
        Table(
            ("", "thesis", "ours, largest window"), [("gain over columns written event by event", "28 % to 35 %", own)]
        )
    )


_PYTHON = (
    "Maps, arrays and objects are Python's dicts, lists and objects with slots here and Java's there; columns are"
    " compiled loops. "
)
_CUT = "Forms on the heap go to a million tuples."
_QUICK = "Forms on the heap go to 100,000 tuples, columns to ten million."

ITEMS = (
    Item(
        "Figure 5.8",
        "Throughput by the representation of tuples",
        "Section 5.4",
        ("tuples",),
        _figure_5_8,
        _PYTHON + "The gain of columns is larger than the thesis', since it is that of compiling, too.",
        stated="The best form is on average 35 times as fast as maps in the aggregation, and more than 3 times in the"
        " join.",
        cut=_CUT,
        quick_cut=_QUICK,
    ),
    Item(
        "Table 5.1",
        "Memory (MB) of windows by the representation of tuples",
        "Section 5.4",
        ("tuples",),
        lambda results: Shown(_memory(results, "aggregation", _WINDOWS, _TABLE_5_1)),
        _PYTHON + "Columns are the same bytes in both; a map of Java is larger than a dict, its objects are"
        " smaller than Python's. Our store keeps the"
        " event time"
        " beside the attribute.",
        cut=_CUT,
        quick_cut=_QUICK,
    ),
    Item(
        "Table 5.2",
        "Memory (MB) of tables by the representation of tuples",
        "Section 5.4",
        ("tuples",),
        lambda results: Shown(_memory(results, "join", _TABLES, _TABLE_5_2)),
        _PYTHON + "Java's HashMap takes most of the thesis' memory with columns; our index is an array of row numbers.",
        cut=_CUT,
        quick_cut="Tables go to 100,000 rows.",
    ),
    Item(
        "Figure 5.9",
        "Throughput and cycles per instruction",
        "Section 5.5",
        ("tuples",),
        _throughput_and_cpi,
        "Only the throughput is reproduced: cycles per instruction need the processor's counters, which we do"
        " not read.",
        stated="In the thesis throughput falls as cycles per instruction rise; no values are given for this figure.",
        cut=_CUT,
        quick_cut=_QUICK,
    ),
    Item(
        "Table 5.3",
        "The cache-aware algorithm",
        "Section 5.5.1",
        ("tuples",),
        _table_5_3,
        "A listing, which is in"
        " [column_kernels.py](../src/penstock_bench/benches/column_kernels.py) (`average_buffered`); the engine takes"
        " whole batches and copies"
        " them into a block one attribute at a time, which is the same thing with the batch as the buffer.",
    ),
    Item(
        "Figure 5.10",
        "The conventional column store and the cache-aware algorithm",
        "Section 5.5.1",
        ("tuples",),
        _figure_5_10,
        "The gain is small here; perhaps because today's processors fetch several streams of addresses ahead, so that"
        " writing to four arrays costs hardly more than to one (not tested).",
        stated="The gain is 28 % to 35 %.",
        quick_cut="Windows go to ten million events.",
    ),
    Item(
        "Figure 5.11",
        "Hash join and batch grace hash join",
        "Section 5.5.2",
        ("join-table",),
        _figure_5_11,
        "The index is an array and not a HashMap of objects. Below a million rows the table is in the cache and"
        " partitioning"
        " costs more than it brings, so the engine chooses by the size. Cycles per instruction are not measured.",
        stated="The gain is 11 % to 44 % from 10 to 80 million rows.",
        quick_cut="Tables go to 10 million rows, not 80.",
    ),
    Item(
        "Figure 5.12",
        "1 to 16 queries, three settings",
        "Section 5.6",
        ("multi",),
        _figure_5_12,
        "The same query is computed once however many ask, so (a) grows where the thesis' rises slightly; (b)"
        " stays level"
        " as there; (c) and (f) are bounded by two cores instead of eight. A join's events are columns that are"
        " there already, so (d) and (e) differ"
        " by what the cache holds of them.",
        stated="No values are given for (a) to (c); in (d) to (f) batch grace hash join is 1.02 to 1.64 times as fast.",
        quick_cut="Windows of 200,000 rows and tables of 1 million instead of 10 million.",
    ),
)
