"""A table in a database: its rows are loaded, looked up by key in batches, or written, over a connection that comes
back when the database does.

Values travel as parameters and names as quoted identifiers; nothing else of a statement comes from outside. PostgreSQL
keeps DATE and TIMESTAMP as its own types. SQLite has none for them: they are days and microseconds since 1970, and text
such as '2024-03-01 12:00:00' is read as well. Neither has it a NaN, which is the text 'NaN' there.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.arrays import Bools
from penstock.errors import InputError, StorageError
from penstock.lang.durations import parse_date, parse_timestamp
from penstock.lang.table_defs import TableDef
from penstock.lang.table_options import is_database
from penstock.store.databases.database import Database, Part
from penstock.store.databases.sqlite import SqliteDatabase
from penstock.types import FIRST_DAY, FIRST_TIME, LAST_DAY, LAST_TIME, Field, SqlType

Result = TypeVar("Result")

PATIENCE = 30.0
"""Seconds for which a database that does not answer is called again."""
FETCHED = 50_000

POSTGRES_TYPES = {
    SqlType.BOOLEAN: "BOOLEAN",
    SqlType.TINYINT: "SMALLINT",
    SqlType.SMALLINT: "SMALLINT",
    SqlType.INT: "INTEGER",
    SqlType.BIGINT: "BIGINT",
    SqlType.FLOAT: "REAL",
    SqlType.DOUBLE: "DOUBLE PRECISION",
    SqlType.STRING: "TEXT",
    SqlType.DATE: "DATE",
    SqlType.TIMESTAMP: "TIMESTAMPTZ",
}


_TIMES = {SqlType.DATE: (FIRST_DAY, LAST_DAY), SqlType.TIMESTAMP: (FIRST_TIME, LAST_TIME)}
"""The first and the last that Python's dates can be."""


