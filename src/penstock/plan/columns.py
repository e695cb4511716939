"""Which columns of a stream some query reads: nothing else is taken in."""

from __future__ import annotations

from collections.abc import Iterable

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
    children,
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
        needed |= _read(node, stream.name)
        made += [write for _, own in tables_of(node).values() for write in own]
    for write in made:
        if write.stream == stream.name:
            needed |= written_columns(write)
    if stream.late_into is not None:
        needed |= set(stream.schema.names)
    return tuple(name for name in stream.schema.names if name in needed)


def _read(node: Node, stream: str) -> set[str]:
    if isinstance(node, StreamNode | ScanNode):
        return set()
    if isinstance(node, UnionNode):
        # A union passes rows on as they are, by position.
        return set().union(
            *(
                set(child.schema.names)
                if isinstance(child, StreamNode) and child.name == stream
                else _read(child, stream)
                for child in node.inputs
            )
        )
    if isinstance(node, CombineNode):
        return set().union(*(_read(part, stream) for part in node.inputs))
    if isinstance(node, PatternNode):
        return set().union(
            *(
                read_columns(node, number)
                if isinstance(child, StreamNode) and child.name == stream
                else _read(child, stream)
                for number, child in enumerate(node.inputs)
            )
        )
    if isinstance(node, JoinNode):
        return set().union(
            *(
                join_reads.read_columns(node, number)
                if isinstance(child, StreamNode) and child.name == stream
                else _read(child, stream)
                for number, child in enumerate(node.inputs)
            )
        )
    if isinstance(node, LookupNode):
        direct = isinstance(node.input, StreamNode) and node.input.name == stream
        return stream_columns(node) if direct else _read(node.input, stream)
    below = children(node)[0]
    if isinstance(below, StreamNode):
        return set().union(*(columns(e) for e in _expressions(node))) if below.name == stream else set()
    return _read(below, stream)


def _expressions(node: ProjectNode | AggregateNode | RelationNode | EdgeNode) -> list[Expression]:
    if isinstance(node, EdgeNode):
        tested = [] if node.condition is None else [node.condition]
        return [*node.keys, *tested, *(o.expression for o in node.outputs)]
    found = [] if node.where is None else [node.where]
    if isinstance(node, ProjectNode):
        return found + [o.expression for o in node.outputs]
    found += node.partition_by
    if isinstance(node, RelationNode):
        return found + [o.expression for o in node.emission.outputs] + [o.expression for o in node.emission.order_by]
    found += node.group_by
    for state in node.states:
        found += state.args
        if state.filter is not None:
            found.append(state.filter)
    return found
