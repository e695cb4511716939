"""Rows as the evaluator holds them (`expressions.batch`): some of them, several runs as one, columns without values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.vector import Vector
from penstock.operators.chunk import Chunk


def taken(rows: Chunk, places: Int64s) -> Chunk:
    """Some rows, any number of times."""
    batch = _held(rows)
    indices = pa.array(places)
    data: dict[str, Data] = {}
    for name in batch.names:
        column = batch.data(name)
        if isinstance(column, Vector):
            data[name] = Vector(column.values[places], None if column.valid is None else column.valid[places])
        else:
            data[name] = _array(column).take(indices)
    return Chunk(rows.times[places], Batch(batch.kinds, data, len(places)))


def joined_rows(first: Chunk, second: Chunk) -> Chunk:
    """The rows of two runs with the same columns, one after the other."""
    one, other = _held(first), _held(second)
    data: dict[str, Data] = {}
    for name in one.names:
        columns = [one.column(name), other.column(name)]
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in columns]
        data[name] = pa.concat_arrays(columns)
    times = np.concatenate([first.times, second.times])
    return Chunk(times, Batch(one.kinds, data, len(times)))


def emptied(column: Data, there: Bools) -> Data:
    """The column with NULL where there is nothing."""
    if isinstance(column, Vector):
        return Vector(column.values, there if column.valid is None else column.valid & there)
    array = _array(column)
    return pc.if_else(pa.array(there), array, pa.scalar(None, array.type))


def _held(rows: Chunk) -> Batch:
    assert isinstance(rows.columns, Batch)
    return rows.columns


def _array(column: pa.Array | list[str | None]) -> pa.Array:
    return pa.array(column, pa.string()) if isinstance(column, list) else column
