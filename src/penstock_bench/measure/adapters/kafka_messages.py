"""Batches of rows as Kafka messages, and back.

`json`: one message for each row, an object with the column names; times are ISO-8601 in UTC with microseconds.
`arrow`: one message for each batch (a large one is cut), an Arrow IPC stream. A message without a value is an end mark:
its header names the process that has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from penstock.errors import InputError
from penstock.instruments import json_lines
from penstock.types import SqlType

FORMATS = ("json", "arrow")
END = "penstock-end"

_MESSAGE_BYTES = 500_000
"""A broker takes a million by default."""

_QUOTED_FLOAT = re.compile(rb':\s*"(NaN|-?Infinity)"')


def encode(batch: pa.RecordBatch, form: str, key: str | None = None) -> list[dict[str, Any]]:
    """The messages of a batch, as `produce_batch` takes them; each row's `key` column, as text, is its key."""
    if form == "arrow":
        at_once = max(1, batch.num_rows * _MESSAGE_BYTES // max(batch.nbytes, 1))
        return [{"value": _packed(batch.slice(low, at_once))} for low in range(0, batch.num_rows, at_once)]
    lines = json_lines(batch).split(b"\n")
    lines.pop()
    if key is None:
        return [{"value": line} for line in lines]
    keys = pc.cast(batch.column(key), pa.string()).to_pylist()
    return [{"value": line, "key": one} for line, one in zip(lines, keys, strict=True)]


def decode(values: Sequence[bytes], form: str, known: Mapping[str, pa.DataType], *, others: bool) -> pa.RecordBatch:
    """The rows of some messages. `known` are the columns' types; with `others` columns that are not known are taken,
    too, their types as they look."""
    if form == "arrow":
        return _whole(pa.concat_tables([_opened(value) for value in values], promote_options="permissive"))
    data = b"\n".join(values)
    try:
        return _parsed(data, known, others)
    except pa.ArrowInvalid as error:
        try:
            # Numbers that JSON does not have are written as texts; Arrow reads them bare.
            return _parsed(_QUOTED_FLOAT.sub(rb": \1", data), known, others)
        except pa.ArrowInvalid:
            raise InputError(f"a message is not what was agreed: {error}; it begins {values[0][:80]!r}") from None


def _packed(batch: pa.RecordBatch) -> bytes:
    made = pa.BufferOutputStream()
    with pa.ipc.new_stream(made, batch.schema) as stream:
        stream.write_batch(batch)
    packed: bytes = made.getvalue().to_pybytes()
    return packed


def _opened(value: bytes) -> pa.Table:
    try:
        return pa.ipc.open_stream(value).read_all()
    except pa.ArrowInvalid as error:
        raise InputError(f"a message is no Arrow IPC stream: {error}; it begins {value[:40]!r}") from None


def _parsed(data: bytes, known: Mapping[str, pa.DataType], others: bool) -> pa.RecordBatch:
    # Arrow's parser knows no dates; as texts they are cast.
    dates = [name for name, kind in known.items() if pa.types.is_date(kind)]
    fields = [pa.field(name, pa.string() if name in dates else kind) for name, kind in known.items()]
    found = arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(fields), unexpected_field_behavior="infer" if others else "ignore"
        ),
    )
    for name in dates:
        found = found.set_column(found.column_names.index(name), name, found.column(name).cast(known[name]))
    return _whole(found)


def _whole(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks()
    columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in whole.columns]
    return pa.RecordBatch.from_arrays(columns, schema=whole.schema)


class LooseResults:
    """Reads results of an engine whose types are not known. The columns of `times` are TIMESTAMP, all numbers DOUBLE,
    so that the schema does not depend on which values come first."""

    def __init__(self, form: str, times: Sequence[str]) -> None:
        self._form = form
        self._times = {name.lower() for name in times}
        self._seen: dict[str, pa.DataType] = {}

    def read(self, values: Sequence[bytes]) -> pa.RecordBatch:
        found = decode(values, self._form, {}, others=True)
        if self._form == "arrow":
            return found
        columns = {}
        for field, column in zip(found.schema, found.columns, strict=True):
            if field.name.lower() in self._times:
                columns[field.name] = _times(column)
            else:
                kind = self._seen.get(field.name) or _stable(field.type)
                columns[field.name] = column.cast(kind)
                if not pa.types.is_null(field.type):
                    self._seen[field.name] = kind
        return pa.record_batch(columns)


def _stable(kind: pa.DataType) -> pa.DataType:
    """Arrow takes a text for a time if all of a batch look so, and a number without a point for an integer."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    return pa.float64() if pa.types.is_integer(kind) or pa.types.is_null(kind) else kind


def _times(column: pa.Array) -> pa.Array:
    """Texts with or without a zone (then it is UTC); integers are microseconds since the epoch already."""
    if not pa.types.is_string(column.type):
        return column if pa.types.is_integer(column.type) else column.cast(SqlType.TIMESTAMP.arrow)
    try:
        return column.cast(SqlType.TIMESTAMP.arrow)
    except pa.ArrowInvalid:
        return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")
