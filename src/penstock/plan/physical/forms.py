"""The form of one node as long as nothing is shared. It depends on the node alone."""

from __future__ import annotations

from typing import assert_never

from penstock.plan.aggregations import Look, changes_by_one_row, look_of, shows_row_changes
from penstock.plan.nodes import (
    AggregateNode,
    CombineNode,
    EdgeNode,
    JoinNode,
    LookupNode,
    Node,
    PatternNode,
    ProjectNode,
    RelationNode,
    ScanNode,
    StreamNode,
    UnionNode,
)
from penstock.plan.physical import nodes as physical
from penstock.plan.sharing import may_share
from penstock.plan.strategy import closes_as_a_whole

Form = physical.Private | physical.StoredWindow | physical.JoinCore


def form_of(node: Node, query: str = "", number: int = 0) -> Form:
    """What carries out a node. For a form with readers, `query` and `number` say which reader the node is."""
    match node:
        case StreamNode():
            raise AssertionError("a stream is read, and carried out by nothing")
        case UnionNode():
            return physical.Union(node)
        case CombineNode():
            return physical.Combine(node)
        case JoinNode():
            return physical.JoinCore((physical.JoinReader(query, number, node),))
        case ProjectNode():
            return physical.Project(node)
        case PatternNode():
            return physical.Pattern(node)
        case LookupNode():
            return physical.Lookup(node)
        case ScanNode():
            return physical.Scan(node)
        case EdgeNode():
            return physical.Edge(node)
        case RelationNode():
            return _form_of_rows(node)
        case AggregateNode():
            return _form_of_aggregate(node, query, number)
        case other:
            assert_never(other)


def _form_of_rows(node: RelationNode) -> Form:
    if node.window.extent.closes:
        return physical.SessionRows(node)
    if node.partition_by:
        return physical.PartitionedRows(node, changes_by_one_row(node))
    return physical.RowsWindow(node, shows_row_changes(node))


def _form_of_aggregate(node: AggregateNode, query: str, number: int) -> Form:
    if closes_as_a_whole(node):
        return physical.ClosingWindow(node)
    if node.partition_by:
        return physical.PartitionedWindow(node, look_of(node) is Look.CHANGES)
    if not may_share(node):
        return physical.OwnWindow(node)
    return physical.StoredWindow((physical.Aggregation((physical.WindowReader(query, number, node),)),))
