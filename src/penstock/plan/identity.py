"""What a query is, for saved state: the fingerprint of its plan without the columns that it does not read.

So a stream may get more columns, and the queries that do not read them are as they were.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.lang.fingerprint import fingerprint
from penstock.plan.columns import columns_read
from penstock.plan.joins.reads import read_columns as columns_of_input
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
    streams,
)
from penstock.types import Schema

Read = dict[str, set[str]]
"""The columns that a query reads, by streams."""


def identity(node: Node) -> str:
    """The same for plans that compute the same, however many more columns their streams have."""
    read = {stream: columns_read(node, stream) for stream in streams(node)}
    return fingerprint(_narrowed(node, read))


def _narrowed(node: Node, read: Read) -> Node:
    match node:
        case StreamNode():
            return replace(node, schema=_only(node.schema, read[node.name]))
        case JoinNode():
            inputs = tuple(_narrowed(below, read) for below in node.inputs)
            return replace(node, inputs=inputs, columns=_only(node.columns, _of_sides(node)))
        case UnionNode() | PatternNode():
            return replace(node, inputs=tuple(_narrowed(below, read) for below in node.inputs))
        case CombineNode():
            parts = (_narrowed(part, read) for part in node.inputs)
            return replace(node, inputs=tuple(part for part in parts if isinstance(part, AggregateNode)))
        case LookupNode():
            return replace(node, input=_narrowed(node.input, read), clocks=_clocks(node.clocks, read))
        case ScanNode():
            return replace(node, clocks=_clocks(node.clocks, read))
        case ProjectNode() | AggregateNode() | RelationNode() | EdgeNode():
            return replace(node, input=_narrowed(node.input, read))


def _clocks(clocks: tuple[StreamNode, ...], read: Read) -> tuple[StreamNode, ...]:
    return tuple(replace(clock, schema=_only(clock.schema, read[clock.name])) for clock in clocks)


def _of_sides(node: JoinNode) -> set[str]:
    """The columns of a join that something reads, as `alias.column`."""
    return {f"{side.alias}.{name}" for side in node.sides for name in columns_of_input(node, side.input)}


def _only(schema: Schema, names: set[str]) -> Schema:
    return Schema(tuple(field for field in schema.fields if field.name in names))
