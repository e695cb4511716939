"""Where the rows of a table come from. Files are read by `penstock.connect`, which lies above and registers here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Protocol

import pyarrow as pa

from penstock.engine.tables.database import open_database
from penstock.errors import InputError
from penstock.lang.table_defs import TableDef
from penstock.masking import masked


class TableSource(Protocol):
    def rows(self) -> int | None:
        """How many rows there are; None where this is not known before they are read."""

    def batches(self) -> Iterable[pa.RecordBatch]:
        """All rows, in the table's columns and types; `InputError` for one that does not fit."""


_openers: list[Callable[[TableDef], TableSource | None]] = []


def register(opener: Callable[[TableDef], TableSource | None]) -> None:
    """From now on the opener is asked for tables that no other one knows."""
    _openers.append(opener)


def source_of(table: TableDef) -> TableSource:
    # `connect` lies above this folder, so it is imported by its name here; the program may not have imported it yet.
    import_module("penstock.connect")
    for opener in (open_database, *_openers):
        found = opener(table)
        if found is not None:
            return found
    raise InputError(f"table {table.name}: nothing reads '{masked(table.uri or '')}'")
