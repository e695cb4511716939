"""Batches as the connector in Flink reads and writes them (`java/FlinkConnector.java` says how a frame looks)."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.types import SqlType

HEAD = struct.Struct("<ii")
"""How many bytes follow, and how many rows."""

_TYPES = {
    "BOOLEAN": SqlType.BOOLEAN, "TINYINT": SqlType.TINYINT, "SMALLINT": SqlType.SMALLINT, "INT": SqlType.INT,
    "BIGINT": SqlType.BIGINT, "FLOAT": SqlType.FLOAT, "DOUBLE": SqlType.DOUBLE, "STRING": SqlType.STRING,
    "VARCHAR": SqlType.STRING, "CHAR": SqlType.STRING, "DATE": SqlType.DATE, "TIMESTAMP": SqlType.TIMESTAMP,
    "TIMESTAMP_LTZ": SqlType.TIMESTAMP, "LOCALZONEDTIMESTAMP": SqlType.TIMESTAMP,
}  # fmt: skip


def type_of(text: str, where: str) -> SqlType:
    """The type that Flink calls so.

    >>> type_of("TIMESTAMP(3) *ROWTIME*", "q").value, type_of("VARCHAR(5) NOT NULL", "q").value
    ('TIMESTAMP', 'STRING')
    """
    name = re.match(r"\w*", text)
    found = _TYPES.get(name[0] if name else "")
    if found is None:
        raise InputError(f"{where}: its type {text} cannot pass; CAST it to DOUBLE or STRING")
    return found


def encoded(batch: pa.RecordBatch, types: Sequence[SqlType]) -> list[bytes | memoryview]:
    """A frame, in parts that are sent one after the other."""
    parts: list[bytes | memoryview] = []
    for column, kind in zip(batch.columns, types, strict=True):
        parts.append(b"\1" if column.null_count else b"\0")
        if column.null_count:
            parts.append(_bytes(pc.is_null(column).to_numpy(zero_copy_only=False).view(np.int8)))
        parts.extend(_values(column if column.type == kind.arrow else column.cast(kind.arrow), kind))
    size = sum(len(part) for part in parts)
    return [HEAD.pack(size, batch.num_rows), *parts]


def _bytes(values: np.ndarray[Any, np.dtype[Any]]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")


def _values(column: pa.Array, kind: SqlType) -> list[bytes | memoryview]:
    if not len(column):
        return [HEAD.pack(0, 0)[:4]] if kind is SqlType.STRING else []
    if kind is SqlType.BOOLEAN:
        return [_bytes(column.fill_null(False).to_numpy(zero_copy_only=False).view(np.int8))]
    if kind is SqlType.STRING:
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
        text = memoryview(data)[ends[0] : ends[-1]] if data is not None else b""
        return [_bytes(ends - ends[0]), text]
    values = np.frombuffer(column.buffers()[1], kind.storage)
    return [_bytes(values[column.offset : column.offset + len(column)])]


def decoded(data: bytes, rows: int, schema: pa.Schema, types: Sequence[SqlType]) -> pa.RecordBatch:
    at = 0
    columns = []
    for field, kind in zip(schema, types, strict=True):
        has_nulls, at = data[at] != 0, at + 1
        nulls = None
        if has_nulls:
            nulls, at = np.frombuffer(data, np.bool_, rows, at), at + rows
        if kind is SqlType.STRING:
            offsets, at = np.frombuffer(data, np.int32, rows + 1, at), at + 4 * (rows + 1)
            text, at = data[at : at + int(offsets[-1])], at + int(offsets[-1])
            column = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
            columns.append(column if nulls is None else pc.if_else(pa.array(nulls), None, column))
            continue
        values, at = np.frombuffer(data, kind.storage, rows, at), at + rows * kind.storage.itemsize
        if kind is SqlType.BOOLEAN:
            columns.append(pa.array(values.astype(bool), pa.bool_(), mask=nulls))
        else:
            plain = {SqlType.TIMESTAMP: pa.int64(), SqlType.DATE: pa.int32()}.get(kind, field.type)
            columns.append(pa.array(values, plain, mask=nulls).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
