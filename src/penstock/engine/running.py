"""A query at work, and who is handed a stream's rows.

Queries of a family that read the stream themselves, and feed no other, are handed rows together: the family is called
once, and only those that have results are looked at. A thousand queries then cost a call that nothing comes of no more
than one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.engine.outlet import Outlet
from penstock.lang.query import Query
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.pane_results import PaneReader
from penstock.operators.paned import PanedAggregate
from penstock.operators.panes import PaneFamily
from penstock.operators.pipeline import Pipeline
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.plan.nodes import Node

Shared = SharedAggregation | PaneFamily
"""What queries have in common: the states of one window, or all windows that are made of the same panes."""


@dataclass(frozen=True, eq=False)
class Running:
    """`feeds` is the derived stream that the query's rows go on to; `shared` are the aggregations that it may have with
    others."""

    query: Query
    node: Node
    fingerprint: str
    pipeline: Pipeline
    shared: tuple[Shared, ...]
    outlet: Outlet
    feeds: str | None

    @property
    def windows(self) -> tuple[SharedWindow, ...]:
        return tuple(shared.window for shared in self.shared if isinstance(shared, SharedAggregation))

    @property
    def paned(self) -> PanedAggregate | None:
        """Its one operator, if that is a part of a family and nobody reads on from it."""
        only = self.pipeline.only
        return only if isinstance(only, PanedAggregate) and self.feeds is None else None


@dataclass(frozen=True)
class Members:
    """All queries of a family."""

    family: PaneFamily
    running: dict[PaneReader, Running]

    def push(self, chunks: list[Chunk], watermark: int) -> Iterator[tuple[Running, list[Chunk]]]:
        """The queries that have results, and these; the watermark moves with the rows."""
        for chunk in [chunk for chunk in chunks[:-1] if chunk.rows]:
            yield from self._results(chunk, min(watermark, int(chunk.times[-1])))
        yield from self._results(chunks[-1] if chunks else Chunk(np.empty(0, np.int64), NO_ROWS), watermark)

    def _results(self, chunk: Chunk, watermark: int) -> Iterator[tuple[Running, list[Chunk]]]:
        for reader, results in self.family.process_all(chunk, watermark):
            yield self.running[reader], results


def receivers(readers: Sequence[Running]) -> list[Running | Members]:
    """The readers of a stream as they are handed its rows: a family is one if it has no other queries than these."""
    families: dict[PaneFamily, Members] = {}
    for running in readers:
        paned = running.paned
        if paned is not None:
            members = families.setdefault(paned.family, Members(paned.family, {}))
            members.running[paned.reader] = running
    found: list[Running | Members] = []
    for running in readers:
        paned = running.paned
        if paned is None or len(families[paned.family].running) < paned.family.queries:
            found.append(running)
        elif running is next(iter(families[paned.family].running.values())):
            found.append(families[paned.family])
    return found
