"""Charts as SVG: lines, bars, scatter and histograms in one style, readable on white and by the colour-blind.

    svg(Lines([Series("Penstock", x=[1, 2], y=[3, 4])], x=Axis("rate"), y=Axis("latency (ms)", log=True)))

gives the text of an SVG file. Several charts become panels of one figure, `columns` beside each other, with one legend
below. A label has the same colour in all panels; `order` fixes the colours across figures. The same charts give the
same text to the byte (fixed ids, no date). All text is plain: `$` or `<` in a name mean themselves. NaN leaves a gap.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

INK, PALE = "#24313d", "#d5dbe1"
"""Of text and axes, and of grids: no series has them, so that a page can replace them by its own."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#7f7f7f")
_MARKERS = "os^DvPX*"
_DASHES = ("solid", "dashed", "dotted", "dashdot")
_STYLE: Any = {
    "svg.hashsalt": "penstock",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_FONTS = re.compile(r"'?DejaVu Sans'?(?=[;\"'])")
_TAG, _LONG, _INDENT = re.compile(r"<[^>]*>"), re.compile(r"(\.\d\d)\d+"), re.compile(r"\n +")
"""Coordinates need no millionths of a point; what is between tags is text."""

_NO_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Numbers = Sequence[float] | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Axis:
    """`ticks` are the only ones shown; `limits` are found when they are not given. A `log` axis leaves out what is not
    above zero."""

    label: str = ""
    log: bool = False
    ticks: Sequence[float] | None = None
    limits: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Series:
    label: str
    x: Numbers
    y: Numbers
    dashed: bool = False
    """For what is compared with: a paper's figures, a limit."""


@dataclass(frozen=True)
class Span:
    """A stretch of the x axis that is shaded and named, such as a phase."""

    label: str
    begin: float
    end: float


class Chart(Protocol):
    @property
    def title(self) -> str: ...

    def labels(self) -> Iterable[str]: ...
    def draw(self, axes: Any, styles: Mapping[str, _Look]) -> None: ...


@dataclass(frozen=True)
class _Look:
    colour: str
    marker: str
    dash: Any


@dataclass(frozen=True)
class _Plotted(ABC):
    series: Sequence[Series]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    spans: Sequence[Span] = field(default=())

    def labels(self) -> Iterable[str]:
        return [series.label for series in self.series]

    def draw(self, axes: Any, styles: Mapping[str, _Look]) -> None:
        for number, span in enumerate(self.spans):
            axes.axvspan(span.begin, span.end, color=PALE, alpha=0.55 if number % 2 else 0.25, linewidth=0)
            # An empty name has no width, and no place either.
            if span.label:
                axes.annotate(
                    _plain(span.label),
                    ((span.begin + span.end) / 2, 1),
                    xycoords=("data", "axes fraction"),
                    ha="center",
                    va="bottom",
                    fontsize=8,
                )
        for series in self.series:
            self._plot(axes, series, styles[series.label])
        _scale(axes, "x", self.x)
        _scale(axes, "y", self.y)

    @abstractmethod
    def _plot(self, axes: Any, series: Series, look: _Look) -> None: ...


@dataclass(frozen=True)
class Lines(_Plotted):
    """One line for each series, with marks where its values are unless there are very many."""

    steps: bool = False
    """A value holds until the next one."""

    def _plot(self, axes: Any, series: Series, look: _Look) -> None:
        axes.plot(
            series.x,
            series.y,
            color=look.colour,
            linestyle="dashed" if series.dashed else look.dash,
            linewidth=1.8,
            marker=look.marker if len(series.x) <= 40 else None,
            markersize=5,
            markerfacecolor="none" if series.dashed else look.colour,
            drawstyle="steps-post" if self.steps else "default",
        )


@dataclass(frozen=True)
class Scatter(_Plotted):
    """Points; a dashed series is a line among them."""

    def _plot(self, axes: Any, series: Series, look: _Look) -> None:
        if series.dashed:
            axes.plot(series.x, series.y, color=look.colour, linestyle="dashed", linewidth=1.8)
            return
        size = 4 if len(series.x) > 200 else 24
        axes.scatter(series.x, series.y, s=size, color=look.colour, marker=look.marker, alpha=0.7, linewidths=0)


@dataclass(frozen=True)
class Bars:
    """Beside each other, or on top of each other: one group for each category, one bar in it for each label."""

    categories: Sequence[str]
    groups: Mapping[str, Sequence[float]]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    stacked: bool = False

    def labels(self) -> Iterable[str]:
        return self.groups

    def draw(self, axes: Any, styles: Mapping[str, _Look]) -> None:
        places = np.arange(len(self.categories), dtype=float)
        width = 0.8 if self.stacked else 0.8 / max(1, len(self.groups))
        below = np.zeros(len(self.categories))
        for number, (label, heights) in enumerate(self.groups.items()):
            shift = 0.0 if self.stacked else (number - (len(self.groups) - 1) / 2) * width
            axes.bar(places + shift, heights, width * 0.94, below if self.stacked else 0, color=styles[label].colour)
            below += np.nan_to_num(np.asarray(heights, dtype=float))
        axes.grid(False, axis="x")
        _scale(axes, "y", self.y)
        axes.set_xlabel(_plain(self.x.label))
        names = [_plain(category) for category in self.categories]
        crowded = sum(len(name) for name in names) > 70
        axes.set_xlim(-0.5, max(1, len(names)) - 0.5)
        axes.set_xticks(places, names, rotation=30 if crowded else 0, ha="right" if crowded else "center")


@dataclass(frozen=True)
class Bins:
    """A histogram that has been counted: from `low` to `high` there are `counts`."""

    label: str
    low: Numbers
    high: Numbers
    counts: Numbers
    x: Axis = Axis()
    y: Axis = Axis("count")
    title: str = ""

    def labels(self) -> Iterable[str]:
        return [self.label]

    def draw(self, axes: Any, styles: Mapping[str, _Look]) -> None:
        low, high = np.asarray(self.low, dtype=float), np.asarray(self.high, dtype=float)
        colour = styles[self.label].colour
        axes.bar(low, self.counts, high - low, align="edge", color=colour, alpha=0.85, linewidth=0)
        _scale(axes, "x", self.x)
        _scale(axes, "y", self.y)


def svg(*charts: Chart, columns: int = 2, width: float = 7.2, height: float = 3.4, order: Sequence[str] = ()) -> str:
    """The figure as the text of an SVG file; `width` of the whole and `height` of a row of panels in inches."""
    if not charts:
        raise ValueError("a figure needs a chart")
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    styles = _styles([*order, *(label for chart in charts for label in chart.labels())])
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A character that the measuring font lacks is drawn by the reader's own; a log axis with nothing above zero
        # is empty.
        warnings.simplefilter("ignore", UserWarning)
        figure = Figure(figsize=(width, height * rows), layout="constrained")
        FigureCanvasSVG(figure)
        for number, chart in enumerate(charts):
            axes = figure.add_subplot(rows, columns, number + 1)
            chart.draw(axes, styles)
            above = 14 if getattr(chart, "spans", ()) else 6
            axes.set_title(_plain(chart.title), pad=above)
        _legend(figure, charts, styles)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    rounded = _INDENT.sub("\n", _TAG.sub(lambda tag: _LONG.sub(r"\1", tag[0]), text.getvalue()))
    return _FONTS.sub("system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif", rounded)


def _styles(labels: Sequence[str]) -> dict[str, _Look]:
    found: dict[str, _Look] = {}
    for label in labels:
        number = len(found)
        found.setdefault(
            label,
            _Look(
                _COLOURS[number % len(_COLOURS)],
                _MARKERS[number % len(_MARKERS)],
                _DASHES[number // len(_COLOURS) % len(_DASHES)],
            ),
        )
    return found


def _legend(figure: Any, charts: Sequence[Chart], styles: Mapping[str, _Look]) -> None:
    shown = list(dict.fromkeys(label for chart in charts for label in chart.labels() if label))
    if len(shown) < 2:
        return
    dashed = {s.label for chart in charts for s in getattr(chart, "series", ()) if s.dashed}
    handles = []
    for label in shown:
        look = styles[label]
        handles.append(
            matplotlib.lines.Line2D(
                [],
                [],
                color=look.colour,
                marker=look.marker,
                markersize=6,
                markerfacecolor="none" if label in dashed else look.colour,
                linestyle="dashed" if label in dashed else look.dash,
                linewidth=1.8,
            )
        )
    widest = max(len(label) for label in shown)
    beside = max(1, min(len(shown), int(figure.get_figwidth() * 11 / (widest + 6))))
    # Matplotlib leaves out of legends what begins with an underscore.
    figure.legend(handles, ["\u200b" + _plain(label) for label in shown], loc="outside lower center", ncols=beside)


def _scale(axes: Any, which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(_plain(axis.label))
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
    low, high = axis.limits
    if which == "x":
        axes.set_xlim(low, high)
    else:
        if low is None and not axis.log and axes.dataLim.ymin >= 0:
            low = 0
        axes.set_ylim(low, high)
    drawn = axes.xaxis if which == "x" else axes.yaxis
    shown = sorted(drawn.get_view_interval())
    if axis.log and axis.ticks is None and 0 < shown[1] < 30 * shown[0]:
        # Powers of ten alone would leave the axis with one number, or none.
        drawn.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if axis.ticks is not None:
        drawn.set_major_locator(FixedLocator(list(axis.ticks)))
        drawn.set_minor_locator(NullLocator())
    drawn.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    drawn.set_minor_formatter(NullFormatter())


def short(value: float) -> str:
    """A number as it stands at an axis.

    >>> [short(value) for value in (0, 0.001, 0.25, 12, 9000, 20000, 1.5e6, -3e9)]
    ['0', '0.001', '0.25', '12', '9000', '20k', '1.5M', '-3G']
    """
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (1e4 if letter == "k" else scale):
            return f"{value / scale:g}{letter}"
    return f"{value:.6g}"


def _plain(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
