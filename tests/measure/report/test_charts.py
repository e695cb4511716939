"""Charts are well-formed SVG, the same every time, and show names as they are."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from penstock_bench.measure.report.charts import Axis, Bars, Bins, Chart, Lines, Scatter, Series, Span, svg

HOSTILE = "_<script>alert('x')</script> $\\frac{ & \x00\x1b"
CHARTS = {
    "lines": Lines(
        [Series("one", [1, 2, 3], [1, math.nan, 3]), Series(HOSTILE, [1, 2], [2, 1], dashed=True)],
        Axis("rate", log=True, ticks=[1, 2]),
        Axis("ms", log=True),
        "Latency",
        [Span("steady", 1, 2), Span(HOSTILE, 2, 3)],
    ),
    "steps": Lines([Series("rows", [0, 1], [5, 6])], steps=True),
    "scatter": Scatter([Series("one", range(300), range(300)), Series("two", [], [])], y=Axis(log=True)),
    "bars": Bars(["a", HOSTILE], {"one": [1, 2], HOSTILE: [3, math.nan]}, y=Axis("GB", limits=(0, 10))),
    "stacked": Bars(["a" * 50, "b" * 50], {"one": [1, 2], "two": [3, 4]}, stacked=True),
    "bins": Bins("one", [1, 10], [10, 100], [5, 6], Axis("ms", log=True)),
    "nothing": Lines([], x=Axis(log=True), y=Axis(log=True)),
}


def texts(drawn: str) -> str:
    return " ".join(text for element in ET.fromstring(drawn).iter() for text in element.itertext() if text.strip())


@pytest.mark.parametrize("name", CHARTS)
def test_is_well_formed_and_reproducible(name: str) -> None:
    chart: Chart = CHARTS[name]
    drawn = svg(chart)
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert drawn == svg(chart)
    assert "<script" not in drawn


def test_panels_share_a_legend_and_colours() -> None:
    one = Lines([Series("first", [1, 2], [1, 2]), Series("second", [1, 2], [2, 1])], title="One")
    other = Lines([Series("second", [1, 2], [2, 1])], title="Other")
    drawn = svg(one, other)
    shown = texts(drawn)
    assert "One" in shown
    assert "Other" in shown
    # Each line is drawn in its panel, and once in the legend.
    assert texts(drawn).count("second") == texts(svg(one)).count("second")
    assert "#d55e00" not in svg(other)
    assert "#d55e00" in svg(other, order=["first", "second"])


def test_names_mean_themselves() -> None:
    shown = texts(svg(CHARTS["lines"]))
    assert "_<script>alert('x')</script> $\\frac{ & \ufffd\ufffd" in shown


def test_a_figure_needs_a_chart() -> None:
    with pytest.raises(ValueError, match="needs a chart"):
        svg()
