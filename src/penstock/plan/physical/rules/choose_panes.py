"""Windows that cost less that way are made of panes: families of new windows whose queries are under one strategy.

A family is made of panes if its queries ask for that. Under "auto" the costs decide (`pane_cost`).

Why: docs/decisions/panes-by-cost.md
"""

from __future__ import annotations

from penstock.errors import QueryError
from penstock.lang.query import Query
from penstock.plan.aggregations import Look, aggregate_nodes, look_of
from penstock.plan.nodes import Node
from penstock.plan.pane_cost import compare
from penstock.plan.panes import Family, families, why_not
from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.merging import merged
from penstock.plan.physical.nodes import PaneFamily, PhysicalPlan, Shareable, Stage, WindowReader

_LEAST_WINDOWS = 2
"""A window that is alone keeps its rows, unless panes are asked for: queries that come later can join it."""


def choose_panes(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    if not circumstances.with_panes:
        return plan
    for planned in plan.queries:
        check_strategy(planned.query, planned.node)
    strategies = {planned.name: planned.query.strategy or "auto" for planned in plan.queries}
    strategies |= circumstances.strategies
    by_strategy: dict[str, list[tuple[Stage, WindowReader]]] = {}
    for stage, window in plan.new_windows:
        (reader,) = window.readers
        by_strategy.setdefault(strategies[reader.query], []).append((stage, reader))
    groups: list[tuple[list[Stage], Shareable]] = []
    for strategy, windows in by_strategy.items():
        paned = {
            node: number
            for number, family in enumerate(families(reader.node for _, reader in windows))
            if _is_paned(family, strategy, circumstances)
            for node in family.nodes
        }
        together: dict[int, list[tuple[Stage, WindowReader]]] = {}
        for stage, reader in windows if paned else ():
            if reader.node in paned:
                together.setdefault(paned[reader.node], []).append((stage, reader))
        for own in together.values():
            groups.append(([stage for stage, _ in own], PaneFamily(tuple(reader for _, reader in own))))
    return merged(plan, groups)


def check_strategy(query: Query, node: Node) -> None:
    """Refuses a query that asks for panes and has no window that can be made of them."""
    if query.strategy == "panes":
        reasons = [why_not(window) for window in aggregate_nodes(node)]
        if None not in reasons:
            reason = next(iter(reasons), "it aggregates no window")
            raise QueryError(f"query {query.name} cannot be made of panes: {reason}", hint="leave its strategy out")


def _is_paned(family: Family, strategy: str, circumstances: Circumstances) -> bool:
    if strategy == "auto":
        if len(family.windows) < _LEAST_WINDOWS or any(look_of(node) is Look.CHANGES for node in family.nodes):
            return False
        costs = compare(family, circumstances.workload(family.nodes[0]))
        return costs.prefers_panes(circumstances.memory, circumstances.strategy_factor)
    return strategy == "panes"
