"""From what users push to Arrow batches: dicts, lists of dicts, Arrow, pandas and polars frames.

Only the columns that some query reads are taken, and each is cast to its declared type; names match whatever their
case. What does not fit as a whole is refused with `InputError` and nothing of it is taken; a single row with a NULL
where none may be, or with a time outside of the years 1 to 9999, is rejected. A key that a dict does not have is NULL;
a column that a frame does not have is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from itertools import repeat
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.engine.event_times import bounds, outside
from penstock.errors import InputError
from penstock.expressions.batch import Batch, Row, Rows, arrow_of
from penstock.expressions.vector import Vector, numpy_of
from penstock.lang.query import StreamDef
from penstock.operators.chunk import readable
from penstock.operators.reorder import rises
from penstock.rejects import Reject
from penstock.types import Field, SqlType

_EXACT = 1 << 53
"""Integers up to this size are doubles too."""


class Ingest:
    def __init__(self, stream: StreamDef, fields: tuple[Field, ...], reject: Reject) -> None:
        self.schema = pa.schema([pa.field(f.name, f.type.arrow) for f in fields])
        """What comes out."""
        self._filled_in = stream.arrived if stream.arrived in self.schema.names else None
        fields = tuple(f for f in fields if f.name != stream.arrived)
        self._stream = stream
        self._fields = fields
        self._reject = reject
        self.kept: Bools | None = None
        """Which rows of the last call of `times` have one; None if all have."""
        self._pushed = pa.schema([pa.field(f.name, f.type.arrow) for f in fields])
        self._required = [f.name for f in fields if not f.nullable or f.name == stream.event_time]
        self._kinds = {f.name: f.type for f in fields}
        self._plain = [(f.name, *_PLAIN[f.type]) for f in fields if f.type in _PLAIN]
        self._strings = [f.name for f in fields if f.type is SqlType.STRING]
        self._only_plain = len(self._plain) + len(self._strings) == len(fields)
        self._get: Callable[[Any], tuple[Any, ...]] | None = None
        if self._only_plain and len(fields) > 1:
            self._get = itemgetter(*self._kinds)
        self._types = tuple(str if f.type is SqlType.STRING else _PLAIN[f.type][0][0] for f in fields if self._get)
        fixed = [_PLAIN[f.type][1] for f in fields if f.type in _PLAIN]
        self._pack = struct.Struct("".join(np.dtype(dtype).char for dtype in fixed)).pack
        """Refuses what does not fit the width of its column."""
        time_field = stream.schema.find(stream.event_time)
        assert time_field is not None, "the binder checked the event time column"
        self._time_type = time_field.type
        self._first, self._last = bounds(stream.time_unit)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last number that a time may be, as pushed."""
        return self._first, self._last

    def batches(self, data: Any) -> Iterable[Rows]:
        """The pushed data as batches of the needed columns."""
        if data.__class__ is dict:
            row = self._row(data)
            if row is not None:
                return (row,)
        if isinstance(data, dict) and not holds_columns(data):
            data = [data]
        if isinstance(data, list):
            few = self._from_few(data) if 0 < len(data) <= _FEW else None
            if few is None and len(data) > _FEW and self._is_heavy(data):
                pieces = [self._from_few(data[start : start + _FEW]) for start in range(0, len(data), _FEW)]
                if None not in pieces:
                    return [piece for piece in pieces if piece is not None]
            return [self._from_dicts(data) if few is None else few]
        if isinstance(data, pa.RecordBatch):
            return [self._conform(data)]
        return [self._conform(batch) for batch in _to_table(data, self._stream.name).to_batches()]

    def _is_heavy(self, events: Sequence[Any]) -> bool:
        """Whether a copy of the texts would take much memory. Then they are not copied."""
        if not self._strings or type(events[0]) is not dict:
            return False
        texts = [len(text) for name in self._strings if type(text := events[0].get(name)) is str]
        return sum(texts) * len(events) > _HEAVY

    def _row(self, event: dict[Any, Any]) -> Row | None:
        """One event whose values are exactly those declared; None for others."""
        if self._get is None:
            return None
        try:
            values = self._get(event)
            if tuple(map(type, values)) != self._types:
                return None
            self._pack(*(values if not self._strings else [value for value in values if value.__class__ is not str]))
        except (KeyError, struct.error):
            return None
        for name in self._strings:
            if not (event[name].isascii() or _is_text(event[name])):
                return None
        has_no_others = len(event) == len(values)
        return Row(self._kinds, event.copy() if has_no_others else dict(zip(self._kinds, values, strict=True)))

    def _from_few(self, events: Sequence[Any]) -> Batch | None:
        """A few events without a detour through Arrow; None where their values are not plainly those declared."""
        if not self._only_plain or any(type(event) is not dict for event in events):
            return None
        data: dict[str, Any] = dict.fromkeys(self._kinds)  # in the order of the declaration
        for name, accepted, dtype in self._plain:
            values = [event.get(name) for event in events]
            for value in values:
                if type(value) not in accepted or (dtype is np.float64 and type(value) is int and abs(value) > _EXACT):
                    return None
            try:
                data[name] = Vector(np.array(values, dtype), None)
            except OverflowError:
                return None
        for name in self._strings:
            strings = [event.get(name) for event in events]
            for value in strings:
                if type(value) is not str or not (value.isascii() or _is_text(value)):
                    return None
            data[name] = strings
        return Batch(self._kinds, data, len(events))

    def _from_dicts(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        for row in rows:
            if not isinstance(row, Mapping):
                raise InputError(
                    f"stream {self._stream.name}: cannot push a list with a {type(row).__name__} in it; "
                    "push a list of dicts"
                )
        arrays = []
        for field in self._fields:
            values = [_value(row, field.name) for row in rows]
            try:
                if field.type in _WHOLE:
                    _refuse_fractions(values)
                arrays.append(pa.array(values, field.type.arrow))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"stream {self._stream.name}: column {field.name} must be {field.type}: {error}"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self._pushed)

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._pushed):
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
        return pa.RecordBatch.from_arrays(arrays, names=self._pushed.names)

    @property
    def pushed(self) -> list[str]:
        """The columns that are read from what is pushed."""
        return list(self._pushed.names)

    def arriving(self, rows: Rows, now: int) -> Rows:
        """The rows with the instant at which they come, if the stream has a column for it."""
        if self._filled_in is None:
            return rows
        place = self.schema.names.index(self._filled_in)
        instants = pa.array(np.full(rows.num_rows, now)).view(self.schema.field(place).type)
        return arrow_of(rows).add_column(place, self._filled_in, instants)

    def stamps(self, rows: Rows) -> Int64s:
        """The timestamps in microseconds as they are, for dispatch to go by; a row without one goes first."""
        name, unit = self._stream.event_time, self._stream.time_unit
        if isinstance(rows, Batch):
            stamps: Int64s = rows.vector(name, self._time_type).values
        else:
            column = rows.column(name)
            whole = column.view(pa.int64()) if self._time_type is SqlType.TIMESTAMP else column.cast(pa.int64())
            stamps = whole.fill_null(self._first).to_numpy(zero_copy_only=False)
        return np.clip(stamps, self._first, self._last) * unit

    def _cast(self, column: pa.Array, field: Field) -> pa.Array:
        if column.type == field.type.arrow:
            return column
        try:
            if _encodes(column.type, field.type):
                if column.type == _ENCODED and _has_its_entries(column):
                    return column
                return pa.DictionaryArray.from_arrays(
                    column.indices.cast(pa.int32()), column.dictionary.cast(pa.string())
                )
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
        self.kept = None
        unit = self._stream.time_unit
        if isinstance(rows, Row) and latest is None:
            time = rows.values[self._stream.event_time]
            if self._first <= time <= self._last:
                return np.array((time * unit,), np.int64), rows
        elif isinstance(rows, Batch) and latest is None:
            few: Int64s = rows.vector(self._stream.event_time, self._time_type).values
            if few.min() >= self._first and few.max() <= self._last:
                return few.astype(np.int64, copy=False) * unit, rows
        batch = arrow_of(rows)
        for name in self._required:
            column = batch.column(name)
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                batch = self._without(batch, nulls, repeat(f"{name} is NULL"))
        column = batch.column(self._stream.event_time)
        times: Int64s = numpy_of(column, self._time_type).astype(np.int64, copy=False)
        if len(times) and not self._are_within(times):
            beyond = (times > self._last) | (times < self._first)
            counted = self._time_type is not SqlType.TIMESTAMP
            batch = self._without(batch, beyond, (outside(t, unit, counted=counted) for t in times[beyond].tolist()))
            times = times[~beyond]
        if unit != 1:
            times = times * unit
        if latest is not None:
            ahead = times > latest
            if ahead.any():
                batch = self._without(batch, ahead, repeat("event time is too far ahead of the clock"))
                times = times[~ahead]
        return times, batch

    def _are_within(self, times: Int64s) -> bool:
        """Whether there is an event time for each of these numbers, of which there is one at least."""
        if rises(times):
            return bool(self._first <= times[0] and times[-1] <= self._last)
        return bool(times.min() >= self._first and times.max() <= self._last)

    def _without(self, batch: pa.RecordBatch, bad: Bools, reasons: Iterable[str]) -> pa.RecordBatch:
        """The rows that are not bad; each other is rejected with its own reason."""
        passing = ~bad
        if self.kept is None:
            self.kept = passing
        else:
            self.kept[self.kept] = passing
        for row, reason in zip(readable(batch.filter(pa.array(bad))), reasons, strict=False):
            self._reject(f"stream {self._stream.name}: {reason}", row)
        return batch.filter(pa.array(passing))


