"""A table or figure of a paper, and how it is shown beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_bench.measure.report.charts import Axis, Chart, Lines, Series
from penstock_bench.measure.reproduction.results import Results

Cell = str | float | int | bool | None
Points = Sequence[Sequence[float]]

MISSING = "–"


@dataclass(frozen=True)
class Table:
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        uneven = [row for row in self.rows if len(row) != len(self.headings)]
        if uneven:
            raise ValueError(f"a row of {len(uneven[0])} cells below {len(self.headings)} headings: {uneven[0]}")


@dataclass(frozen=True)
class Shown:
    """What the page has of an item: a table that compares, charts drawn like the original, further text."""

    table: Table | None = None
    charts: Sequence[Chart] = ()
    columns: int = 2
    text: str = ""


@dataclass(frozen=True)
class Item:
    """`sources` are the benches it is made of, or sweeps (`micro/NAME`); without one it is nothing that is measured.

    `stated` has the numbers that the paper's text gives for what it only draws. `cut` says what of the paper's
    experiment is cut down even in a full run, `quick_cut` what more in a quick one, `differs` why the numbers cannot
    be the same.
    """

    name: str
    title: str
    place: str
    sources: Sequence[str]
    shown: Callable[[Results], Shown]
    differs: str
    stated: str = ""
    cut: str = ""
    quick_cut: str = ""

    @property
    def slug(self) -> str:
        """
        >>> Item("Figure 4.3", "", "", (), lambda results: Shown(), "").slug
        'figure-4-3'
        """
        return self.name.lower().replace(" ", "-").replace(".", "-")


@dataclass(frozen=True)
class Paper:
    key: str
    title: str
    source: str
    """Where the paper was published."""
    setting: str
    """What it was measured on, in its own words."""
    items: Sequence[Item] = field(default=())


def number(value: Cell) -> str:
    """A number as tables show it; what is not there is a dash.

    >>> [number(value) for value in (None, 12345, 12345.6, 0.01234, 5.0, "x", True)]
    ['–', '12,345', '12,346', '0.0123', '5', 'x', 'yes']
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def exact(value: float | None) -> str | None:
    """A paper's number with all digits that it has.

    >>> exact(70.89), exact(5112.9), exact(767182), exact(None)
    ('70.89', '5,112.9', '767,182', None)
    """
    return None if value is None else f"{value:,}"


def per_cent(value: float | None, digits: int = 1) -> str | None:
    return None if value is None else f"{100 * value:.{digits}f} %"


def times(value: float | None) -> str | None:
    return None if value is None else f"{value:.2g}×" if value < 10 else f"{value:.0f}×"


def series(label: str, points: Points, *, dashed: bool = False, scale: float = 1) -> Series:
    """Pairs as a line."""
    return Series(label, [point[0] for point in points], [point[1] * scale for point in points], dashed)


def lines(
    curves: Mapping[str, Points], x: Axis, y: Axis, title: str, *, paper: Mapping[str, Points] | None = None
) -> list[Lines]:
    """A chart of curves and the paper's points; none at all if there is nothing of ours."""
    if not any(curves.values()):
        return []
    drawn = [series(label, points) for label, points in curves.items() if points]
    drawn += [series(label, points, dashed=True) for label, points in (paper or {}).items()]
    values = [value for line in drawn for value in line.y if value > 0]
    if values and max(values) < 8 * min(values):
        y = replace(y, log=False)  # a scale that would have a single number at it
    return [Lines(drawn, x, y, title)]


def by_number(found: Mapping[str, float]) -> list[tuple[float, float]]:
    """What a bench has by the text of a number, as points."""
    return sorted((float(key), value) for key, value in found.items())


def first(points: Iterable[Sequence[float]], at: float) -> float | None:
    """The value at a place.

    >>> first([(1, 5.0), (2, 6.0)], 2), first([], 2)
    (6.0, None)
    """
    return next((point[1] for point in points if point[0] == at), None)
