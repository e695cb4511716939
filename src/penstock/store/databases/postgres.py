"""Stores in tables of a PostgreSQL server, through psycopg. Needs `pip install 'penstock[postgres]'`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.errors import StorageError
from penstock.store.databases.database import Database, Part, Row, Statement, Value, check_texts
from penstock.types import Field, SqlType

try:
    import psycopg
    from psycopg import sql
except ImportError as error:  # pragma: no cover
    raise StorageError("stores in PostgreSQL need psycopg; pip install 'penstock[postgres]'") from error

_TYPES = {
    SqlType.BOOLEAN: "BOOLEAN",
    SqlType.TINYINT: "SMALLINT",
    SqlType.SMALLINT: "SMALLINT",
    SqlType.INT: "INTEGER",
    SqlType.DATE: "INTEGER",
    SqlType.FLOAT: "DOUBLE PRECISION",
    SqlType.DOUBLE: "DOUBLE PRECISION",
    SqlType.STRING: 'TEXT COLLATE "C"',
}
"""The other types are BIGINT. Strings are compared as everywhere else in this library: by their code points."""


class PostgresDatabase(Database):
    """With `for_batches` it is asked for many rows by their keys at a time: answers come in binary form, and the server
    does not compile such questions, which would take it longer than to answer them."""

    def __init__(self, conninfo: str, *, for_batches: bool = False) -> None:
        self._binary = for_batches
        try:
            psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError:
            # What libpq says of it repeats pieces of it, and so maybe the password.
            raise StorageError(
                "PostgreSQL: the address cannot be read; write postgresql://user:password@host:port/database, with %20 "
                "for a space, %25 for a % and so on"
            ) from None
        with _errors():
            self._connection = psycopg.connect(conninfo, autocommit=True)
            if for_batches:
                self._connection.execute("SET jit = off")

    def identifier(self, name: str) -> Part:
        if not name.isprintable() or len(name.encode()) > 63:
            raise StorageError(f"{name!r} is not a name that PostgreSQL can have; use at most 63 bytes, all printable")
        return sql.Identifier(name.replace("%", "%%"))  # every statement goes through the parser of parameters

    def keyword(self, text: str) -> Part:
        return sql.SQL(text)

    def parameter(self) -> Part:
        return sql.Placeholder()

    def joined(self, parts: Sequence[Part], separator: str = ", ") -> Part:
        return sql.SQL(separator).join(parts)

    def statement(self, template: str, **parts: Part) -> Statement:
        return sql.SQL(template).format(**parts)

    def column_type(self, field: Field) -> Part:
        return self.keyword(_TYPES.get(field.type, "BIGINT"))

    def to_database(self, row: Row) -> Sequence[Value]:
        check_texts(row, unfit="\0")
        return row

    def from_database(self, fields: Sequence[Field], row: Sequence[Any]) -> Row:
        return tuple(row)

    def query(self, statement: Statement, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        with _errors(), self._connection.cursor(binary=self._binary) as cursor:
            return cursor.execute(statement, values).fetchall()

    def stream(self, statement: Statement, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        with _errors(), self._connection.transaction(), self._connection.cursor("penstock") as cursor:
            cursor.execute(statement, ())
            while found := cursor.fetchmany(rows):
                yield found

    def run(self, statement: Statement, rows: Sequence[Sequence[Value]] = ((),)) -> None:
        with _errors(), self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def columns(self, table: str) -> list[str] | None:
        statement = self.statement(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass({name})"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            name=self.parameter(),
        )
        quoted = sql.Identifier(table).as_string(self._connection)
        return [name for (name,) in self.query(statement, (quoted,))] or None

    def begin(self) -> None:
        self.run(self.keyword("BEGIN"))

    def commit(self) -> None:
        self.run(self.keyword("COMMIT"))

    def roll_back(self) -> None:
        self.run(self.keyword("ROLLBACK"))

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StorageError(f"PostgreSQL: {error}") from error