_ENCODED = pa.dictionary(pa.int32(), pa.string())
"""Strings with their dictionary, as the engine has them."""

_HEAVY = 1 << 24
"""Events with so many bytes of text, as far as the first one shows, are taken a few at a time."""

_FEW = 64
"""Up to so many events Python is faster than Arrow."""

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


_WHOLE = (SqlType.TINYINT, SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT, SqlType.TIMESTAMP, SqlType.DATE)


def _refuse_fractions(values: list[Any]) -> None:
    """Arrow would cut them off."""
    for value in values:
        if isinstance(value, float | np.floating) and not float(value).is_integer():
            raise ValueError(f"{value} is not a whole number")


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


def holds_columns(data: dict[str, Any]) -> bool:
    """Whether a dict maps names to columns, not to the values of one event."""
    return bool(data) and all(isinstance(v, Sized) and not isinstance(v, str | bytes | Mapping) for v in data.values())


def _encodes(arrow: pa.DataType, kind: SqlType) -> bool:
    """Dictionary-encoded strings stay so: groups are found faster that way."""
    if kind is not SqlType.STRING or not pa.types.is_dictionary(arrow):
        return False
    text = arrow.value_type
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text) or pa.types.is_string_view(text))


def _has_its_entries(column: pa.DictionaryArray) -> bool:
    """Whether each row has an entry of the dictionary. False stands for a column that Arrow has to check: it takes
    several times as long."""
    if column.indices.null_count or not len(column):
        return False
    codes = column.indices.to_numpy()
    return bool(codes.min() >= 0 and codes.max() < len(column.dictionary))


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
