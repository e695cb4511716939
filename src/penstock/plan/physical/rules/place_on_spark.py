"""Where the events of each query go on Spark (`placement`). In one process there is nothing to place."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.nodes import PhysicalPlan
from penstock.plan.placement import place


def place_on_spark(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    on_spark = circumstances.on_spark
    if on_spark is None:
        return plan
    nodes = {planned.name: planned.node for planned in plan.queries}
    found = place([planned.query for planned in plan.queries], nodes, on_spark.before, in_parts=on_spark.in_parts)
    return replace(plan, queries=tuple(replace(p, placement=found[p.name]) for p in plan.queries))
