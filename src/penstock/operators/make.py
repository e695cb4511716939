"""The operator of each form of a physical plan that one query has alone.

The form decides everything (`plan.physical.forms`). Forms that queries share are stages (`engine.instantiate`).
An operator's module is loaded when a plan names it: a program starts without the operators that it does not use.
"""

from __future__ import annotations

from typing import assert_never

from penstock.operators.operator import Operator
from penstock.operators.resources import Resources
from penstock.plan.physical import nodes as physical


def make_operator(name: str, form: physical.Private, resources: Resources) -> Operator:
    match form:
        case physical.Union(node):
            from penstock.operators.union import Union

            return Union(name, node, resources)
        case physical.Combine(node):
            from penstock.operators.combine import Combine

            return Combine(name, node, resources)
        case physical.Project(node):
            from penstock.operators.project import Project

            return Project(node, resources)
        case physical.Pattern(node):
            from penstock.operators.patterns.pattern import Pattern

            return Pattern(name, node, resources)
        case physical.Lookup(node):
            from penstock.operators.tables.lookup import LookUp

            return LookUp(name, node, resources)
        case physical.Scan(node):
            from penstock.operators.tables.scan import Scan

            return Scan(name, node, resources)
        case physical.Edge(node):
            from penstock.operators.edge import EdgeOperator

            return EdgeOperator(name, node, resources)
        case physical.SessionRows(node):
            from penstock.operators.partitioned_relation import SessionRelation

            return SessionRelation(name, node, resources)
        case physical.PartitionedRows(node, changes_by_one_row):
            from penstock.operators.partitioned_relation import PartitionedRelation
            from penstock.operators.partitioned_row_changes import PartitionedRowChanges

            return (PartitionedRowChanges if changes_by_one_row else PartitionedRelation)(name, node, resources)
        case physical.RowsWindow(node, shows_changes):
            from penstock.operators.relation import WindowRelation
            from penstock.operators.relation_changes import RelationChanges

            return (RelationChanges if shows_changes else WindowRelation)(name, node, resources)
        case physical.ClosingWindow(node):
            from penstock.operators.closing import ClosingAggregate

            return ClosingAggregate(name, node, resources)
        case physical.PartitionedWindow(node, shows_changes):
            from penstock.operators.partitioned import PartitionedAggregate
            from penstock.operators.partitioned_changes import PartitionedChanges

            return (PartitionedChanges if shows_changes else PartitionedAggregate)(name, node, resources)
        case physical.OwnWindow(node):
            from penstock.operators.sliding import SlidingAggregate

            return SlidingAggregate(name, node, resources)
        case other:
            assert_never(other)


def make_part(name: str, form: physical.Private, resources: Resources) -> Operator:
    """As `make_operator`; aggregations of a part of the events give partial rows."""
    match form:
        case physical.ClosingWindow(node):
            from penstock.operators.parts import ClosingPart

            return ClosingPart(name, node, resources)
        case physical.OwnWindow(node):
            from penstock.operators.parts import PartialEvaluation
            from penstock.operators.sliding import SlidingAggregate

            return SlidingAggregate(name, node, resources, PartialEvaluation)
        case other:
            return make_operator(name, other, resources)
