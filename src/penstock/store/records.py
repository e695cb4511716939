"""Rows as records of whole 64-bit words, for kernels that move rows one at a time.

Columns have many types, and a kernel is compiled for one: so a record is laid out here, field by field, and moved
there as `words` integers. Validity is one byte per nullable column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.columns import Argument
from penstock.store.blocks import ColumnSpec

Words = NDArray[np.int64]
"""Records: one row each, `words` columns."""


class RecordLayout:
    """Where the columns lie in a record. The first column is 64 bits wide and is the first word.

    >>> columns = [ColumnSpec("time", np.dtype(np.int64), False), ColumnSpec("v", np.dtype(np.int32), True)]
    >>> layout = RecordLayout(columns)
    >>> values = Argument(np.array([7, 8], np.int32), np.array([True, False]))
    >>> records = layout.pack([Argument(np.arange(2), None), values])
    >>> records.shape
    (2, 2)
    >>> layout.unpack(records)[1]
    Argument(values=array([7, 8], dtype=int32), valid=array([ True, False]))
    """

    def __init__(self, columns: Sequence[ColumnSpec]) -> None:
        assert columns[0].dtype.itemsize == 8
        self._nullable = [column.nullable for column in columns]
        fields = [(f"c{i}", column.dtype) for i, column in enumerate(columns)]
        fields += [(f"v{i}", np.dtype(np.bool_)) for i, nullable in enumerate(self._nullable) if nullable]
        fields.sort(key=lambda field: -field[1].itemsize)  # stable: the first column stays first
        offsets = np.cumsum([0, *(dtype.itemsize for _, dtype in fields)])
        self.words = -(-int(offsets[-1]) // 8)
        self._dtype = np.dtype(
            {
                "names": [name for name, _ in fields],
                "formats": [dtype for _, dtype in fields],
                "offsets": offsets[:-1].tolist(),
                "itemsize": 8 * self.words,
            }
        )

    def word_of(self, column: int) -> int:
        """Which word a column of 64 bits is."""
        offsets = self._dtype.fields
        assert offsets is not None
        return int(offsets[f"c{column}"][1]) // 8

    def empty(self, rows: int) -> Words:
        return np.empty((rows, self.words), np.int64)

    def pack(self, columns: Sequence[Argument]) -> Words:
        """The records of rows given as columns."""
        words = self.empty(len(columns[0].values))
        records = words.view(self._dtype)[:, 0]
        for i, (values, valid) in enumerate(columns):
            records[f"c{i}"] = values
            if self._nullable[i]:
                records[f"v{i}"] = True if valid is None else valid
        return words

    def unpack(self, words: Words) -> tuple[Argument, ...]:
        """The columns of records, each in memory of its own."""
        records = words.view(self._dtype)[:, 0]
        columns = []
        for i, nullable in enumerate(self._nullable):
            valid = None
            if nullable and not records[f"v{i}"].all():
                valid = records[f"v{i}"].copy()
            columns.append(Argument(records[f"c{i}"].copy(), valid))
        return tuple(columns)
