"""New joins of streams over the same inputs and keys have one core (`joins.sharing`). Joins of subqueries never have
the same rows in two queries, so each has a core of its own."""

from __future__ import annotations

from penstock.plan.joins.sharing import CoreKey, core_key
from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.merging import merged
from penstock.plan.physical.nodes import JoinCore, JoinReader, PhysicalPlan, Shareable, Stage


def share_joins(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    found: dict[CoreKey, list[tuple[Stage, JoinReader]]] = {}
    for stage in plan.stages:
        if isinstance(stage.form, JoinCore) and not stage.form.saved:
            (reader,) = stage.form.readers
            if reader.node.joins_streams:
                found.setdefault(core_key(reader.node), []).append((stage, reader))
    groups: list[tuple[list[Stage], Shareable]] = []
    for together in found.values():
        groups.append(([stage for stage, _ in together], JoinCore(tuple(reader for _, reader in together))))
    return merged(plan, groups)
