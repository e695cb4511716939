"""The shape of the statements as written: what the grammar makes and the binder reads.

Scalar expressions are sqlglot nodes; everything around them is ours. Names are kept as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.lang.places import Span
from penstock.lang.query import Emit, JoinKind
from penstock.lang.table_defs import ChangeKind
from penstock.types import SqlType
from penstock.windows.spec import WindowSpec


@dataclass(frozen=True)
class Name:
    text: str
    span: Span


@dataclass(frozen=True)
class WindowSyntax:
    """A window whose sizes are checked; `spec.partition_by` is filled in by the binder from `partition_by`. With
    `whole` it says when a table is looked at as a whole."""

    spec: WindowSpec
    partition_by: tuple[Name, ...]
    span: Span
    whole: bool = False


@dataclass(frozen=True)
class SelectItem:
    """An expression with its alias. `star` is `*` (empty name) or `alias.*`; then there is no expression."""

    expression: exp.Expr | None
    alias: Name | None
    star: Name | None
    span: Span


@dataclass(frozen=True)
class ElementSyntax:
    """`ONE C+ c`: what is read, under which name, and how it takes part in a pattern."""

    source: Name | QuerySyntax
    alias: Name
    absent: bool
    repeated: bool
    one: bool
    span: Span


@dataclass(frozen=True)
class OperatorSyntax:
    """SEQ, AND or OR of elements and operators."""

    kind: str
    parts: tuple[ElementSyntax | OperatorSyntax, ...]
    span: Span


@dataclass(frozen=True)
class PatternSyntax:
    """`PATTERN SEQ(...) WHERE ... WITHIN ...`; `where` belongs to it and not to the SELECT. With `apart` an event is in
    one match at most."""

    root: OperatorSyntax
    where: exp.Expr | None
    within: int
    span: Span
    apart: bool = False


@dataclass(frozen=True)
class RecognizeSyntax:
    """MATCH_RECOGNIZE: the SELECT over a pattern that it stands for, and what must be so for it to mean the same."""

    stream: Name
    partition_by: tuple[Name, ...]
    order_by: Name
    select: SelectSyntax


@dataclass(frozen=True)
class FromItem:
    source: Name | QuerySyntax | PatternSyntax | RecognizeSyntax
    window: WindowSyntax | None
    alias: Name | None
    span: Span


@dataclass(frozen=True)
class JoinItem:
    """What stands in FROM after the first; without `on` after a comma or CROSS JOIN. `span` is the comma or the words
    up to JOIN."""

    item: FromItem
    kind: JoinKind
    on: exp.Expr | None
    span: Span


@dataclass(frozen=True)
class OrderItem:
    expression: exp.Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class SelectSyntax:
    emit: tuple[Emit, Span] | None
    distinct: Span | None
    items: tuple[SelectItem, ...]
    source: FromItem
    where: exp.Expr | None
    group_by: tuple[exp.Expr, ...]
    having: exp.Expr | None
    order_by: tuple[OrderItem, ...]
    limit: tuple[int, Span] | None
    drain: Span | None
    span: Span
    joins: tuple[JoinItem, ...] = ()


@dataclass(frozen=True)
class UnionSyntax:
    branches: tuple[QuerySyntax, ...]
    span: Span


QuerySyntax = SelectSyntax | UnionSyntax


@dataclass(frozen=True)
class ColumnSyntax:
    name: Name
    type: SqlType
    nullable: bool


@dataclass
class CreateStream:
    """With `arrival` the time column is of ARRIVAL ORDER and not of EVENT TIME. `of_event_time`: what is said of the
    stream, and where, that only one with EVENT TIME can have. The grammar fills it in as it reads."""

    name: Name
    columns: tuple[ColumnSyntax, ...] = ()
    event_time: Name | None = None
    time_unit: tuple[int, Span] | None = None
    lateness: int | None = None
    sequence: Name | None = None
    idle_after: int | None = None
    late_into: Name | None = None
    uri: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    arrival: bool = False
    arrived: Name | None = None
    of_event_time: list[tuple[str, Span]] = field(default_factory=list)


@dataclass(frozen=True)
class CreateSink:
    name: Name
    uri: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class QueryStatement:
    """A bare query, `CREATE QUERY name AS` one (`name`) or `INSERT INTO name` one (`into`)."""

    body: QuerySyntax
    name: Name | None
    into: Name | None
    text: str
    strategy: str | None = None
    backfill: bool = False


@dataclass(frozen=True)
class CreateFunction:
    """`CREATE FUNCTION name AS HTTP POST 'url'`."""

    name: Name
    url: tuple[str, Span]
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EmitAction:
    """`EMIT INTO target`; without `items` all columns of the condition."""

    target: Name
    items: tuple[SelectItem, ...]
    span: Span


@dataclass(frozen=True)
class CallAction:
    function: Name
    arguments: tuple[SelectItem, ...]
    span: Span


@dataclass(frozen=True)
class CreateTable:
    """`options_span` is where WITH stands, if it does."""

    name: Name
    columns: tuple[ColumnSyntax, ...]
    key: tuple[Name, ...]
    uri: str | None
    options: tuple[tuple[str, str], ...]
    options_span: Span | None


@dataclass(frozen=True)
class LastBy:
    """`CREATE TABLE name AS LAST BY key FROM stream`. `options_span` as above."""

    name: Name
    key: tuple[Name, ...]
    stream: Name
    where: exp.Expr | None
    options: tuple[tuple[str, str], ...]
    options_span: Span | None


@dataclass(frozen=True)
class TableChange:
    """What is done to a table: values for columns (none named: all), and which rows UPDATE and DELETE concern."""

    kind: ChangeKind
    table: Name
    columns: tuple[Name, ...]
    values: tuple[exp.Expr, ...]
    where: exp.Expr | None
    span: Span


@dataclass(frozen=True)
class OnStatement:
    """`ON stream [WHERE ...]` and a change of a table."""

    stream: Name
    alias: Name | None
    where: exp.Expr | None
    change: TableChange
    text: str


Action = EmitAction | CallAction | TableChange


@dataclass(frozen=True)
class RuleStatement:
    """`WHEN condition [BY keys] [EVERY] THEN actions`."""

    name: Name | None
    condition: QuerySyntax
    by: tuple[exp.Expr, ...]
    every: bool
    actions: tuple[Action, ...]
    text: str
    span: Span


Statement = (
    CreateStream | CreateSink | QueryStatement | CreateFunction | RuleStatement | CreateTable | LastBy | OnStatement
)
