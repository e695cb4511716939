"""Standard output as a sink: JSON lines, CSV, or a table for the eye."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import BinaryIO

import pyarrow as pa

from penstock.connect.encode import csv_header, csv_lines, json_lines
from penstock.connect.sink import Sink
from penstock.connect.source import Position
from penstock.operators.chunk import readable


class StdoutSink(Sink):
    """`style` is jsonl, csv or table. A `label` comes first in every row, to tell several queries apart."""

    def __init__(self, schema: pa.Schema, style: str, delimiter: str = ",", label: str | None = None) -> None:
        self._schema = schema if label is None else pa.schema([pa.field("query", pa.string()), *schema])
        self._style = style
        self._delimiter = delimiter
        self._label = label
        self._widths: list[int] = []
        self._begun = False

    def restore(self, position: Position | None) -> None:
        """What was printed stays printed."""

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._label is not None:
            label = pa.array([self._label], pa.string()).take(pa.array([0] * batch.num_rows, pa.int8()))
            batch = pa.record_batch([label, *batch.columns], schema=self._schema)
        output: BinaryIO = sys.stdout.buffer
        if self._style == "table":
            output.write(self._table(batch))
        elif self._style == "csv":
            output.write(b"" if self._begun else csv_header(self._schema, self._delimiter))
            output.write(csv_lines(batch, self._delimiter))
        else:
            output.write(json_lines(batch))
        self._begun = True
        output.flush()

    def _table(self, batch: pa.RecordBatch) -> bytes:
        """Rows under one header; a column grows when a value needs it and never shrinks again."""
        rows = [[_shown(value) for value in row.values()] for row in readable(batch)]
        names = self._schema.names
        needed = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
        lines = []
        if not self._begun or any(n > w for n, w in zip(needed, self._widths, strict=True)):
            self._widths = [max(pair) for pair in zip(needed, self._widths or needed, strict=True)]
            lines += [self._line(names), self._line(["-" * width for width in self._widths])]
        lines += [self._line(row) for row in rows]
        return "".join(lines).encode("utf-8", "replace")

    def _line(self, cells: list[str]) -> str:
        numeric = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in self._schema]
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, self._widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip() + "\n"

    def flush(self) -> None:
        """Every write is seen at once."""

    def commit(self, epoch: int) -> Position:
        return {}

    def close(self) -> None:
        """Standard output is not ours to close."""


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value.replace(tzinfo=None).isoformat(" ", "microseconds") if isinstance(value, datetime) else str(value)
    return text.removesuffix(".000000")
