"""A running query, and the parts that queries share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from penstock.engine.outlet import Outlet
from penstock.lang.query import Query
from penstock.operators.joins.core import JoinCore
from penstock.operators.panes.family import PaneFamily
from penstock.operators.pipeline import Pipeline
from penstock.operators.results import ResultShow
from penstock.operators.row_lane import RowLane
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.operators.stage import Stage
from penstock.plan.nodes import Node
from penstock.plan.physical.circumstances import Circumstances, Existing, OnSpark
from penstock.plan.physical.nodes import PhysicalPlan
from penstock.plan.physical.rules import make_plan

Shared = SharedAggregation | PaneFamily
"""What queries have in common: the states of one window, or all windows that are made of the same panes."""


@dataclass(frozen=True, eq=False)
class Running:
    """`feeds` is the derived stream that the query's rows go on to; `shared` are the aggregations that it may have with
    others, and `cores` those of its joins."""

    query: Query
    node: Node
    identity: str
    pipeline: Pipeline
    shared: tuple[Shared, ...]
    outlet: Outlet
    feeds: str | None
    cores: tuple[JoinCore, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the flow calls, which this query may have with others."""
        return (*(shared.stage for shared in self.shared), *(core for core in self.cores if core.joins_streams))

    @property
    def windows(self) -> tuple[SharedWindow, ...]:
        return tuple(shared.window for shared in self.shared if isinstance(shared, SharedAggregation))

    def row_lane(self) -> tuple[RowLane, ResultShow] | None:
        """The lane of its single events and where its other results are shown; None if it has none."""
        only = self.shared[0] if self.pipeline.is_one_window else None
        return only.row_lane() if isinstance(only, SharedAggregation) else None


def plan_at_work(queries: Mapping[str, Running]) -> PhysicalPlan:
    """The physical plan of what runs: its stages are those that the queries have, whenever they were started."""
    shared = [one for running in queries.values() for one in running.shared]
    existing = Existing(
        {name: tuple(one.name for one in running.shared) for name, running in queries.items()},
        {name: tuple(core.name for core in running.cores) for name, running in queries.items()},
        {one.name: one.window.name for one in shared if isinstance(one, SharedAggregation)},
    )
    as_it_is = Circumstances(with_panes=False, existing=existing, on_spark=OnSpark())
    return make_plan([(running.query, running.node) for running in queries.values()], as_it_is)


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
