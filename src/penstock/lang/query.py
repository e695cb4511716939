"""The typed query: what the binder makes of the text and what the planner reads. No syntax is left in it.

Invariants:
1. Every expression is typed and refers to columns that exist, by their exact name.
2. In an aggregating `Select`, `outputs`, `having` and `order_by` see only the group keys, as columns named
   `#0`, `#1`, ... and the aggregates, as columns named `$0`, `$1`, ... In any other `Select` they see the input.
3. `group_by` and the arguments and filters of aggregates see the input's columns.
4. The columns of a join are named `alias.column`. Over a join the windows are those of the sides, and `Select.window`
   is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.aggregates.signatures import AggregateCall
from penstock.errors import Place
from penstock.expressions.tree import Expression
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.types import Field, Schema, SqlType
from penstock.windows.spec import TimeSlide, WindowSpec


class Emit(Enum):
    """Which rows of an evaluation are results (contract, rule 4)."""

    RSTREAM = "RSTREAM"
    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    EVENT_GROUP = "EVENT GROUP"
    """The default of per-event windows: the row of the arriving event's group."""
    EDGE = "EDGE"
    """For rules: the rows of groups that are in this evaluation and were not in the one before."""

    @property
    def compares(self) -> bool:
        """Whether an evaluation is compared with the one before."""
        return self in (Emit.ISTREAM, Emit.DSTREAM, Emit.EDGE)


@dataclass(frozen=True)
class Output:
    name: str
    expression: Expression


@dataclass(frozen=True)
class Order:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class StreamRef:
    """A declared or derived stream, read by name."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class Union:
    """UNION ALL of several inputs with equal column types; the order is (time, position, sequence)."""

    inputs: tuple[Source, ...]
    schema: Schema


class JoinKind(Enum):
    """How a side is joined to those before it."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"

    @property
    def keeps_left(self) -> bool:
        """Whether rows of the sides before that match nothing remain."""
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        """Whether rows of this side that match nothing remain."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)


@dataclass(frozen=True)
class TableRef:
    """A table, read by name; `key` are the columns of its PRIMARY KEY, `writers` the streams that change it and
    `writes` how. A reference holds all that is needed to make the table: queries on Spark run apart from each other."""

    name: str
    schema: Schema
    key: tuple[str, ...]
    writers: tuple[StreamRef, ...] = ()
    writes: tuple[TableWrite, ...] = ()
    definition: TableDef | None = None


@dataclass(frozen=True)
class TableScan:
    """All rows of a table at every boundary of a slide, with the time of its last microsecond."""

    table: TableRef
    slide: TimeSlide
    schema: Schema


@dataclass(frozen=True)
class JoinSide:
    """What stands in FROM beside others. `kind` and `on` say how it is joined to the sides before it; the first is
    INNER without a condition, and so are sides after a comma. A table has no window."""

    source: Source | TableRef
    window: WindowSpec | None
    alias: str
    kind: JoinKind
    on: Expression | None


@dataclass(frozen=True)
class Join:
    """Several sides, joined from left to right; the order of events is (time, position in FROM, sequence).
    `schema` has the columns of all sides, named `alias.column`."""

    sides: tuple[JoinSide, ...]
    schema: Schema

    @property
    def window(self) -> WindowSpec | None:
        """The window of the first side that has one, whose slide is that of all; None where no side has one."""
        return next((side.window for side in self.sides if side.window is not None), None)


@dataclass(frozen=True)
class Select:
    """One SELECT. Without a window it is a projection of the stream, event by event, and cannot aggregate."""

    source: Source
    window: WindowSpec | None
    where: Expression | None
    group_by: tuple[Expression, ...]
    aggregates: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: Expression | None
    distinct: bool
    order_by: tuple[Order, ...]
    limit: int | None
    emit: Emit
    aggregating: bool
    drain: bool
    schema: Schema
    """The columns that come out, without the window columns that every windowed row carries."""


class Role(Enum):
    """How an element takes part in a pattern."""

    PLAIN = "plain"
    ABSENT = "absent"
    REPEATED = "repeated"


@dataclass(frozen=True)
class Element:
    """An element of a pattern, which reads input `input`. With `one` an event serves one match in this place."""

    name: str
    input: int
    role: Role
    one: bool


@dataclass(frozen=True)
class PatternAggregate:
    """An aggregate over the events of a repeated element."""

    element: int
    call: AggregateCall


@dataclass(frozen=True)
class Pattern:
    """Matches of events of several inputs. Each of the `alternatives` is a sequence of elements, by number; a match is
    of one of them. Expressions name columns `element.column` and aggregates `$0`, `$1`, ... A condition of `where` is
    for the matches that have all elements it names. With `apart` an event is in one match at most, the
    one that is complete first."""

    inputs: tuple[Source, ...]
    elements: tuple[Element, ...]
    alternatives: tuple[tuple[int, ...], ...]
    where: tuple[Expression, ...]
    aggregates: tuple[PatternAggregate, ...]
    within: int
    schema: Schema
    """The columns of matches that are read."""
    apart: bool = False


@dataclass(frozen=True)
class Edge:
    """For rules: the rows of `source` at which `condition` becomes true, that is, holds and did not at the row before
    with the same `keys`. Without a condition every row holds."""

    source: Source
    keys: tuple[Expression, ...]
    condition: Expression | None
    outputs: tuple[Output, ...]
    schema: Schema


Source = StreamRef | Union | Select | Join | Pattern | Edge | TableScan

WINDOW_FIELDS = (
    Field("window_start", SqlType.TIMESTAMP, nullable=False),
    Field("window_end", SqlType.TIMESTAMP, nullable=False),
)
"""The columns that every row of a windowed query carries."""


def is_windowed(source: Source) -> bool:
    """Whether rows carry the window columns in front of `schema`; a `StreamRef`'s schema already has them."""
    if isinstance(source, Union):
        return is_windowed(source.inputs[0])
    if not isinstance(source, Select):
        return False
    window = source.source.window if isinstance(source.source, Join) else source.window
    return window is not None


