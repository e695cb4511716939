"""From what users push to Arrow batches: dicts, lists of dicts, Arrow, pandas and polars frames.

Only the columns that some query reads are taken, and each is cast to its declared type; names match whatever their
case. What does not fit as a whole is refused with `InputError` and nothing of it is taken; a single row with a NULL
where none may be, or with an impossible time, is rejected. A key that a dict does not have is NULL; a column that a
frame does not have is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregates.state import Int64s
from penstock.errors import InputError
from penstock.expressions.batch import Batch, Rows, arrow_of
from penstock.expressions.vector import Vector
from penstock.lang.query import StreamDef
from penstock.operators.chunk import readable
from penstock.operators.emitter import Reject
from penstock.types import Field, SqlType

FARTHEST_TIME = 1 << 61
"""Event times lie within this many microseconds of 1970 (some 73,000 years), so that arithmetic on them never wraps."""

_EXACT = 1 << 53
"""Integers up to this size are doubles too."""


class Ingest:
    def __init__(self, stream: StreamDef, fields: tuple[Field, ...], reject: Reject) -> None:
        self._stream = stream
        self._fields = fields
        self._reject = reject
        self.schema = pa.schema([pa.field(f.name, f.type.arrow) for f in fields])
        self._required = [f.name for f in fields if not f.nullable or f.name == stream.event_time]
        self._kinds = {f.name: f.type for f in fields}
        self._plain = [(f.name, *_PLAIN[f.type]) for f in fields if f.type in _PLAIN]
        self._strings = [f.name for f in fields if f.type is SqlType.STRING]
        self._only_plain = len(self._plain) + len(self._strings) == len(fields)
        time_field = stream.schema.find(stream.event_time)
        assert time_field is not None, "the binder checked the event time column"
        self._time_type = time_field.type

    def batches(self, data: Any) -> Iterable[Rows]:
        """The pushed data as batches of the needed columns."""
        if isinstance(data, dict):
            single = self._from_event(data)
            if single is not None:
                return (single,)
            if not _holds_columns(data):
                return [self._from_dicts([data])]
        if isinstance(data, list):
            return [self._from_dicts(data)]
        if isinstance(data, pa.RecordBatch):
            return [self._conform(data)]
        return [self._conform(batch) for batch in _to_table(data, self._stream.name).to_batches()]

    def _from_event(self, event: dict[str, Any]) -> Batch | None:
        """One event without a detour through Arrow; None where its values are not plainly those declared."""
        if not self._only_plain:
            return None
        data: dict[str, Any] = {}
        get = event.get
        for name, accepted, dtype in self._plain:
            value = get(name)
            if type(value) not in accepted or (dtype is np.float64 and type(value) is int and abs(value) > _EXACT):
                return None
            try:
                data[name] = Vector(np.array((value,), dtype), None)
            except OverflowError:
                return None
        for name in self._strings:
            value = get(name)
            if type(value) is not str or not (value.isascii() or _is_text(value)):
                return None
            data[name] = [value]
        return Batch(self._kinds, data, 1)

    def _from_dicts(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        for row in rows:
            if not isinstance(row, Mapping):
                raise InputError(
                    f"stream {self._stream.name}: cannot push a list with a {type(row).__name__} in it; "
                    "push a list of dicts"
                )
        arrays = []
        for field in self._fields:
            try:
                arrays.append(pa.array([_value(row, field.name) for row in rows], field.type.arrow))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"stream {self._stream.name}: column {field.name} must be {field.type}: {error}"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        names = {name.lower(): i for i, name in enumerate(batch.schema.names)}
        arrays = []
        for field in self._fields:
            index = names.get(field.name.lower())
            if index is None:
                raise InputError(
                    f"stream {self._stream.name}: column {field.name} is missing; the data has "
                    f"{', '.join(batch.schema.names)}"
                )
            arrays.append(self._cast(batch.column(index), field))
        return pa.RecordBatch.from_arrays(arrays, names=self.schema.names)

    def _cast(self, column: pa.Array, field: Field) -> pa.Array:
        if column.type == field.type.arrow:
            return column
        try:
            if _encodes(column.type, field.type):
                return column.cast(_ENCODED)
            if field.type is SqlType.TIMESTAMP and pa.types.is_timestamp(column.type) and column.type.tz is None:
                return column.cast(pa.timestamp("us")).view(field.type.arrow)
            return column.cast(field.type.arrow)
        except pa.ArrowException as error:
            raise InputError(
                f"stream {self._stream.name}: column {field.name} is declared {field.type} and cannot be read from "
                f"{column.type}: {error}"
            ) from None

    def times(self, rows: Rows, latest: int | None) -> tuple[Int64s, Rows]:
        """The event times in microseconds and the rows that have one; the others are rejected.

        `latest` is the time beyond which an event is taken for one with a bad clock.
        """
        if isinstance(rows, Batch) and latest is None and self._stream.time_unit == 1:
            single: Int64s = rows.vector(self._stream.event_time, self._time_type).values
            if -FARTHEST_TIME <= single[0] <= FARTHEST_TIME:
                return single, rows
        batch = arrow_of(rows)
        for name in self._required:
            column = batch.column(name)
            if column.null_count:
                batch = self._without(batch, column.is_null(), f"{name} is NULL")
        column = batch.column(self._stream.event_time)
        times: Int64s
        if self._time_type is SqlType.TIMESTAMP:
            times = column.view(pa.int64()).to_numpy()
        else:
            times = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        bound = FARTHEST_TIME // self._stream.time_unit
        outside = (times > bound) | (times < -bound)
        if outside.any():
            batch = self._without(batch, pa.array(outside), "event time is out of range")
            times = times[~outside]
        if self._stream.time_unit != 1:
            times = times * self._stream.time_unit
        if latest is not None:
            ahead = times > latest
            if ahead.any():
                batch = self._without(batch, pa.array(ahead), "event time is too far ahead of the clock")
                times = times[~ahead]
        return times, batch

    def _without(self, batch: pa.RecordBatch, bad: pa.Array, reason: str) -> pa.RecordBatch:
        for row in readable(batch.filter(bad)):
            self._reject(f"stream {self._stream.name}: {reason}", row)
        return batch.filter(pc.invert(bad))


_PLAIN: dict[SqlType, tuple[tuple[type, ...], type]] = {
    SqlType.TINYINT: ((int,), np.int8),
    SqlType.SMALLINT: ((int,), np.int16),
    SqlType.INT: ((int,), np.int32),
    SqlType.BIGINT: ((int,), np.int64),
    SqlType.DOUBLE: ((float, int), np.float64),
    SqlType.BOOLEAN: ((bool,), np.bool_),
    SqlType.TIMESTAMP: ((int,), np.int64),
}
"""The Python values that are taken as they are, by declared type; strings aside."""


_ENCODED = pa.dictionary(pa.int32(), pa.string())


def _is_text(value: str) -> bool:
    """Whether the string can be stored: half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    lowered = name.lower()
    return next((value for key, value in row.items() if isinstance(key, str) and key.lower() == lowered), None)


def _holds_columns(data: dict[str, Any]) -> bool:
    """Whether a dict maps names to columns, not to the values of one event."""
    return bool(data) and all(isinstance(v, Sized) and not isinstance(v, str | bytes | Mapping) for v in data.values())


def _encodes(arrow: pa.DataType, kind: SqlType) -> bool:
    """Dictionary-encoded strings stay so: groups are found faster that way."""
    return kind is SqlType.STRING and pa.types.is_dictionary(arrow) and pa.types.is_string(arrow.value_type)


def _to_table(data: Any, stream: str) -> pa.Table:
    try:
        if isinstance(data, pa.Table):
            return data
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if isinstance(data, dict):
            return pa.table(data)
        if hasattr(data, "columns") and hasattr(data, "iloc"):
            return pa.Table.from_pandas(data, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"stream {stream}: this data cannot be read as columns: {error}") from None
    raise InputError(
        f"stream {stream}: cannot push a {type(data).__name__}; push a dict, a list of dicts, an Arrow batch or table, "
        "or a pandas or polars frame"
    )
