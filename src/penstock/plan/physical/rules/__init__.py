"""The rules that make the physical plan what it is, in their order. Each is a pure function in a file of its own, with
text fixtures of plans before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.lang.query import Program, Query
from penstock.plan.build import build
from penstock.plan.nodes import Node
from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.lower import lower
from penstock.plan.physical.nodes import PhysicalPlan
from penstock.plan.physical.rules.choose_panes import choose_panes
from penstock.plan.physical.rules.keep_existing import keep_existing
from penstock.plan.physical.rules.place_on_spark import place_on_spark
from penstock.plan.physical.rules.share_aggregations import share_aggregations
from penstock.plan.physical.rules.share_joins import share_joins
from penstock.plan.physical.rules.share_windows import share_windows

Rule = Callable[[PhysicalPlan, Circumstances], PhysicalPlan]

RULES: tuple[Rule, ...] = (
    keep_existing,
    choose_panes,
    share_aggregations,
    share_windows,
    share_joins,
    place_on_spark,
)

_NOTHING_KNOWN = Circumstances()


def optimised(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    for rule in RULES:
        plan = rule(plan, circumstances)
    return plan


def make_plan(queries: Sequence[tuple[Query, Node]], circumstances: Circumstances) -> PhysicalPlan:
    """The plan of queries that start together."""
    return optimised(lower(queries), circumstances)


def plan_program(program: Program, circumstances: Circumstances = _NOTHING_KNOWN) -> PhysicalPlan:
    """The plan that an app of the program begins with."""
    return make_plan([(query, build(query.body)) for query in program.queries], circumstances)
