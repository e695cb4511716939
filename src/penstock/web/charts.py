"""Charts: options for ECharts that are readable on light and dark, and hold only their data from update to update.

Series differ in colour, and in dash where several are of one kind, so that they can be told apart without colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

COLOURS = ("#3584c7", "#de8a33", "#27a391", "#a86bb5", "#838b95")
DASHES = ("solid", "dashed", "dotted", [8, 3, 2, 3], "solid")
_QUIET = "#828c98"
_GRID = "rgba(130, 140, 152, 0.18)"

_SIZES = "(v) => v >= 1e9 ? v/1e9+' GB' : v >= 1e6 ? v/1e6+' MB' : v >= 1e3 ? v/1e3+' kB' : v+' B'"
_COUNTS = "(v) => v >= 1e9 ? v/1e9+' G' : v >= 1e6 ? v/1e6+' M' : v >= 1e4 ? v/1e3+' k' : ''+v"
_NANOS = "(v) => v >= 1e9 ? v/1e9+' s' : v >= 1e6 ? v/1e6+' ms' : v >= 1e3 ? v/1e3+' µs' : v+' ns'"
UNITS = {
    "count": _COUNTS,
    "size": _SIZES,
    "ns": _NANOS,
    "seconds": "(v) => v + ' s'",
    "from": "(v) => v.split(' – ')[0]",
}

Series = Mapping[str, Sequence[tuple[float, float | None]]]


class LineChart:
    """Lines over time: seconds since the epoch, or `elapsed` since a run began. `unit` is count, size or ns; latencies
    have a logarithmic axis."""

    def __init__(self, label: str, unit: str, *, logarithmic: bool = False, elapsed: bool = False) -> None:
        self._scale = 1 if elapsed else 1000
        across = {"type": "value", **_axis("seconds")} if elapsed else {"type": "time", **_axis()}
        options: dict[str, Any] = {
            "animation": False,
            "color": list(COLOURS),
            "grid": {"left": 8, "right": 14, "top": 30, "bottom": 4, "containLabel": True},
            "legend": {"top": 0, "left": 0, "itemWidth": 22, "itemHeight": 8, "textStyle": {"color": _QUIET}},
            "tooltip": {"trigger": "axis", "confine": True, ":valueFormatter": _precise(unit)},
            "xAxis": {**across, "splitLine": {"show": False}},
            "yAxis": {"type": "log" if logarithmic else "value", **_axis(unit), "min": None if logarithmic else 0},
            "series": [],
            "aria": {"enabled": True, "label": {"description": label}},
        }
        self._chart = ui.echart(options).classes("chart").props(f'role="img" aria-label="{label}"')

    def show(self, series: Series) -> None:
        drawn = [
            {
                "name": name,
                "type": "line",
                "showSymbol": len(points) < 2,
                "lineStyle": {"width": 1.8, "type": DASHES[number % len(DASHES)]},
                "areaStyle": {"opacity": 0.08} if len(series) == 1 else None,
                "data": [[round(at * self._scale, 2), value] for at, value in points],
            }
            for number, (name, points) in enumerate(series.items())
        ]
        if drawn == self._chart.options["series"]:
            return
        self._chart.options["series"] = drawn
        self._chart.options["legend"]["show"] = len(drawn) > 1
        self._chart.options["grid"]["top"] = 30 if len(drawn) > 1 else 12
        self._chart.update()


class HistogramChart:
    """Bars of counts over values on a logarithmic scale: one for each (from, to, count)."""

    def __init__(self, label: str) -> None:
        options: dict[str, Any] = {
            "animation": False,
            "color": list(COLOURS),
            "grid": {"left": 8, "right": 14, "top": 12, "bottom": 4, "containLabel": True},
            "tooltip": {"trigger": "axis", "confine": True, "axisPointer": {"type": "shadow"}},
            "xAxis": {"type": "category", "data": [], **_axis("from"), "splitLine": {"show": False}},
            "yAxis": {"type": "value", **_axis("count")},
            "series": [{"type": "bar", "name": "results", "data": [], "barCategoryGap": "8%"}],
            "aria": {"enabled": True, "label": {"description": label}},
        }
        self._chart = ui.echart(options).classes("chart").props(f'role="img" aria-label="{label}"')

    def show(self, names: Sequence[str], counts: Sequence[int]) -> None:
        options = self._chart.options
        if options["series"][0]["data"] == list(counts) and options["xAxis"]["data"] == list(names):
            return
        options["xAxis"]["data"] = list(names)
        options["series"][0]["data"] = list(counts)
        self._chart.update()


def _axis(unit: str | None = None) -> dict[str, Any]:
    label: dict[str, Any] = {"color": _QUIET, "fontSize": 11, "hideOverlap": True}
    if unit is not None:
        label[":formatter"] = UNITS[unit]
    return {
        "axisLabel": label,
        "axisLine": {"lineStyle": {"color": _GRID}},
        "axisTick": {"show": False},
        "splitLine": {"lineStyle": {"color": _GRID}},
    }


def _precise(unit: str) -> str:
    """Values in a tooltip have three digits or so."""
    return f"(v) => v == null ? '–' : ({UNITS[unit]})(Number(Number(v).toPrecision(4)))"
