"""Making columns that were read fit the declared ones: which types may stand for which, and which rows do not fit.

The whole must fit before the first row is read (`check_types`); a single value that does not (an integer too large
for its column, a NULL where none may be) takes its row out (`conform`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.connect.source import Reading, Reject
from penstock.errors import InputError
from penstock.types import Schema, SqlType


def match_names(declared: Schema, found: Sequence[str], where: str) -> dict[str, int]:
    """The index in `found` of each declared column: by its exact name, else regardless of case."""
    exact = {name: i for i, name in reversed(list(enumerate(found)))}
    lowered = {name.lower(): i for i, name in reversed(list(enumerate(found)))}
    places = {f.name: exact.get(f.name, lowered.get(f.name.lower())) for f in declared}
    for name, place in places.items():
        if place is None:
            raise InputError(f"{where}: column '{name}' is missing; there are {', '.join(found) or 'none'}")
    return {name: place for name, place in places.items() if place is not None}


def check_types(declared: Schema, found: Mapping[str, pa.DataType], where: str) -> None:
    """Refuses a column whose type can never stand for the declared one."""
    for field in declared:
        if not can_become(found[field.name], field.type):
            raise InputError(
                f"{where}: column '{field.name}' is {found[field.name]} there and {field.type} in CREATE STREAM; "
                "declare it as it is and CAST it in the query"
            )


def can_become(found: pa.DataType, declared: SqlType) -> bool:
    """Whether values of an Arrow type may be read as a declared type without changing what they mean."""
    if pa.types.is_dictionary(found):
        return can_become(found.value_type, declared)
    if pa.types.is_null(found):
        return True
    if declared.is_integer:
        return bool(pa.types.is_integer(found))
    if declared.is_floating:
        return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))
    if declared is SqlType.STRING:
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))
    if declared is SqlType.TIMESTAMP:
        return bool(pa.types.is_timestamp(found))
    if declared is SqlType.DATE:
        return bool(pa.types.is_date(found))
    return bool(found == declared.arrow)


def conform(
    table: pa.Table | pa.RecordBatch,
    reading: Reading,
    where: str,
    rows: NDArray[np.int64],
    raw: Callable[[int], str] | None = None,
) -> tuple[pa.RecordBatch, list[Reject]]:
    """Casts the columns to the declared types and takes out the rows that do not fit.

    `rows[i]` is the number of row i for the report, `raw(i)` its text; without `raw` the row is told as JSON.
    A row whose text is blank is dropped without a report.
    """
    arrays: list[pa.Array] = []
    bad = np.zeros(table.num_rows, bool)
    reasons: dict[int, str] = {}

    def refuse(mask: NDArray[np.bool_], reason: str) -> None:
        for i in np.flatnonzero(mask & ~bad):
            reasons[int(i)] = reason
        bad[mask] = True

    for field in reading.fields:
        array = _one_array(table.column(field.name))
        cast, misfits = _cast(array, field.type.arrow)
        if misfits is not None:
            refuse(misfits, f"value of column '{field.name}' does not fit {field.type}")
        if field.name in reading.required and cast.null_count:
            refuse(_nulls(cast), f"column '{field.name}' is NULL")
        arrays.append(cast)
    batch = pa.record_batch(arrays, schema=reading.schema)
    if not reasons:
        return batch, []
    rejects = []
    for i in sorted(reasons):
        text = raw(i) if raw else json.dumps(_row(table, i), default=str)
        if text.strip():
            rejects.append(Reject(where, int(rows[i]), reasons[i], text))
    return batch.filter(pa.array(~bad)), rejects


def empty_batch(reading: Reading) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=reading.schema)


def _row(table: pa.Table | pa.RecordBatch, i: int) -> dict[str, object]:
    return {name: _python(table.column(name)[i]) for name in table.schema.names}


def _python(value: pa.Scalar) -> object:
    """Times that Python's calendar does not know stay numbers."""
    try:
        found: object = value.as_py()
    except (OverflowError, ValueError):
        found = value.value
    return found


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), bool)


def _cast(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """The array in the target type, and which values have no place in it (those become NULL)."""
    if array.type == target:
        return array, None
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    options = pc.CastOptions(target, allow_time_truncate=True, allow_decimal_truncate=True)
    try:
        return pc.cast(array, options=options), None
    except pa.ArrowInvalid:
        loose = pc.cast(array, target, safe=False)
        same = pc.equal(pc.cast(loose, array.type, safe=False), array)
        misfits = ~np.asarray(pc.fill_null(same, True).to_numpy(zero_copy_only=False), bool)
        return pc.if_else(pa.array(~misfits), loose, pa.scalar(None, target)), misfits
