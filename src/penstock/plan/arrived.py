"""Which columns of a plan's rows are arrival instants of the events that made them, for the service time of matches.

    SELECT d.id, d.came, r.came FROM d [ROWS 10], r [ROWS 10] WHERE d.id = r.id     d.came and r.came, as they are named

Only columns that are shown as they are count: what is computed from instants may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from penstock.expressions.tree import Column
from penstock.lang.query import Output, StreamDef
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


def arrival_columns(node: Node, streams: Iterable[StreamDef]) -> tuple[str, ...]:
    """The names of the columns that come out."""
    return _shown(node, {stream.name: stream.arrived for stream in streams if stream.arrived is not None})


def _shown(node: Node, arrived: dict[str, str]) -> tuple[str, ...]:
    match node:
        case StreamNode():
            return (arrived[node.name],) if node.name in arrived else ()
        case ProjectNode():
            return _among(node.outputs, _shown(node.input, arrived))
        case RelationNode():
            return _among(node.emission.outputs, _shown(node.input, arrived))
        case JoinNode():
            sides = [(side.alias, _shown(node.inputs[side.input], arrived)) for side in node.sides]
            return _among(node.emission.outputs, tuple(f"{alias}.{name}" for alias, names in sides for name in names))
        case UnionNode() | AggregateNode() | CombineNode() | PatternNode() | EdgeNode() | LookupNode() | ScanNode():
            return ()
        case other:
            assert_never(other)


def _among(outputs: Iterable[Output], instants: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(o.name for o in outputs if isinstance(o.expression, Column) and o.expression.name in instants)
