"""The plan: a tree of operators with everything decided that does not depend on the data.

Nodes are frozen and hashable; equal nodes are one operator, and `lang.fingerprint` of a node names its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

from penstock.aggregates.kinds import KINDS, Kind
from penstock.aggregates.signatures import Want, keeps_order, written
from penstock.expressions.tree import Expression
from penstock.lang.query import Emit, JoinKind, Order, Output
from penstock.plan.base import PlanNode
from penstock.plan.patterns.nodes import PatternNode as PatternNode
from penstock.plan.tables.nodes import LookupNode as LookupNode
from penstock.plan.tables.nodes import ScanNode as ScanNode
from penstock.types import Field, Schema, SqlType
from penstock.windows.spec import WindowSpec

WINDOW_COLUMNS = (Field("window_start", SqlType.TIMESTAMP, False), Field("window_end", SqlType.TIMESTAMP, False))
"""What every row of a windowed query begins with."""


@dataclass(frozen=True)
class StreamNode(PlanNode):
    """A declared or derived stream, already in order."""

    name: str
    schema: Schema

    @property
    def stream_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class UnionNode(PlanNode):
    inputs: tuple[Node, ...]
    schema: Schema


@dataclass(frozen=True)
class ProjectNode(PlanNode):
    """SELECT without a window: event by event, times unchanged."""

    input: Node
    where: Expression | None
    outputs: tuple[Output, ...]
    schema: Schema


@dataclass(frozen=True)
class StateSpec:
    """One aggregate state: the name of its kind, what it reads and which results it gives."""

    kind: str
    args: tuple[Expression, ...]
    filter: Expression | None
    wants: tuple[Want, ...]
    user: str | None = None

    @property
    def traits(self) -> Kind:
        """What the table of kinds says of it."""
        return KINDS[self.kind]

    @property
    def keeps_order(self) -> bool:
        """Whether it keeps the order of rows for an answer that depends on it, as for MODE."""
        return keeps_order(self.wants)

    @property
    def has_device(self) -> bool:
        """Whether it pages, to a device of its own."""
        return self.traits.is_paged or (self.traits.pages_values and not self.keeps_order)

    @property
    def is_order_free(self) -> bool:
        """Whether the order of rows with equal times changes no answer."""
        return self.traits.is_order_free and not self.keeps_order

    @property
    def shown(self) -> str:
        """Its first function as a query calls it."""
        return self.user or written(self.wants[0])


@dataclass(frozen=True)
class Answer:
    """Where aggregate `$i` comes from: result `want` of state `state`; state -1 is the group's row count."""

    state: int
    want: int
    type: SqlType


@dataclass(frozen=True)
class Emission:
    """From the rows of one evaluation to results: HAVING, the select list, DISTINCT, ORDER BY, LIMIT, R/I/DSTREAM."""

    outputs: tuple[Output, ...]
    having: Expression | None
    distinct: bool
    order_by: tuple[Order, ...]
    limit: int | None
    emit: Emit
    drain: bool

    @property
    def needs_whole_evaluations(self) -> bool:
        """Whether the rows of an evaluation must be seen together and not as they come."""
        return self.distinct or bool(self.order_by) or self.emit.compares


@dataclass(frozen=True)
class AggregateNode(PlanNode):
    """A windowed aggregation. `filter_first`: rows that fail WHERE need not enter the window at all."""

    input: Node
    window: WindowSpec
    where: Expression | None
    filter_first: bool
    partition_by: tuple[Expression, ...]
    group_by: tuple[Expression, ...]
    states: tuple[StateSpec, ...]
    answers: tuple[Answer, ...]
    emission: Emission
    schema: Schema

    @property
    def own_keys(self) -> tuple[Expression, ...]:
        """What tells apart rows that never depend on each other: those of partitions, or else of groups."""
        return self.partition_by or self.group_by

    @property
    def key_types(self) -> tuple[SqlType, ...]:
        return tuple(key.type for key in self.group_by)

    @property
    def own_window(self) -> WindowSpec:
        return self.window


@dataclass(frozen=True)
class RelationNode(PlanNode):
    """A window without aggregation: the relation is the rows of the window."""

    input: Node
    window: WindowSpec
    where: Expression | None
    filter_first: bool
    partition_by: tuple[Expression, ...]
    emission: Emission
    schema: Schema

    @property
    def own_keys(self) -> tuple[Expression, ...]:
        """What tells apart rows that never depend on each other: those of partitions."""
        return self.partition_by

    @property
    def own_window(self) -> WindowSpec:
        return self.window


@dataclass(frozen=True)
class Looked:
    """Where an aggregate of several windows is: column `$column` of input `input`. `empty` is what it is for a group
    that has rows in the longest window and none in this one."""

    input: int
    column: int
    empty: int | None


