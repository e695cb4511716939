"""Tables and what changes them, typed: the binder writes them, the planner and the runtimes read them.

Invariants:
1. Expressions of a change see the stream's columns as `stream.column` (or its alias) and, in UPSERT, UPDATE and DELETE,
   the table's own row as `table.column`.
2. `keys` has an expression over the stream's columns for each column of the primary key, in its order and of its type
   (an integer may be wider); it is empty where an UPDATE or DELETE finds its rows in another way.
3. `sets` never sets a column of the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.errors import Place
from penstock.expressions.tree import Expression
from penstock.types import Field, Schema


class ChangeKind(Enum):
    INSERT = "INSERT"
    UPSERT = "UPSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True)
class TableDef:
    """A declared table. Rows are loaded from `uri`, a file or a database; without one it begins empty. Where they come
    from is not shown, since it may hold a password, and is no part of what state on disk is known by."""

    name: str
    schema: Schema
    key: tuple[str, ...]
    uri: str | None = field(default=None, repr=False, compare=False)
    options: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    place: Place | None = field(default=None, compare=False)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        found = [self.schema.find(name) for name in self.key]
        return tuple(field for field in found if field is not None)

    @property
    def other_fields(self) -> tuple[Field, ...]:
        """The columns besides the key, in their order."""
        return tuple(field for field in self.schema if field.name not in self.key)


@dataclass(frozen=True)
class RowCount:
    """How many rows of the table there are of which the condition holds, which has their columns as `name.column`.
    `name` is what `match` calls the number."""

    name: str
    condition: Expression | None


@dataclass(frozen=True)
class TableWrite:
    """What each event of a stream that passes `where` does to a table. UPDATE and DELETE concern the row of the key, if
    `match` holds for it, or without `keys` all rows for which `match` holds. INSERT and UPSERT have a `match` only
    where rows are counted."""

    table: str
    stream: str
    alias: str
    kind: ChangeKind
    where: Expression | None
    keys: tuple[Expression, ...]
    sets: tuple[tuple[str, Expression], ...]
    match: Expression | None
    text: str = field(default="", compare=False)

    @property
    def counted(self) -> tuple[RowCount, ...]:
        """What `match` counts of the table's own rows."""
        return ()


@dataclass(frozen=True)
class CountingWrite(TableWrite):
    """A change whose condition counts rows of the table."""

    counts: tuple[RowCount, ...] = ()

    @property
    def counted(self) -> tuple[RowCount, ...]:
        return self.counts