class TableDatabase:
    """The database of one table. Errors are `StorageError`s that name the table."""

    def __init__(self, table: TableDef, patience: float = PATIENCE) -> None:
        assert table.uri is not None
        self._table = table
        self._uri = table.uri
        self._patience = patience
        self._database: Database | None = None
        self.is_postgres = not self._uri.startswith("sqlite:")
        self.name = dict(table.options).get("table", table.name)

    # The connection

    def call(self, work: Callable[[Database], Result]) -> Result:
        """Does something with the database. One that does not answer is called again, after longer and longer pauses,
        until patience ends; what is done must bear being done again."""
        pause, deadline = 0.05, time.monotonic() + self._patience
        while True:
            try:
                if self._database is None:
                    self._database = self._connect()
                return work(self._database)
            except StorageError as error:
                if not _is_gone(error):
                    raise StorageError(f"table {self._table.name}: {error}") from error
                self.close()
                if time.monotonic() + pause > deadline:
                    raise StorageError(
                        f"table {self._table.name}: its database has not answered for {self._patience:g} seconds "
                        f"({str(error).splitlines()[0]}); see that it runs and lets you in"
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, 2.0)

    def _connect(self) -> Database:
        if not self.is_postgres:
            return SqliteDatabase(Path(self._uri.removeprefix("sqlite:").removeprefix("//")))
        from penstock.store.databases.postgres import PostgresDatabase  # psycopg may be missing

        return PostgresDatabase(self._uri, for_batches=True)

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(StorageError):  # it may be gone
                database.close()

    # Statements

    def target(self, db: Database) -> Part:
        return db.joined([db.identifier(part) for part in self.name.split(".")], ".")

    def columns(self, db: Database, fields: Sequence[Field], prefix: str = "") -> Part:
        names = [db.identifier(field.name) for field in fields]
        if prefix:
            names = [db.joined([db.identifier(prefix), name], ".") for name in names]
        return db.joined(names)

    def array_type(self, db: Database, field: Field) -> Part:
        return db.keyword(f"{POSTGRES_TYPES[field.type]}[]")

    def create(self) -> None:
        """Makes the table if it is not there."""

        def make(db: Database) -> None:
            columns = []
            for field in self._table.schema:
                kind = db.keyword(POSTGRES_TYPES[field.type]) if self.is_postgres else db.column_type(field)
                required = db.keyword("" if field.nullable else "NOT NULL")
                columns.append(db.joined([db.identifier(field.name), kind, required], " "))
            statement = db.statement(
                "CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({key}))",
                table=self.target(db),
                columns=db.joined(columns),
                key=db.joined([db.identifier(name) for name in self._table.key]),
            )
            db.run(statement)

        self.call(make)

    # Reading

    def rows(self) -> int | None:
        def count(db: Database) -> int:
            found = db.query(db.statement("SELECT count(*) FROM {table}", table=self.target(db)))
            return int(found[0][0])

        return self.call(count)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows; those of one moment, so a connection that breaks in between fails."""

        def begin(db: Database) -> Iterator[list[tuple[Any, ...]]]:
            statement = db.statement(
                "SELECT {columns} FROM {table}",
                columns=self.columns(db, self._table.schema.fields),
                table=self.target(db),
            )
            return db.stream(statement, FETCHED)

        try:
            for rows in self.call(begin):
                yield self.to_batch(rows)
        except StorageError as error:
            named = str(error).startswith(f"table {self._table.name}: ")
            raise error if named else StorageError(f"table {self._table.name}: {error}") from error
        finally:
            self.close()

    def fetch(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of keys, in one question."""
        fields = self._table.key_fields

        def ask(db: Database) -> list[tuple[Any, ...]]:
            columns, table = self.columns(db, self._table.schema.fields, "t"), self.target(db)
            if self.is_postgres and len(fields) == 1:
                # One index scan for all keys; a join with the list of keys may become a scan of the table.
                statement = db.statement(
                    "SELECT {columns} FROM {table} AS t WHERE {key} = ANY({asked}::{type})",
                    columns=columns,
                    table=table,
                    key=self.columns(db, fields, "t"),
                    asked=db.parameter(),
                    type=self.array_type(db, fields[0]),
                )
            else:
                sides = [
                    [db.joined([db.identifier(s), db.identifier(f.name)], ".") for s in ("t", "asked")] for f in fields
                ]
                statement = db.statement(
                    "SELECT {columns} FROM {table} AS t JOIN {asked} ON {on}",
                    columns=columns,
                    table=table,
                    asked=self._asked(db, fields),
                    on=db.joined([db.joined(pair, " = ") for pair in sides], " AND "),
                )
            values: list[Any] = [self._values(column, f) for column, f in zip(keys.columns, fields, strict=True)]
            return db.query(statement, values if self.is_postgres else [json.dumps(list(zip(*values, strict=True)))])

        return self.to_batch(self.call(ask))

    def _asked(self, db: Database, fields: Sequence[Field]) -> Part:
        """The keys that are asked for, as a relation."""
        names = db.joined([db.identifier(field.name) for field in fields])
        if self.is_postgres:
            lists = [db.joined([db.parameter(), db.keyword("::"), self.array_type(db, field)], "") for field in fields]
            return db.statement("unnest({lists}) AS asked ({names})", lists=db.joined(lists), names=names)
        parts = [
            db.joined([db.keyword(f"json_extract(value, '$[{place}]') AS"), db.identifier(field.name)], " ")
            for place, field in enumerate(fields)
        ]
        return db.joined([db.keyword("(SELECT"), db.joined(parts), db.keyword("FROM json_each(?)) AS asked")], " ")

    def _values(self, column: pa.Array, field: Field) -> list[Any]:
        """A column as the database takes it."""
        if self.is_postgres:
            return list(column.to_pylist())
        if field.type is SqlType.TIMESTAMP:
            column = column.view(pa.int64())
        elif field.type is SqlType.DATE:
            column = column.view(pa.int32())
        values = list(column.to_pylist())
        if field.type.is_floating:
            return ["NaN" if value is not None and value != value else value for value in values]
        return values

    def unfit(self, column: pa.Array, kind: SqlType) -> Bools | None:
        """Which values the database cannot keep, and so never has: PostgreSQL no text with a NUL, its driver no time
        outside of the years 1 to 9999. None if there are none."""
        if not self.is_postgres or not len(column):
            return None
        if kind is SqlType.STRING:
            found: Bools = pc.match_substring(column, "\0").fill_null(False).to_numpy(zero_copy_only=False)
        elif kind in _TIMES:
            first, last = _TIMES[kind]
            values = column.view(pa.int64() if kind is SqlType.TIMESTAMP else pa.int32()).fill_null(0).to_numpy()
            found = (values < first) | (values > last)
        else:
            return None
        return found if found.any() else None

    def unfit_rows(self, batch: pa.RecordBatch) -> Bools:
        """Which rows have such a value."""
        found = np.zeros(batch.num_rows, np.bool_)
        for column, name in zip(batch.columns, batch.schema.names, strict=True):
            field = self._table.schema.find(name)
            unfit = None if field is None else self.unfit(column, field.type)
            found = found if unfit is None else found | unfit
        return found

    def parameters(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        """Rows as parameters of a statement."""
        fields = [self._table.schema.find(name) for name in batch.schema.names]
        columns = [self._values(c, f) for c, f in zip(batch.columns, fields, strict=True) if f is not None]
        return list(zip(*columns, strict=True))

    def to_batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        """Rows as they came from the database."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._table.schema)
        arrays = []
        for field, values in zip(self._table.schema, columns, strict=True):
            try:
                arrays.append(_array(field, values))
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                where = f"table {self._table.name}: column '{field.name}' of its database"
                raise InputError(f"{where} does not fit {field.type}: {error}") from None
            if not field.nullable and arrays[-1].null_count:
                raise InputError(f"table {self._table.name}: column '{field.name}' of its database has a NULL")
        return pa.RecordBatch.from_arrays(arrays, schema=self._table.schema.arrow)


def _array(field: Field, values: Sequence[Any]) -> pa.Array:
    if field.type is SqlType.TIMESTAMP and any(isinstance(value, int | str) for value in values):
        micros = [parse_timestamp(v) if isinstance(v, str) else v for v in values]
        return pa.array(micros, pa.int64()).view(field.type.arrow)
    if field.type is SqlType.DATE and any(isinstance(value, int | str) for value in values):
        days = [parse_date(v) if isinstance(v, str) else v for v in values]
        return pa.array(days, pa.int32()).view(field.type.arrow)
    if field.type.is_floating:
        return pa.array([None if v is None else float(v) for v in values], field.type.arrow)
    if field.type is SqlType.BOOLEAN:
        return pa.array([None if v is None else bool(v) for v in values], field.type.arrow)
    return pa.array(values, field.type.arrow)


def _is_gone(error: StorageError) -> bool:
    """Whether it is the connection, and not the statement, that failed."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        # A file is there or not; only one that another process writes is worth to wait for.
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(cause).__mro__)


def open_database(table: TableDef) -> TableDatabase | None:
    return TableDatabase(table) if is_database(table.uri) else None
