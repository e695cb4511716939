"""Between Arrow columns and the fixed-width numpy columns that stores and kernels work on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Bools, Int64s, Values
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.operators.interner import Interner
from penstock.types import SqlType

_QUIET_NAN = np.int64(0x7FF8000000000000)


def validity(column: pa.Array) -> Bools | None:
    """True where there is a value; None when there is no NULL."""
    if column.null_count == 0:
        return None
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def to_argument(column: Evaluated, kind: SqlType, interner: Interner | None) -> Argument:
    """The column in its storage type (see SqlType.storage); what stands in place of a NULL means nothing."""
    if interner is not None:
        values = column.values
        return Argument(interner.encode(values), validity(values))
    values, valid = column.columns
    return Argument(values.astype(kind.storage, copy=False), valid)


def to_arrow(values: Values, valid: Bools | None, kind: SqlType, interner: Interner | None) -> pa.Array:
    """The inverse of `to_argument`."""
    mask = None if valid is None else ~valid
    if kind is SqlType.NULL:
        return pa.nulls(len(values))
    if interner is not None:
        if mask is None:
            return interner.decode(values)
        present = interner.decode(values[valid])
        where = np.cumsum(valid) - 1
        return present.take(pa.array(where, mask=mask))
    if kind is SqlType.BOOLEAN:
        return pa.array(values != 0, mask=mask)
    array = pa.array(values, mask=mask)
    if array.type != kind.arrow:
        storage = pa.from_numpy_dtype(kind.storage)
        if array.type != storage:
            array = array.cast(storage)
        array = array.view(kind.arrow) if kind in (SqlType.TIMESTAMP, SqlType.DATE) else array
    return array


def image(column: pa.Array, kind: SqlType, interner: Interner | None) -> tuple[Int64s, Bools | None]:
    """Each value as one int64: equal values, equal images. NaN is one value and -0.0 is 0.0, as in Spark's grouping."""
    values, valid = to_argument(ColumnView(column, kind), kind, interner)
    if kind.is_floating:
        doubles = values.astype(np.float64) + 0.0
        bits = doubles.view(np.int64)
        nan = np.isnan(doubles)
        return (np.where(nan, _QUIET_NAN, bits) if nan.any() else bits), valid
    return values.astype(np.int64, copy=False), valid


def from_images(images: Int64s, valid: Bools | None, kind: SqlType, interner: Interner | None) -> pa.Array:
    """The inverse of `image`."""
    if kind.is_floating:
        return to_arrow(images.view(np.float64).astype(kind.storage), valid, kind, None)
    return to_arrow(images.astype(kind.storage), valid, kind, interner)
