"""SQL for stores in a database: statements put together from templates, names and parameters, by each database's rules.

Values travel as parameters only, names only through `identifier`, and everything else in a statement is a constant of
this package. `sqlite` and `postgres` are the databases there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.errors import StorageError
from penstock.types import Field

Value = bool | int | float | str | None
Row = tuple[Value, ...]
"""A TIMESTAMP is int microseconds and a DATE int days since 1970."""
Statement = Any
"""A whole statement as the driver takes it."""
Part = Any
"""A piece of a statement: what `identifier`, `keyword` and `joined` return."""


class Database(ABC):
    """A connection. One thread at a time uses it. Every error of the driver becomes a `StorageError`."""

    @abstractmethod
    def identifier(self, name: str) -> Part:
        """A name of a table or column, quoted."""

    @abstractmethod
    def keyword(self, text: str) -> Part:
        """A constant piece of SQL."""

    @abstractmethod
    def parameter(self) -> Part:
        """The place of a value."""

    @abstractmethod
    def joined(self, parts: Sequence[Part], separator: str = ", ") -> Part: ...

    @abstractmethod
    def statement(self, template: str, **parts: Part) -> Statement:
        """A constant template with pieces in its places `{name}`."""

    @abstractmethod
    def column_type(self, field: Field) -> Part: ...

    @abstractmethod
    def to_database(self, row: Row) -> Sequence[Value]:
        """A row as the database can keep it; `StorageError` if it cannot."""

    @abstractmethod
    def from_database(self, fields: Sequence[Field], row: Sequence[Any]) -> Row:
        """What `to_database` was given."""

    @abstractmethod
    def query(self, statement: Statement, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def stream(self, statement: Statement, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """The answer to a question, so many rows at a time."""

    @abstractmethod
    def run(self, statement: Statement, rows: Sequence[Sequence[Value]] = ((),)) -> None:
        """Runs a statement once for each row of parameters."""

    @abstractmethod
    def columns(self, table: str) -> list[str] | None:
        """The names of the columns of a table, in order; None if there is no such table."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and durable at its end."""
        self.begin()
        try:
            yield
        except BaseException:
            self.roll_back()
            raise
        self.commit()

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def roll_back(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def check_texts(row: Row, unfit: str = "") -> None:
    """Refuses text that no database can keep, or that has one of these characters."""
    for value in row:
        if type(value) is str and (any(character in value for character in unfit) or not _is_unicode(value)):
            raise StorageError(f"{value!r} has a character that the database cannot keep; leave it out")


def _is_unicode(text: str) -> bool:
    """Whether the text has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
