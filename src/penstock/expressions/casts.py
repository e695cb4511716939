"""CAST over columns, as Spark SQL's ANSI mode does it: what does not fit or parse is a failure of the row.

A float becomes an integer by cutting its fraction; a number becomes a TIMESTAMP as seconds and back.
Called by `expressions.evaluate` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.expressions import text_forms
from penstock.expressions.logic import flags
from penstock.expressions.times import DAY, SECOND, floor_days
from penstock.expressions.vector import (
    Array,
    Mask,
    Operation,
    Site,
    Vector,
    by_row,
    checked,
    constant,
    numpy_of,
    strict,
    strict_text,
    text_by_row,
)
from penstock.types import SqlType

_BAD_TEXT = "CAST_INVALID_INPUT"
_OVERFLOW = "CAST_OVERFLOW"
_LONG_BOUND = 2.0**63

_PLAIN_NUMBER = {
    SqlType.BIGINT: r"\A-?[0-9]{1,18}\z",
    SqlType.DOUBLE: r"\A-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?\z",
}
"""Numbers written so that Arrow reads them as Spark does; if a column has only these, it is parsed at once."""


def build_cast(source: SqlType, target: SqlType, site: Site) -> Operation:
    if source is target:
        return lambda arg: arg
    if source is SqlType.NULL:
        nothing = constant(None, target)
        return lambda arg: Vector(nothing.values, nothing.valid, arg.errors)
    if target is SqlType.STRING:
        return strict_text(_WRITERS[source])
    if source is SqlType.STRING:
        return _from_text(target, site)
    if target is SqlType.BOOLEAN:
        return strict(lambda values: values != 0)
    if target is SqlType.DATE:
        return strict(lambda micros: floor_days(micros).astype(np.int32))
    if target is SqlType.TIMESTAMP:
        return _to_timestamp(source, site)
    if source is SqlType.TIMESTAMP:
        return _from_timestamp(target, site)
    return _to_number(source, target, site)


def _to_number(source: SqlType, target: SqlType, site: Site) -> Operation:
    dtype = target.storage
    if (
        target.is_floating
        or source is SqlType.BOOLEAN
        or (source.is_integer and dtype.itemsize > source.storage.itemsize)
    ):
        return strict(lambda values: values.astype(dtype))
    if source.is_integer:

        def narrow(values: Array) -> tuple[Array, Mask]:
            cut = values.astype(dtype)
            return cut, cut != values

        return checked(narrow, site(_OVERFLOW))
    return checked(lambda values: cut_floats(values, dtype), site(_OVERFLOW))


def cut_floats(values: Array, dtype: np.dtype[Any]) -> tuple[Array, Mask]:
    """Integers of floats without their fraction. 2^63 itself counts as the largest BIGINT, as in Java."""
    whole = np.trunc(values).astype(np.float64)
    limits = np.iinfo(dtype)
    failed = ~((whole >= float(limits.min)) & (whole <= float(limits.max)))
    if dtype.itemsize < 8:
        return np.where(failed, 0.0, whole).astype(dtype), failed
    largest = whole >= _LONG_BOUND
    integers = np.where(failed | largest, 0.0, whole).astype(dtype)
    return np.where(largest, limits.max, integers), failed


def _to_timestamp(source: SqlType, site: Site) -> Operation:
    if source is SqlType.DATE:
        limit = (2**63 - 1) // DAY
        return checked(
            lambda days: (days.astype(np.int64) * DAY, np.abs(days.astype(np.int64)) > limit), site("DATETIME_OVERFLOW")
        )
    if source.is_integer:
        return strict(_saturated_micros)
    return checked(lambda seconds: cut_floats(seconds.astype(np.float64) * SECOND, np.dtype(np.int64)), site(_OVERFLOW))


def _saturated_micros(seconds: Array) -> Array:
    """Seconds that do not fit become the first or last TIMESTAMP: Spark does not fail here."""
    wide = seconds.astype(np.int64)
    limit = (2**63 - 1) // SECOND
    micros = np.clip(wide, -limit, limit) * SECOND
    return np.where(wide > limit, 2**63 - 1, np.where(wide < -limit, -(2**63), micros))


def _from_timestamp(target: SqlType, site: Site) -> Operation:
    if target.is_floating:
        return strict(lambda micros: (micros / SECOND).astype(target.storage))
    seconds = strict(lambda micros: micros // SECOND)
    if target is SqlType.BIGINT:
        return seconds
    narrow = _to_number(SqlType.BIGINT, target, site)
    return lambda arg: narrow(seconds(arg))


def _write_by_arrow(type_: SqlType) -> Callable[[Array], pa.Array]:
    return lambda values: _unless_constant(pc.cast(pa.array(values, type_.arrow), pa.string()))


def _unless_constant(array: pa.Array) -> Any:
    """Text of one row is a scalar, so that it combines with columns of any length."""
    return array[0] if len(array) == 1 else array


def _write_each(function: Callable[..., str]) -> Callable[[Array], Any]:
    return lambda values: text_by_row(function, values)


def _write_float32(values: Array) -> Any:
    return _unless_constant(pa.array([text_forms.write_float(value) for value in values], pa.string()))


_WRITERS: dict[SqlType, Callable[[Array], Any]] = {
    SqlType.BOOLEAN: _write_by_arrow(SqlType.BOOLEAN),
    SqlType.TINYINT: _write_by_arrow(SqlType.TINYINT),
    SqlType.SMALLINT: _write_by_arrow(SqlType.SMALLINT),
    SqlType.INT: _write_by_arrow(SqlType.INT),
    SqlType.BIGINT: _write_by_arrow(SqlType.BIGINT),
    SqlType.FLOAT: _write_float32,
    SqlType.DOUBLE: lambda values: _unless_constant(
        pa.array([text_forms.write_float(value) for value in values.tolist()], pa.string())
    ),
    SqlType.DATE: _write_each(text_forms.write_date),
    SqlType.TIMESTAMP: _write_each(text_forms.write_timestamp),
}


def _from_text(target: SqlType, site: Site) -> Operation:
    bad = site(_BAD_TEXT)
    if target is SqlType.BOOLEAN:
        return checked(_reader(text_forms.read_boolean, np.dtype(np.bool_)), bad)
    if target is SqlType.DATE:
        return checked(_reader(text_forms.read_date, target.storage), bad)
    if target is SqlType.TIMESTAMP:
        return checked(_reader(text_forms.read_timestamp, target.storage), bad)
    if target.is_floating:
        return checked(_fast_reader(text_forms.read_double, SqlType.DOUBLE, target.storage), bad)
    limits = np.iinfo(target.storage.name)

    def read_within(written: str) -> int | None:
        value = text_forms.read_integer(written)
        return value if value is not None and limits.min <= value <= limits.max else None

    if target is SqlType.BIGINT:
        return checked(_fast_reader(read_within, SqlType.BIGINT, target.storage), bad)
    return checked(_reader(read_within, target.storage), bad)


def _reader(function: Callable[[str], Any], dtype: np.dtype[Any]) -> Callable[[Any], tuple[Array, Mask]]:
    def kernel(values: Any) -> tuple[Array, Mask]:
        read = by_row(function, values)
        failed = np.array([value is None for value in read], np.bool_)
        return np.array([0 if value is None else value for value in read]).astype(dtype), failed

    return kernel


def _fast_reader(
    function: Callable[[str], Any], read_as: SqlType, dtype: np.dtype[Any]
) -> Callable[[Any], tuple[Array, Mask | None]]:
    slow = _reader(function, dtype)
    matches, options = pc.get_function("match_substring_regex"), pc.MatchSubstringOptions(_PLAIN_NUMBER[read_as])

    def kernel(values: Any) -> tuple[Array, Mask | None]:
        if isinstance(values, pa.Array) and not values.null_count and flags(matches.call([values], options)).all():
            return numpy_of(pc.cast(values, read_as.arrow), read_as).astype(dtype, copy=False), None
        return slow(values)

    return kernel
