"""What queries have in common, read off a physical plan."""

from __future__ import annotations

from penstock.plan.aggregations import Aggregations
from penstock.plan.nodes import AggregateNode
from penstock.plan.physical.nodes import (
    ClosingWindow,
    OwnWindow,
    PaneFamily,
    PartitionedWindow,
    PhysicalPlan,
    Shareable,
    StoredWindow,
)


def sharers(plan: PhysicalPlan) -> dict[str, list[str]]:
    """For each query that shares a stage the others that do, in the order of the program."""
    places = {planned.name: place for place, planned in enumerate(plan.queries)}
    stages: dict[str, list[list[str]]] = {name: [] for name in places}
    for stage in plan.stages:
        if isinstance(stage.form, Shareable):
            queries = sorted({reader.query for reader in stage.form.readers}, key=places.__getitem__)
            for name in queries if len(queries) > 1 else ():
                stages[name].append(queries)
    found: dict[str, list[str]] = {}
    for name, several in stages.items():
        if several:
            others = several[0] if len(several) == 1 else sorted(set().union(*several), key=places.__getitem__)
            found[name] = [other for other in others if other != name]
    return found


def aggregations(plan: PhysicalPlan) -> Aggregations:
    """All aggregations; a family of windows that are made of panes is one."""
    found: list[list[tuple[str, AggregateNode]]] = []
    for stage in plan.stages:
        match stage.form:
            case StoredWindow(members):
                found += [[(reader.query, reader.node) for reader in member.readers] for member in members]
            case PaneFamily(readers):
                found.append([(reader.query, reader.node) for reader in readers])
    for planned in plan.queries:
        for stage in plan.below(planned.rows):
            if isinstance(stage.form, OwnWindow | ClosingWindow | PartitionedWindow):
                found.append([(planned.name, stage.form.node)])
    return found
