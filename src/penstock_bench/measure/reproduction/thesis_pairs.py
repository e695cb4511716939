"""Mendes' thesis, Chapter 7: Table 7.1, the benchmark Pairs on two engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_bench.measure.report.charts import Axis, Bins, Chart
from penstock_bench.measure.reproduction.item import Cell, Item, Points, Shown, Table, exact, lines
from penstock_bench.measure.reproduction.results import Results

_NAMES = {"penstock": "Penstock", "esper": "Esper"}
_X_P99 = {1: 63, 2: 175, 3: 203, 4: 351, 5: 91_862}
_X_SCORE = {1: 47.62, 2: 34.29, 3: 44.33, 4: 34.19, 5: 0.16}
_Y_P99 = {1: 22, 2: 24}
_Y_SCORE = {1: 136.36, 2: 250.0}


def _table_7_1(results: Results) -> Shown:
    series: dict[str, Any] = results.bench("pairs").get("series", {})
    ours = {_NAMES[name]: {int(p["sf"]): p for p in points} for name, points in series.get("by_sf", {}).items()}
    rows: list[tuple[Cell, ...]] = []
    for scale_factor in sorted({*_X_P99, *(sf for points in ours.values() for sf in points)}):
        thesis = (_X_P99, _Y_P99, _X_SCORE, _Y_SCORE)
        cells: list[Cell] = [exact(found.get(scale_factor)) for found in thesis]
        for points in ours.values():
            point = points.get(scale_factor, {})
            cells += [point.get("p99_ms"), point.get("p_score"), point.get("sustained")]
        rows.append((scale_factor, 25 * scale_factor, *cells))
    headings = ["SF", "strategies", "X p99 (ms)", "Y p99 (ms)", "X p_score", "Y p_score"]
    headings += [f"{name} {what}" for name in ours for what in ("p99 (ms)", "p_score", "sustained")]
    return Shown(Table(headings, rows), _charts(ours, series.get("histogram", {})))


def _charts(ours: Mapping[str, Mapping[int, Any]], histograms: Mapping[str, Any]) -> list[Chart]:
    curves: dict[str, Points] = {
        name: sorted((sf, point["p_score"]) for sf, point in points.items() if point["p_score"] > 0)
        for name, points in ours.items()
    }
    paper: dict[str, Points] = {"thesis, X": sorted(_X_SCORE.items()), "thesis, Y": sorted(_Y_SCORE.items())}
    x = Axis("scale factor", log=True)
    charts: list[Chart] = [*lines(curves, x, Axis("p_score", log=True), "p_score by scale factor", paper=paper)]
    for name, counted in histograms.items():
        edges = counted["edges_ms"]
        if edges:
            latency = Axis("latency of MarketOrder (ms)", log=True)
            title = f"{_NAMES[name]} at its best scale factor"
            charts.append(Bins(_NAMES[name], edges[:-1], edges[1:], counted["orders"], latency, Axis("orders"), title))
    return charts


ITEMS = (
    Item(
        "Table 7.1",
        "Pairs: 99th percentile of the latency of orders, and p_score",
        "Section 7.5.2",
        ("pairs",),
        _table_7_1,
        "The thesis has eight cores at 2.5 GHz and sends events as CSV; here driver, system and sink share two cores"
        " and send columns. Strategies are rows of a table here, on Esper too, and share the averages; the thesis'"
        " engines seem to have had statements for each strategy. X was overloaded at SF 5, and Y could not load SF 3.",
        stated="X sustained SF 4 with latencies of 1 to 446 ms (49 on average); its best score was at SF 1.",
        quick_cut="The two hours are 15 minutes of thinned history, sent as fast as they are taken, and 8.5 seconds in"
        " real time; the windows of 94 % of the strategies are full. One boundary at which periods of all lengths end"
        " is measured instead of 60.",
    ),
)
