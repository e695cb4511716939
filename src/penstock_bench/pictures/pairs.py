"""Pictures of Pairs: the ratio of a strategy with its bands and orders, and the input rate over a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Floats
from penstock.errors import InputError
from penstock_bench.measure.report.charts import PALE, Axis, Lines, Series, Span, svg
from penstock_bench.workloads.pairs.rates import RateCurve
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.validator import Answers

_MINUTE = 60_000
_BANDS = {"upper band": "upperBand", "lower band": "lowerBand", "average": "avgRatio", "ratio": "ratio"}


@dataclass(frozen=True)
class _Bands:
    """Lines of the indicators, the stretch between the bands shaded, and a mark at the ratio for each order."""

    title: str
    minutes: Floats
    lines: Mapping[str, Floats]
    orders: Mapping[str, Floats]
    """The minutes of the orders of each kind; sales are rings, which a purchase at the same tick does not hide."""

    def labels(self) -> Iterable[str]:
        return [*self.lines, *self.orders]

    def draw(self, axes: Any, styles: Mapping[str, Any]) -> None:
        axes.fill_between(self.minutes, self.lines["lower band"], self.lines["upper band"], color=PALE, alpha=0.5, lw=0)
        for label, values in self.lines.items():
            width = 2.0 if label == "ratio" else 1.0
            dash = "dashed" if label == "average" else "solid"
            axes.plot(self.minutes, values, color=styles[label].colour, linewidth=width, linestyle=dash)
        for label, at in self.orders.items():
            look = styles[label]
            height = np.interp(at, self.minutes, self.lines["ratio"])
            ring = label.startswith("SELL")
            face = "none" if ring else look.colour
            axes.scatter(at, height, s=150 if ring else 60, marker="o" if ring else look.marker, facecolors=face,
                         edgecolors=look.colour, linewidths=1.6, zorder=5)  # fmt: skip
        values = np.concatenate(list(self.lines.values()))
        margin = 0.08 * float(values.max() - values.min())
        limits = (float(values.min()) - margin, float(values.max()) + margin)
        Lines([], Axis("minutes of the run"), Axis("ratio of the prices", limits=limits)).draw(axes, {})


def bands_picture(strategy: Strategy, answers: Answers, first: float = 0.0, last: float = np.inf) -> str:
    """The indicators and orders of one strategy as SVG, from minute `first` to minute `last` of the run."""
    indicators = _between(answers.indicators, strategy.alias, first, last)
    if not indicators.num_rows:
        raise InputError(f"{strategy.alias} has no Indicator there: it needs {strategy.num_periods} closed periods")
    orders = _between(answers.orders, strategy.alias, first, last)
    kinds = {
        f"BUY {strategy.symbol1}": pc.equal(orders["symbol"], strategy.symbol1),
        f"BUY {strategy.symbol2}": pc.equal(orders["symbol"], strategy.symbol2),
        "SELL": pc.is_valid(orders["symbol"]),
    }
    title = (
        f"{strategy.alias}: {strategy.symbol1} / {strategy.symbol2}, {strategy.num_periods} periods of "
        f"{strategy.period_length} s, bands ± {strategy.bands_multiplier:g}"
    )
    return svg(
        _Bands(
            title,
            _minutes(indicators),
            {label: indicators[name].to_numpy() for label, name in _BANDS.items()},
            {
                label: _minutes(orders.filter(pc.and_(those, pc.equal(orders["type"], label.split()[0]))))
                for label, those in kinds.items()
            },
        ),
        height=4.2,
    )


def rate_picture(curve: RateCurve) -> str:
    """The input rate of a run as SVG, with its measurement interval."""
    times, rates = curve.corners
    begin, end = curve.measurement
    spans = [Span("measurement interval", begin / 60, end / 60)]
    series = [Series("", times / 60, rates)]
    return svg(Lines(series, Axis("minutes of the run"), Axis("ticks a second"), spans=spans), height=2.8)


def _minutes(table: pa.Table) -> Floats:
    return np.asarray(table["inputTickTS"], np.float64) / _MINUTE


def _between(table: pa.Table, alias: str, first: float, last: float) -> pa.Table:
    minutes = _minutes(table)
    inside = pa.array((minutes >= first) & (minutes <= last))
    return table.filter(pc.and_(pc.equal(table["strategy"], alias), inside))
