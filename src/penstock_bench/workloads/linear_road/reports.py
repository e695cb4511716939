"""The input of Linear Road: 15 integers to a row, in the order of their times.

A row is a position report or a question; `type` says which. What a row does not have is -1. Files are CSV without a
header. Times are seconds since the beginning; `seg` is a mile of the expressway `xway` in the direction `dir`; `pos` is
in feet from its west end. `s_init`, `s_end`, `dow` and `tod` belong to questions of the travel time, `day` to questions
of the daily expenditure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

POSITION, BALANCE, EXPENDITURE, TRAVEL_TIME = 0, 2, 3, 4
"""The types of the rows."""

COLUMNS = (
    "type",
    "time",
    "vid",
    "speed",
    "xway",
    "lane",
    "dir",
    "seg",
    "pos",
    "qid",
    "s_init",
    "s_end",
    "dow",
    "tod",
    "day",
)
REPORT = Schema(tuple(Field(name, SqlType.INT, nullable=False) for name in COLUMNS))

SEGMENTS = 100
FEET = 5280
"""Of a segment."""

ENTRY_LANE, EXIT_LANE = 0, 4
REPORT_EVERY = 30
"""Seconds."""


def read_integers(path: Path, schema: Schema) -> pa.Table:
    """A CSV file without a header whose columns are all integers."""
    return pa.Table.from_batches(integer_batches(path, schema), schema=schema.arrow)


def integer_batches(path: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The same piece by piece, for files larger than memory. A name that ends in .gz is unpacked."""
    kinds = {field.name: pa.int32() for field in schema}
    try:
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=list(schema.names), block_size=1 << 22),
            convert_options=csv.ConvertOptions(column_types=kinds, null_values=[]),
        ) as reader:
            for batch in reader:
                yield pa.record_batch(batch.columns, schema=schema.arrow)
    except (OSError, pa.ArrowInvalid) as error:
        what = f"{len(schema)} integers to a row, separated by commas, without a header"
        raise InputError(f"{path}: {error}. The file must have {what}: {', '.join(schema.names)}.") from error


def read_reports(path: Path) -> pa.Table:
    return read_integers(path, REPORT)


def report_batches(path: Path) -> Iterator[pa.RecordBatch]:
    return integer_batches(path, REPORT)


def write_integers(path: Path, tables: Iterable[pa.Table], schema: Schema) -> int:
    """Writes tables one after the other, and says how many rows they have."""
    rows = 0
    options = csv.WriteOptions(include_header=False, batch_size=1 << 16)
    with csv.CSVWriter(path, schema.arrow, write_options=options) as writer:
        for table in tables:
            writer.write(table)
            rows += table.num_rows
    return rows


def write_reports(path: Path, tables: Iterable[pa.Table]) -> int:
    return write_integers(path, tables, REPORT)
