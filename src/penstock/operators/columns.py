"""Between Arrow columns and the fixed-width numpy columns that stores and kernels work on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Values
from penstock.arrays import Bools, Int64s
from penstock.expressions.vector import Evaluated, TextView, Vector
from penstock.operators.interner import Interner
from penstock.types import SqlType

_QUIET_NAN = np.int64(0x7FF8000000000000)


def validity(column: pa.Array | list[str | None]) -> Bools | None:
    """True where there is a value; None when there is no NULL."""
    if isinstance(column, list):
        return None if None not in column else np.array([s is not None for s in column], np.bool_)
    if column.null_count == 0:
        return None
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def to_argument(column: Evaluated, kind: SqlType, interner: Interner | None) -> Argument:
    """The column in its storage type (see SqlType.storage); the value at a NULL is arbitrary."""
    if interner is not None:
        strings = column.held if isinstance(column, TextView) else column.values
        return Argument(interner.encode(strings), validity(strings))
    values, valid = column.columns
    return Argument(values.astype(kind.storage, copy=False), valid)


def without_codes(column: Evaluated, rows: int) -> Argument:
    """A column of strings of which only the validity is told."""
    strings = column.held if isinstance(column, TextView) else column.values
    return Argument(np.zeros(rows, np.int32), validity(strings))


def texts_without_codes(column: Argument) -> pa.Array:
    """Such a column as strings, for what reads only their validity."""
    empty = np.full(len(column.values), "", object)
    return pa.array(empty, pa.string(), mask=None if column.valid is None else ~column.valid)


def to_data(values: Values, valid: Bools | None, kind: SqlType, interner: Interner | None) -> Vector | pa.Array:
    """The inverse of `to_argument`: a column as the evaluator takes it."""
    if interner is None:
        wanted = np.bool_ if kind in (SqlType.BOOLEAN, SqlType.NULL) else kind.storage
        return Vector(values.astype(wanted, copy=False), valid)
    if valid is None:
        return interner.decode(values)
    present = interner.decode(values[valid])
    return present.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def image(
    column: Evaluated, kind: SqlType, interner: Interner | None, *, only_known: bool = False
) -> tuple[Int64s, Bools | None]:
    """Each value as one int64: equal values, equal images. NaN is one value and -0.0 is 0.0, as in Spark's grouping.
    With `only_known` strings that the interner does not know are as NULLs. What stands in place of a NULL means
    nothing."""
    if interner is not None and only_known:
        strings = column.held if isinstance(column, TextView) else column.values
        codes = interner.find(strings)
        known = codes >= 0
        valid = validity(strings)
        if valid is not None:
            known &= valid
        return codes.astype(np.int64), None if known.all() else known
    return image_of(to_argument(column, kind, interner), kind)


def image_of(column: Argument, kind: SqlType) -> tuple[Int64s, Bools | None]:
    """The same of a stored column; texts are codes of one interner."""
    values, valid = column
    if kind.is_floating:
        doubles = values.astype(np.float64) + 0.0
        bits = doubles.view(np.int64)
        nan = np.isnan(doubles)
        return (np.where(nan, _QUIET_NAN, bits) if nan.any() else bits), valid
    return values.astype(np.int64, copy=False), valid


def from_images(images: Int64s, valid: Bools | None, kind: SqlType, interner: Interner | None) -> Vector | pa.Array:
    """The inverse of `image`."""
    if kind.is_floating:
        return to_data(images.view(np.float64), valid, kind, None)
    return to_data(images.astype(kind.storage), valid, kind, interner)
