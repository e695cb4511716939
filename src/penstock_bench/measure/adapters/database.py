"""Tables of a setup that are in a database: a PostgreSQL server beside the system under test, filled before the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import parquet

from penstock.errors import InputError
from penstock.instruments import POSTGRES_TYPES
from penstock_bench.measure.postgres import PostgresServer
from penstock_bench.measure.setup.model import Setup, Table


class Database:
    """Runs while it is open; there is none if no table of the setup is in a database."""

    def __init__(self, setup: Setup, tables: Mapping[str, Path]) -> None:
        self._server: PostgresServer | None = None
        kept = {name: table for name, table in setup.tables.items() if table.where == "postgresql"}
        if kept:
            try:
                import psycopg
            except ImportError:
                raise InputError(
                    "a table in PostgreSQL needs psycopg; pip install 'penstock-bench[postgres]'"
                ) from None
            self._server = PostgresServer()
            self._server.__enter__()
            try:
                with psycopg.connect(self._server.uri, autocommit=True) as connection:
                    for name, table in kept.items():
                        _fill(connection, name, table, tables[name])
            except BaseException:
                self.close()
                raise

    @property
    def uri(self) -> str:
        assert self._server is not None, "only a setup with such a table asks"
        return self._server.uri

    def close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            server.__exit__(None, None, None)


def _fill(connection: Any, name: str, table: Table, rows: Path) -> None:
    from psycopg import sql

    columns = [
        sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(POSTGRES_TYPES[kind])) for c, kind in table.columns.items()
    ]
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
            sql.Identifier(name), sql.SQL(", ").join(columns), sql.Identifier(table.key)
        )
    )
    copying = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))
    with connection.cursor() as cursor, cursor.copy(copying) as copy, parquet.ParquetFile(rows) as file:
        for batch in file.iter_batches():
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                copy.write_row(row)
    connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(name)))
