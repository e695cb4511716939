"""The tables of a setup, made before the run as Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from penstock.errors import InputError
from penstock.types import Field, Schema
from penstock_bench.measure.load.fields import Fields
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.generators import Sequential
from penstock_bench.measure.setup.model import Table

_STRETCH_ROWS = 65_536


def write_table(name: str, table: Table, path: Path) -> None:
    """Makes the rows of a table, the same ones every time."""
    key = table.fields[table.key]
    if not isinstance(key, Sequential) or key.step == 0 or (key.limit is not None and key.limit < table.rows):
        raise InputError(
            f"tables.{name}.fields.{table.key}: a key has no value twice; use generator = 'sequential'"
            " without a limit below the rows"
        )
    columns = Schema(tuple(Field(column, kind, column != table.key) for column, kind in table.columns.items()))
    fields = Fields(table.columns, table.fields, Share(), 0, f"tables.{name}.fields")
    with parquet.ParquetWriter(path, columns.arrow) as writer:
        for first in range(0, table.rows, _STRETCH_ROWS):
            made = fields.take(min(_STRETCH_ROWS, table.rows - first))
            writer.write_batch(pa.record_batch(list(made.values()), schema=columns.arrow))
