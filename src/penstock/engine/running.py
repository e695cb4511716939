"""A running query, the queries that get a stream's rows, and the parts that queries share.

Queries of a family that read the stream directly, and feed no other query, get rows together: the family is called
once, and only queries with results are visited. A batch without results costs the same for 1,000 queries as for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from penstock.engine.outlet import Outlet
from penstock.lang.query import Query
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.joins.core import JoinCore
from penstock.operators.panes.family import PaneFamily
from penstock.operators.panes.paned import PanedAggregate
from penstock.operators.panes.results import PaneReader
from penstock.operators.pipeline import Pipeline
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.plan.aggregations import Aggregations, aggregate_nodes
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.panes import Family, family_of
from penstock.plan.sharing import may_share, shareable

Shared = SharedAggregation | PaneFamily
"""What queries have in common: the states of one window, or all windows that are made of the same panes."""


@dataclass(frozen=True, eq=False)
class Running:
    """`feeds` is the derived stream that the query's rows go on to; `shared` are the aggregations that it may have with
    others, and `cores` those of its joins."""

    query: Query
    node: Node
    fingerprint: str
    pipeline: Pipeline
    shared: tuple[Shared, ...]
    outlet: Outlet
    feeds: str | None
    cores: tuple[JoinCore, ...] = ()

    @property
    def windows(self) -> tuple[SharedWindow, ...]:
        return tuple(shared.window for shared in self.shared if isinstance(shared, SharedAggregation))

    @property
    def paned(self) -> PanedAggregate | None:
        """Its one operator, if that is a part of a family and no other query reads its results."""
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


def aggregations(queries: Mapping[str, Running]) -> Aggregations:
    """The aggregations at work, each with its queries."""
    found: dict[Any, list[tuple[str, AggregateNode]]] = {}
    for name, running in queries.items():
        shared = iter(running.shared)
        for number, node in enumerate(aggregate_nodes(running.node)):
            key: Any = next(shared) if may_share(node) else (name, number)
            found.setdefault(key, []).append((name, node))
    return list(found.values())


def paned_windows(queries: Mapping[str, Running]) -> dict[AggregateNode, Family]:
    """The families of the windows that are made of panes."""
    members: dict[PaneFamily, list[AggregateNode]] = {}
    for running in queries.values():
        for node, shared in zip(shareable(running.node), running.shared, strict=True):
            if isinstance(shared, PaneFamily):
                members.setdefault(shared, []).append(node)
    return {node: family for nodes in members.values() for family in (family_of(nodes),) for node in nodes}


def sharers(queries: Mapping[str, Running]) -> dict[str, list[str]]:
    """For each query that shares a window the others that do."""
    readers: dict[SharedWindow | Shared | JoinCore, list[str]] = {}
    parts = {name: dict.fromkeys((*r.windows, *r.shared, *r.cores)) for name, r in queries.items()}
    for name, mine in parts.items():
        for part in mine:
            readers.setdefault(part, []).append(name)
    places = {name: place for place, name in enumerate(queries)}
    found: dict[str, list[str]] = {}
    for name, mine in parts.items():
        several = [readers[part] for part in mine if len(readers[part]) > 1]
        if several:
            others = several[0] if len(several) == 1 else sorted(set().union(*several), key=places.__getitem__)
            found[name] = [other for other in others if other != name]
    return found


def users_of(store: str, queries: Mapping[str, Running]) -> list[str]:
    """The queries whose rows or states are in a store of this name."""
    found = []
    for name, running in queries.items():
        owners = (running.pipeline.name, *(shared.name for shared in (*running.shared, *running.cores)))
        if store in (window.name for window in running.windows) or store.startswith(
            tuple(f"{owner}-" for owner in owners)
        ):
            found.append(name)
    return found


def as_html(queries: Mapping[str, Running], footer: str) -> str:
    """The queries as a notebook shows them."""
    rows = "".join(
        f"<tr><td><b>{escape(name)}</b></td><td><code>{escape(running.query.text)}</code></td>"
        f"<td>{running.outlet.count:,}</td></tr>"
        for name, running in queries.items()
    )
    head = "<tr><th>query</th><th>text</th><th>results</th></tr>"
    return f"<table>{head}{rows}</table><p>{escape(footer)}</p>"