@dataclass(frozen=True)
class CombineNode(PlanNode):
    """Aggregates over windows of several lengths in one row. The inputs show the same keys and their aggregates; the
    first has the longest window, which says which groups there are. A row that cannot be computed is missing from an
    input: its witness, `witnesses[i]`, has the rows of all groups that are in that window (it may be the input itself).
    """

    inputs: tuple[AggregateNode, ...]
    witnesses: tuple[int, ...]
    looked: tuple[Looked, ...]
    emission: Emission
    schema: Schema


@dataclass(frozen=True)
class EdgeNode(PlanNode):
    """For rules: the rows at which `condition` becomes true, as seen from the row before with the same `keys`."""

    input: Node
    keys: tuple[Expression, ...]
    condition: Expression | None
    outputs: tuple[Output, ...]
    schema: Schema


@dataclass(frozen=True)
class JoinSide:
    """One side of a join: which of the inputs it reads, its window, and how it is joined to the sides before it.
    `where` sees the input's own columns: rows that fail it take part in nothing."""

    input: int
    alias: str
    window: WindowSpec
    kind: JoinKind
    where: Expression | None


@dataclass(frozen=True)
class Equality:
    """Expressions over the columns of two sides that must be equal one by one; `left` comes before `right`."""

    left: int
    right: int
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]


@dataclass(frozen=True)
class Band:
    """A TIMESTAMP of one side less one of another is at least `low` and at most `high` (None: no limit). Where they
    are the times of the events, rows of the side are found by searching; it is a part of `conditions` as well."""

    side: int
    column: str
    other: int
    other_column: str
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Narrowing:
    """An equality that can fail on a row: rows are found by it, and where a row's key fails pairs are compared. So its
    `conditions` are a part of `JoinNode.conditions` as well; the keys are theirs and those of equalities between the
    same sides. `with_nulls`: a NULL counts as a failure, for behind it conditions are computed that can fail."""

    equality: Equality
    conditions: tuple[Expression, ...]
    with_nulls: bool


@dataclass(frozen=True)
class Condition:
    """What remains to be checked when side `step` is joined to those before it, over columns named `alias.column`."""

    step: int
    expression: Expression


@dataclass(frozen=True)
class JoinNode(PlanNode):
    """Windows joined from left to right. Inputs that several sides read are there once. `where` is checked after all
    outer joins; what could be is pushed into sides and conditions. `columns` are those of all sides, as
    `alias.column`, for the expressions here and in `emission`. `is_aggregated`: the SELECT of the join has aggregates,
    which are the node above, and the rows here are R(k) for them."""

    inputs: tuple[Node, ...]
    sides: tuple[JoinSide, ...]
    equalities: tuple[Equality, ...]
    bands: tuple[Band, ...]
    narrowings: tuple[Narrowing, ...]
    conditions: tuple[Condition, ...]
    where: Expression | None
    columns: Schema
    emission: Emission
    schema: Schema
    is_aggregated: bool

    @cached_property
    def is_inner(self) -> bool:
        return all(side.kind is JoinKind.INNER for side in self.sides)

    @property
    def joins_streams(self) -> bool:
        """Whether all inputs are streams and none is a subquery."""
        return all(below.stream_name is not None for below in self.inputs)

    @property
    def is_theta(self) -> bool:
        """Whether some side can be reached from no other by an equality or a band, so that all rows are compared."""
        reached, found = {0}, True
        equalities = (*self.equalities, *(narrowing.equality for narrowing in self.narrowings))
        links = [(e.left, e.right) for e in equalities] + [(b.side, b.other) for b in self.bands]
        while found:
            more = {side for link in links if reached & set(link) for side in link} - reached
            reached, found = reached | more, bool(more)
        return len(reached) < len(self.sides)


Node = (
    StreamNode
    | UnionNode
    | ProjectNode
    | AggregateNode
    | RelationNode
    | CombineNode
    | PatternNode
    | EdgeNode
    | JoinNode
    | LookupNode
    | ScanNode
)


def children(node: Node) -> tuple[Node, ...]:
    """What a node reads, in the order of its operator's inputs."""
    match node:
        case StreamNode():
            return ()
        case UnionNode() | CombineNode() | PatternNode() | JoinNode():
            return node.inputs
        case LookupNode():
            return (node.input, *node.clocks)
        case ScanNode():
            return node.clocks
        case ProjectNode() | AggregateNode() | RelationNode() | EdgeNode():
            return (node.input,)
        case other:
            assert_never(other)


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, each after what it reads."""
    for child in children(node):
        yield from walk(child)
    yield node


def streams(node: Node) -> set[str]:
    """The names of all streams a node reads."""
    return {below.stream_name for below in walk(node) if below.stream_name is not None}
