"""Which windows are families: those that can be made of the same panes.

    SELECT k, AVG(x) FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k     ┐ one family, panes of 10 seconds: each row
    SELECT k, AVG(x) FROM s [RANGE 6 HOURS SLIDE 1 MINUTE] GROUP BY k      ├ is added once, and each pane to all three
    SELECT k, AVG(x) FROM s [RANGE 24 HOURS SLIDE 30 SECONDS] GROUP BY k   ┘ windows
    SELECT k, MAX(y) FROM s [RANGE 24 HOURS SLIDE 30 SECONDS] GROUP BY k     with the third: that window needs both
    SELECT MEDIAN(x) FROM s [RANGE 1 HOUR SLIDE 10 SECONDS]                  none: no pane has the median of others

A window is looked at by all queries over it. Windows over one grouping whose queries together need the same states are
a family; a pane is as long as the greatest common divisor of their extents, slides and offsets. Queries of a family
are started together: one that comes later begins with an empty window.

Why: docs/decisions/panes-by-cost.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

from penstock.lang.query import Emit
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import AggregateNode
from penstock.plan.reads import grouping_of
from penstock.plan.sharing import may_share
from penstock.types import SqlType


class PanedWindow(NamedTuple):
    """A window as its evaluations are counted, in microseconds: those of a bounded run end later with DRAIN."""

    extent: int
    slide: int
    offset: int = 0
    when_full: bool = False
    drain: bool = False

    @classmethod
    def of(cls, node: AggregateNode) -> PanedWindow:
        length, slide = node.window.extent.length, node.window.time_slide
        assert length is not None
        assert slide is not None
        return cls(length, slide.micros, slide.offset, node.window.when_full, node.emission.drain)


class Pane(NamedTuple):
    """Panes begin at the multiples of `micros`, plus `offset`."""

    micros: int
    offset: int


@dataclass(frozen=True, eq=False)
class Family:
    """The nodes of queries over windows of one family, and its distinct windows. Only one is equal to itself: there
    may be a thousand nodes to compare."""

    nodes: tuple[AggregateNode, ...]
    windows: tuple[PanedWindow, ...]

    @property
    def pane(self) -> Pane:
        return pane_of(self.windows)


def pane_of(windows: Sequence[PanedWindow]) -> Pane:
    """The longest panes that all windows are made of.

    >>> pane_of([PanedWindow(3600, 10), PanedWindow(60, 15, 5)])
    Pane(micros=5, offset=0)
    """
    first = windows[0].offset
    length = 0
    for window in windows:
        length = gcd(length, window.extent, window.slide, window.offset - first)
    return Pane(length, first % length)


def why_not(node: AggregateNode) -> str | None:
    """None if the window can be made of panes, or else what is against it."""
    if not may_share(node) or node.window.extent.length is None or node.window.time_slide is None:
        return "panes are for RANGE windows over a stream, with a time slide shorter than the window"
    if node.where is not None and not node.filter_first:
        return "the window counts rows before WHERE"
    if node.emission.emit is Emit.EVENT_GROUP:
        return "the window is looked at with every event"
    for state in node.states:
        if state.traits.pane_bytes is None:
            return f"{state.shown} of panes cannot be put together"
        if any(arg.type is SqlType.STRING for arg in state.args):
            return f"{state.shown} of a STRING is kept row by row"
    return None


def family_of(nodes: Sequence[AggregateNode]) -> Family:
    """These nodes, which are known to be of one family."""
    return Family(tuple(nodes), tuple(dict.fromkeys(map(PanedWindow.of, nodes))))


def families(nodes: Iterable[AggregateNode]) -> list[Family]:
    """The families among queries that are started together; nodes that cannot be made of panes are in none."""
    looks: dict[tuple[Any, ...], list[AggregateNode]] = {}
    for node in nodes:
        if why_not(node) is None:
            looks.setdefault((node.input, grouping_of(node), PanedWindow.of(node)), []).append(node)
    found: dict[tuple[Any, ...], list[AggregateNode]] = {}
    for (source, grouping, _), own in looks.items():
        states = frozenset(state_key(state) for node in own for state in node.states)
        found.setdefault((source, grouping, states), []).extend(own)
    return [family_of(together) for together in found.values()]
