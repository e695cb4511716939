"""Stores in a file of SQLite, the embedded default: it comes with Python, finds rows by key, and is transactional, as
single items ask for. A columnar database would be better only at scans, and those are the engine's own.
"""

from __future__ import annotations

import math
import os.path
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import StorageError
from penstock.store.databases.database import Database, Part, Row, Statement, Value, check_texts
from penstock.types import Field, SqlType

_NAN = "NaN"
"""SQLite takes a NaN for NULL; a text in a column without a type stays what it is."""


class SqliteDatabase(Database):
    def __init__(self, path: Path) -> None:
        self._path = path
        with self._errors():
            file = os.path.abspath(path)  # or `:memory:` would be no file
            self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._connection.execute("SELECT count(*) FROM sqlite_master")

    def identifier(self, name: str) -> Part:
        if not name.isprintable():
            raise StorageError(f"{name!r} is not a name that a database can have")
        return '"' + name.replace('"', '""') + '"'

    def keyword(self, text: str) -> Part:
        return text

    def parameter(self) -> Part:
        return "?"

    def joined(self, parts: Sequence[Part], separator: str = ", ") -> Part:
        return separator.join(parts)

    def statement(self, template: str, **parts: Part) -> Statement:
        return template.format(**parts)

    def column_type(self, field: Field) -> Part:
        if field.type.is_floating:
            return ""  # a REAL column has no -0.0
        return "TEXT" if field.type is SqlType.STRING else "INTEGER"

    def to_database(self, row: Row) -> Sequence[Value]:
        check_texts(row)
        return [_NAN if type(value) is float and math.isnan(value) else value for value in row]

    def from_database(self, fields: Sequence[Field], row: Sequence[Any]) -> Row:
        return tuple(
            bool(value)
            if field.type is SqlType.BOOLEAN and value is not None
            else math.nan
            if value == _NAN and field.type.is_floating
            else value
            for field, value in zip(fields, row, strict=True)
        )

    def query(self, statement: Statement, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        with self._errors():
            return self._connection.execute(statement, values).fetchall()

    def stream(self, statement: Statement, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        with self._errors():
            cursor = self._connection.execute(statement)
            while found := cursor.fetchmany(rows):
                yield found

    def run(self, statement: Statement, rows: Sequence[Sequence[Value]] = ((),)) -> None:
        with self._errors():
            self._connection.executemany(statement, rows) if rows != ((),) else self._connection.execute(statement)

    def columns(self, table: str) -> list[str] | None:
        found = self.query(f"SELECT name FROM pragma_table_info({self.parameter()})", (table,))
        return [name for (name,) in found] or None

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.run("COMMIT")

    def roll_back(self) -> None:
        self.run("ROLLBACK")

    def close(self) -> None:
        with self._errors():
            self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise StorageError(f"{self._path}: {error}") from error
