"""The physical plan: frozen data that says everything that runs, and where.

    s ─▶ stage 0: stored window ─┬▶ aggregation over 1 hour ─┬▶ place 0.0 ─▶ rows of query a
                                 │                           └▶ place 0.1 ─▶ rows of query b
                                 └▶ aggregation over 1 day  ──▶ place 0.2 ─▶ stage 1: project ─▶ place 1.0 ─▶ query c

A stage is what gets rows in one call. Its form says what it is: a stored window with its members, a family of windows
that are made of panes, the core of joins, a pattern and so on. The runtimes make objects of stages and decide nothing.

Invariants:
1. A stage reads streams and places of stages that stand before it.
2. A stage has as many places as it has readers; a form without readers has one.
3. `lower` makes a plan in which no two queries share a stage. The rules (`rules`) merge and change stages.

Code that branches over forms is a `match` that ends with `assert_never`.

Why: docs/decisions/physical-plan.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from penstock.lang.query import Query
from penstock.lang.table_defs import TableDef, TableWrite
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
    UnionNode,
)
from penstock.plan.panes import Family, family_of
from penstock.plan.placement import Placement


@dataclass(frozen=True)
class WindowReader:
    """A window of a query: `number` is its place among the windows of the query that may be shared."""

    query: str
    number: int
    node: AggregateNode


@dataclass(frozen=True)
class JoinReader:
    """A join of a query: `number` is its place among the joins of the query."""

    query: str
    number: int
    node: JoinNode


@dataclass(frozen=True)
class Aggregation:
    """A member of a stored window: the states of windows that hold the same rows in the same groups. `saved` names the
    saved state that it goes on from; "" if it begins."""

    readers: tuple[WindowReader, ...]
    saved: str = ""

    @cached_property
    def nodes(self) -> tuple[AggregateNode, ...]:
        return tuple(reader.node for reader in self.readers)


@dataclass(frozen=True)
class StoredWindow:
    """The stored rows of a stream. `saved` names the saved window that it goes on from, `at_work` the running window
    that the members join; both are "" for a new window."""

    members: tuple[Aggregation, ...]
    saved: str = ""
    at_work: str = ""

    @cached_property
    def readers(self) -> tuple[WindowReader, ...]:
        return tuple(reader for member in self.members for reader in member.readers)

    @cached_property
    def nodes(self) -> tuple[AggregateNode, ...]:
        return tuple(reader.node for reader in self.readers)


@dataclass(frozen=True)
class PaneFamily:
    """Windows that are made of the same panes and store no rows. `saved` as in `Aggregation`."""

    readers: tuple[WindowReader, ...]
    saved: str = ""

    @cached_property
    def nodes(self) -> tuple[AggregateNode, ...]:
        return tuple(reader.node for reader in self.readers)

    @cached_property
    def family(self) -> Family:
        return family_of(self.nodes)


@dataclass(frozen=True)
class JoinCore:
    """The rows of joins over the same inputs and keys, kept and linked once. `saved` as in `Aggregation`."""

    readers: tuple[JoinReader, ...]
    saved: str = ""

    @property
    def nodes(self) -> tuple[JoinNode, ...]:
        return tuple(reader.node for reader in self.readers)


@dataclass(frozen=True)
class OwnWindow:
    """Stored rows that no other query can share: of a subquery, of a SINCE window, or of one that follows the local
    clock."""

    node: AggregateNode


@dataclass(frozen=True)
class ClosingWindow:
    """Accumulators of open windows. No rows are stored."""

    node: AggregateNode


@dataclass(frozen=True)
class PartitionedWindow:
    """A window for each partition. With `shows_changes` it looks only at groups that changed."""

    node: AggregateNode
    shows_changes: bool


@dataclass(frozen=True)
class RowsWindow:
    """A window of plain rows. With `shows_changes` its output follows from the rows that enter and leave."""

    node: RelationNode
    shows_changes: bool


@dataclass(frozen=True)
class PartitionedRows:
    """Windows of plain rows, one for each partition. `changes_by_one_row`: an evaluation differs from the one before by
    the row that enters and the row that leaves for it."""

    node: RelationNode
    changes_by_one_row: bool


@dataclass(frozen=True)
class SessionRows:
    """The plain rows of sessions."""

    node: RelationNode


@dataclass(frozen=True)
class Pattern:
    node: PatternNode


@dataclass(frozen=True)
class Lookup:
    node: LookupNode


@dataclass(frozen=True)
class Scan:
    node: ScanNode


@dataclass(frozen=True)
class Edge:
    node: EdgeNode


@dataclass(frozen=True)
class Project:
    node: ProjectNode


@dataclass(frozen=True)
class Union:
    node: UnionNode


@dataclass(frozen=True)
class Combine:
    node: CombineNode


@dataclass(frozen=True)
class Table:
    """A table and what changes it."""

    definition: TableDef
    writes: tuple[TableWrite, ...]


Private = (
    OwnWindow
    | ClosingWindow
    | PartitionedWindow
    | RowsWindow
    | PartitionedRows
    | SessionRows
    | Pattern
    | Lookup
    | Scan
    | Edge
    | Project
    | Union
    | Combine
)
"""Forms of one node of one query."""

Shareable = StoredWindow | PaneFamily | JoinCore
"""Forms that several queries may read."""

Form = Private | Shareable | Table


@dataclass(frozen=True)
class Place:
    """Where rows of a stage come out; a stage that several queries read has a place for each reader."""

    stage: int
    output: int = 0


Source = str | Place
"""What a stage reads: a stream by its name, or a place."""


@dataclass(frozen=True)
class Stage:
    """`number` is its own in the plan and stays while rules change the stage."""

    number: int
    form: Form
    inputs: tuple[Source, ...]


@dataclass(frozen=True)
class PlannedQuery:
    """A query, its logical plan, the place that gives its rows and, once `place_on_spark` has decided, where its events
    go on Spark."""

    query: Query
    node: Node
    rows: Source
    placement: Placement | None = None

    @property
    def name(self) -> str:
        return self.query.name


@dataclass(frozen=True)
class PhysicalPlan:
    """Stages in the order of the data, and the queries in the order of the program."""

    stages: tuple[Stage, ...]
    queries: tuple[PlannedQuery, ...]

    @cached_property
    def by_number(self) -> dict[int, Stage]:
        return {stage.number: stage for stage in self.stages}

    @property
    def new_windows(self) -> Iterator[tuple[Stage, StoredWindow]]:
        """The stored windows that neither go on from saved ones nor join running ones."""
        for stage in self.stages:
            if isinstance(stage.form, StoredWindow) and not stage.form.saved and not stage.form.at_work:
                yield stage, stage.form

    def below(self, source: Source) -> Iterator[Stage]:
        """The stage of a place and all that it reads, each after what it reads."""
        if not isinstance(source, str):
            stage = self.by_number[source.stage]
            for read in stage.inputs:
                yield from self.below(read)
            yield stage

    @property
    def placements(self) -> dict[str, Placement]:
        return {planned.name: planned.placement for planned in self.queries if planned.placement is not None}