def columns_of(source: Source) -> Schema:
    """The columns that a reader of `source` sees."""
    return Schema(WINDOW_FIELDS + source.schema.fields) if is_windowed(source) else source.schema


@dataclass(frozen=True)
class StreamDef:
    """A declared stream. `time_unit` is the number of microseconds in one unit of a BIGINT event time. With `arrival`
    it is read in the order in which its events are taken, and `event_time` is the column of the timestamps that
    dispatch goes by; `arrived` is the column that is filled in with the instant an event came."""

    name: str
    schema: Schema
    event_time: str
    time_unit: int = 1
    lateness: int = 0
    sequence: str | None = None
    uri: str | None = None
    idle_after: int | None = None
    late_into: str | None = None
    arrival: bool = False
    arrived: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class SinkDef:
    name: str
    uri: str
    options: tuple[tuple[str, str], ...] = ()
    place: Place | None = field(default=None, compare=False)


STRATEGIES = ("auto", "panes", "window")
"""How windows are kept: whichever costs less, as panes wherever that can be, or as the rows that are in them."""


@dataclass(frozen=True)
class FunctionDef:
    """A function outside that rules call, by HTTP: how long a try may take, how often it is repeated, and the headers
    that go with it. The value of a header that begins with `env:` is in the environment under the name that follows."""

    name: str
    url: str
    timeout: float = 10.0
    retries: int = 5
    headers: tuple[tuple[str, str], ...] = ()
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Call:
    """`CALL function(arguments)`: the arguments see the columns of the rule's condition."""

    function: str
    arguments: tuple[Output, ...]


@dataclass(frozen=True)
class Rule:
    """What is done about the rows of a condition, besides where its query inserts them. `every`: at each row, and not
    only where the condition becomes true. `writes` are the streams and sinks that its actions emit into, and `changes`
    says what it does to which tables."""

    name: str
    every: bool
    writes: tuple[str, ...]
    calls: tuple[Call, ...]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Query:
    """A named continuous query. `into` is a sink, a derived stream of that name, or None: read by the program.
    `strategy` says how its windows are kept, one of `STRATEGIES`; None leaves it to the app. With `backfill` it begins,
    on an app at work, with the rows that are stored. The condition of a rule is a query, and has the `rule`."""

    name: str
    body: Select | Union | Edge
    into: str | None
    text: str = field(default="", compare=False)
    strategy: str | None = field(default=None, compare=False)
    backfill: bool = field(default=False, compare=False)
    rule: Rule | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Program:
    """Everything an application text declares, in order."""

    streams: tuple[StreamDef, ...]
    sinks: tuple[SinkDef, ...]
    queries: tuple[Query, ...]
    functions: tuple[FunctionDef, ...] = ()
    tables: tuple[TableDef, ...] = ()
    writes: tuple[TableWrite, ...] = ()
