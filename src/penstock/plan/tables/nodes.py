"""The plan of what reads tables: events of a stream with rows of tables, and tables as a whole at slides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expressions.tree import Expression
from penstock.lang.query import Output
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.plan.base import PlanNode
from penstock.types import Schema
from penstock.windows.spec import TimeSlide

if TYPE_CHECKING:
    from penstock.plan.nodes import Node, StreamNode


@dataclass(frozen=True)
class Lookup:
    """One table of a look-up. Rows are found by the columns `by`, which equal `keys`; none are all rows. `on` is what
    else must hold of a pair. With `left` an event without a row remains."""

    table: str
    alias: str
    schema: Schema
    key: tuple[str, ...]
    by: tuple[str, ...]
    keys: tuple[Expression, ...]
    on: Expression | None
    left: bool
    definition: TableDef
    writes: tuple[TableWrite, ...]

    @property
    def is_keyed(self) -> bool:
        """Whether it finds one row at most, by the primary key."""
        return self.by == self.key


@dataclass(frozen=True)
class LookupNode(PlanNode):
    """Events of a stream with the rows of tables. Columns are named `alias.column`, those of the stream too. `first`
    filters events before anything is looked up, `where` the rows that come of it. `clocks` are the other streams that
    write the tables: events wait until these have come as far. Rows of windows at every event bear a time that is one
    microsecond before that of their event: so much `behind` what they see."""

    input: Node
    clocks: tuple[StreamNode, ...]
    alias: str
    first: Expression | None
    lookups: tuple[Lookup, ...]
    where: Expression | None
    outputs: tuple[Output, ...]
    schema: Schema
    behind: int = 0


@dataclass(frozen=True)
class ScanNode(PlanNode):
    """All rows of a table at every boundary of a slide, each time one microsecond before it. `clocks` are the streams
    that write the table: they say how far time has come."""

    table: str
    slide: TimeSlide
    clocks: tuple[StreamNode, ...]
    schema: Schema
    definition: TableDef
    writes: tuple[TableWrite, ...]
