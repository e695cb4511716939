"""Which columns of a stream some query reads: nothing else is taken in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from penstock.expressions.tree import Expression, columns
from penstock.lang.query import StreamDef
from penstock.lang.table_defs import TableWrite
from penstock.plan.joins import reads as join_reads
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
from penstock.plan.patterns.columns import read_columns
from penstock.plan.tables.lookups import stream_columns, tables_of, written_columns


def needed_columns(stream: StreamDef, nodes: Iterable[Node], writes: Iterable[TableWrite] = ()) -> tuple[str, ...]:
    """The columns of the stream, in its order, that the plans read; event time and sequence always among them."""
    needed = {stream.event_time}
    if stream.sequence is not None:
        needed.add(stream.sequence)
    made = list(writes)
    for node in nodes:
        needed |= columns_read(node, stream.name)
        made += [write for _, own in tables_of(node).values() for write in own]
    for write in made:
        if write.stream == stream.name:
            needed |= written_columns(write)
    if stream.late_into is not None:
        needed |= set(stream.schema.names)
    return tuple(name for name in stream.schema.names if name in needed)


def columns_read(node: Node, stream: str) -> set[str]:
    """The columns of the stream that a node and those below it read."""
    match node:
        case StreamNode() | ScanNode():
            return set()
        case UnionNode():  # passes rows on as they are, by position
            return _of_inputs(node.inputs, stream, lambda number: set(node.inputs[number].schema.names))
        case CombineNode():
            return set().union(*(columns_read(part, stream) for part in node.inputs))
        case PatternNode():
            return _of_inputs(node.inputs, stream, lambda number: read_columns(node, number))
        case JoinNode():
            return _of_inputs(node.inputs, stream, lambda number: join_reads.read_columns(node, number))
        case LookupNode():
            return _of_inputs((node.input,), stream, lambda number: stream_columns(node))
        case ProjectNode() | AggregateNode() | RelationNode() | EdgeNode():
            return _of_inputs(
                (node.input,), stream, lambda number: set().union(*(columns(e) for e in _expressions(node)))
            )
        case other:
            assert_never(other)


def _of_inputs(inputs: Sequence[Node], stream: str, own: Callable[[int], set[str]]) -> set[str]:
    """What is read of inputs: `own` of one that is the stream itself, by its number; of others what they read."""
    found: set[str] = set()
    for number, child in enumerate(inputs):
        found |= own(number) if child.stream_name == stream else columns_read(child, stream)
    return found


def _expressions(node: ProjectNode | AggregateNode | RelationNode | EdgeNode) -> list[Expression]:
    match node:
        case EdgeNode():
            tested = [] if node.condition is None else [node.condition]
            return [*node.keys, *tested, *(o.expression for o in node.outputs)]
        case ProjectNode():
            return [*_where(node), *(o.expression for o in node.outputs)]
        case RelationNode():
            shown = [o.expression for o in node.emission.outputs]
            ordered = [o.expression for o in node.emission.order_by]
            return [*_where(node), *node.partition_by, *shown, *ordered]
        case AggregateNode():
            found = [*_where(node), *node.partition_by, *node.group_by]
            for state in node.states:
                found += state.args
                if state.filter is not None:
                    found.append(state.filter)
            return found
        case other:
            assert_never(other)


def _where(node: ProjectNode | AggregateNode | RelationNode) -> list[Expression]:
    return [] if node.where is None else [node.where]
