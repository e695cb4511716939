"""New windows that hold the same rows in the same groups are one aggregation, with the states that all of them need.

Why: docs/decisions/one-aggregation.md
"""

from __future__ import annotations

from penstock.plan.aggregations import AggregationKey, key_of
from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.merging import merged
from penstock.plan.physical.nodes import Aggregation, PhysicalPlan, Shareable, Stage, StoredWindow, WindowReader


def share_aggregations(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    found: dict[AggregationKey, list[tuple[Stage, WindowReader]]] = {}
    for stage, window in plan.new_windows:
        (reader,) = window.readers
        found.setdefault(key_of(reader.node), []).append((stage, reader))
    groups: list[tuple[list[Stage], Shareable]] = []
    for together in found.values():
        aggregation = Aggregation(tuple(reader for _, reader in together))
        groups.append(([stage for stage, _ in together], StoredWindow((aggregation,))))
    return merged(plan, groups)
