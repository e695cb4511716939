"""Columns to and from a Java that runs in this process: whole arrays of primitives, never a value at a time.

Text goes as its bytes in UTF-8 and an array of offsets, which is what Arrow holds; NULLs go as an array of booleans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jpype
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.types import SqlType

BOXES = {
    SqlType.BOOLEAN: "Boolean",
    SqlType.TINYINT: "Byte",
    SqlType.SMALLINT: "Short",
    SqlType.INT: "Integer",
    SqlType.BIGINT: "Long",
    SqlType.FLOAT: "Float",
    SqlType.DOUBLE: "Double",
    SqlType.STRING: "String",
    SqlType.DATE: "Integer",
    SqlType.TIMESTAMP: "Long",
}
"""What a value is in Java: a DATE is its days, a TIMESTAMP its microseconds since the epoch."""

ARROW = {
    "java.lang.Boolean": pa.bool_(),
    "java.lang.Byte": pa.int8(),
    "java.lang.Short": pa.int16(),
    "java.lang.Integer": pa.int32(),
    "java.lang.Long": pa.int64(),
    "java.lang.Float": pa.float32(),
    "java.lang.Double": pa.float64(),
    "java.lang.String": pa.string(),
}


@dataclass(frozen=True)
class JavaColumns:
    """The three arrays in which a batch goes to Java, one entry for each column."""

    values: Any
    texts: Any
    valid: Any


def strings(texts: Sequence[str]) -> Any:
    return jpype.JArray(jpype.JString)(list(texts))


def to_java(batch: pa.RecordBatch, types: Sequence[SqlType]) -> JavaColumns:
    count = len(types)
    made = JavaColumns(
        jpype.JArray(jpype.JObject)(count),
        jpype.JArray(jpype.JArray(jpype.JInt))(count),
        jpype.JArray(jpype.JArray(jpype.JBoolean))(count),
    )
    for i, (column, kind) in enumerate(zip(batch.columns, types, strict=True)):
        if column.null_count:
            made.valid[i] = jpype.JArray.of(pc.is_valid(column).to_numpy(zero_copy_only=False))
        if kind is SqlType.STRING:
            made.values[i], made.texts[i] = _text(column.cast(pa.string()))
        else:
            made.values[i] = jpype.JArray.of(fixed(column, kind))
    return made


def fixed(column: pa.Array, kind: SqlType) -> np.ndarray[Any, np.dtype[Any]]:
    """The values as numpy has them; where there is a NULL, anything."""
    values = column if column.type == kind.arrow else column.cast(kind.arrow)
    if kind is SqlType.BOOLEAN:
        return np.ascontiguousarray(values.fill_null(False).to_numpy(zero_copy_only=False))
    width = kind.storage
    return np.frombuffer(values.buffers()[1], width)[values.offset : values.offset + len(values)]


def _text(column: pa.Array) -> tuple[Any, Any]:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    used = np.frombuffer(data, np.int8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.int8)
    return jpype.JArray.of(used), jpype.JArray.of(ends - ends[0])


def from_java(values: Any, text: Any, nulls: Any, kind: pa.DataType) -> pa.Array:
    """A column that Java has filled: longs, doubles, or bytes with offsets."""
    mask = None if nulls is None else np.array(nulls, dtype=bool)
    if text is not None:
        offsets, data = np.array(text, dtype=np.int32), np.array(values, dtype=np.int8)
        column = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
        return column if mask is None else pc.if_else(pa.array(mask), None, column)
    taken = np.array(values)
    if pa.types.is_timestamp(kind):
        return pa.array(taken, pa.int64(), mask=mask).cast(kind)
    return pa.array(taken.astype(kind.to_pandas_dtype(), copy=False), kind, mask=mask)
