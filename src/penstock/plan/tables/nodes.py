"""The plan of what reads tables: events of a stream with rows of tables, and tables as a whole at slides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expressions.tree import Column, Expression
from penstock.lang.query import Output
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.plan.base import PlanNode
from penstock.types import Schema
from penstock.windows.spec import TimeSlide

if TYPE_CHECKING:
    from penstock.plan.nodes import Node, StreamNode


@dataclass(frozen=True)
class Narrowed:
    """A shorter way to the rows of a table, by the equalities of the look-up and behind them by those that can fail:
    `by` equals `keys`. The latter stay conditions as well. These decide about an event whose `keys` fail beside all
    rows, and about a row whose `by` fails beside all events, so what is rejected does not depend on the way.
    `with_nulls`: a NULL counts as a failure, for behind it conditions are computed that can fail."""

    by: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    with_nulls: bool


@dataclass(frozen=True)
class Lookup:
    """One table of a look-up. Rows are found by the expressions `by`, over the table's own columns, which equal `keys`;
    none are all rows. `on` is what else must hold of a pair. With `left` an event without a row remains."""

    table: str
    alias: str
    schema: Schema
    key: tuple[str, ...]
    by: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    on: Expression | None
    left: bool
    definition: TableDef
    writes: tuple[TableWrite, ...]
    narrowed: Narrowed | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it finds one row at most, by the primary key."""
        return is_key(self.by, self.key)


def is_key(by: Sequence[Expression], key: tuple[str, ...]) -> bool:
    """Whether expressions are the columns of a primary key, one by one."""
    return len(by) == len(key) and all(isinstance(e, Column) and e.name == k for e, k in zip(by, key, strict=True))


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
