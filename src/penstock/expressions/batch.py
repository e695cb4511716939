"""Named columns of equal length as the evaluator reads them: numpy inside, Arrow only where a caller asks for it.

An Arrow record batch does as well wherever a `Batch` is read; this is for columns that never were Arrow (the results
of kernels) and for single events, whose way through Arrow would cost more than the query.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.expressions.vector import Vector, constant, from_arrow, numbers, strings, text, to_arrow
from penstock.types import SqlType

Data: TypeAlias = Vector | pa.Array | list[Any]
"""A column: numpy values, an Arrow array, or the Python strings of a few rows."""


_OBJECTS = 256
"""What the objects of a batch or of a column take, about."""


_VALUE = 96
"""What a value of a single row takes: the object, and its place in the dict."""


class Batch:
    __slots__ = ("_arrow", "_data", "kinds", "num_rows")

    def __init__(self, kinds: Mapping[str, SqlType], data: dict[str, Data], num_rows: int) -> None:
        self.kinds = kinds
        self._data = data
        self._arrow: pa.RecordBatch | None = None
        self.num_rows = num_rows

    @property
    def names(self) -> list[str]:
        return list(self._data)

    @property
    def nbytes(self) -> int:
        """What the columns take, about, with the objects that they are in."""
        total = _OBJECTS
        for data in self._data.values():
            if isinstance(data, Vector):
                total += _OBJECTS + data.values.nbytes + (0 if data.valid is None else data.valid.nbytes)
            else:
                total += _OBJECTS + (sum(map(_text_bytes, data)) if isinstance(data, list) else data.nbytes)
        return total

    def with_columns(self, data: dict[str, Data], kinds: Mapping[str, SqlType] | None = None) -> Batch:
        """The same rows with more columns, or others of the same name. `kinds` has those that are new."""
        return Batch({**self.kinds, **kinds} if kinds else self.kinds, self._data | data, self.num_rows)

    def only(self, names: Set[str]) -> Batch:
        """The same rows without the other columns."""
        return Batch(self.kinds, {name: data for name, data in self._data.items() if name in names}, self.num_rows)

    def prefixed(self, prefix: str) -> Batch:
        """The same columns with longer names."""
        kinds = {prefix + name: self.kinds[name] for name in self._data}
        return Batch(kinds, dict(zip(kinds, self._data.values(), strict=True)), self.num_rows)

    def data(self, name: str) -> Data:
        """The column as it is held."""
        return self._data[name]

    def vector(self, name: str, kind: SqlType) -> Vector:
        data = self.data(name)
        if isinstance(data, Vector):
            return data
        return text(strings(data)) if isinstance(data, list) else from_arrow(data, kind)

    def column(self, name: str) -> pa.Array:
        data = self.data(name)
        if isinstance(data, Vector):
            return to_arrow(data, self.kinds[name], self.num_rows)
        return strings(data) if isinstance(data, list) else data

    def to_arrow(self) -> pa.RecordBatch:
        """Made once: rows that are rejected ask for it one after the other."""
        if self._arrow is None:
            columns = {name: self.column(name) for name in self.names} or {"": pa.nulls(self.num_rows)}
            self._arrow = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return self._arrow


class Row(Batch):
    """A single row as Python values (`expressions.scalar`): bool, int, float and str, and None for NULL. A column is
    made of a value when a reader asks for it. The columns are those of `kinds`; `values` may have more names, and is
    shared with other rows: it does not change."""

    __slots__ = ("values",)

    def __init__(self, kinds: Mapping[str, SqlType], values: dict[str, Any]) -> None:
        self.kinds = kinds
        self.values = values
        self.num_rows = 1
        self._data = {}
        self._arrow = None

    @property
    def names(self) -> list[str]:
        return list(self.kinds)

    @property
    def nbytes(self) -> int:
        if SqlType.STRING not in self.kinds.values():
            return _OBJECTS + _VALUE * len(self.values)
        return row_bytes(self.kinds, self.values)

    def with_columns(self, data: dict[str, Data], kinds: Mapping[str, SqlType] | None = None) -> Batch:
        return self._whole().with_columns(data, kinds)

    def prefixed(self, prefix: str) -> Batch:
        return self._whole().prefixed(prefix)

    def _whole(self) -> Batch:
        return Batch(self.kinds, {name: self.data(name) for name in self.kinds}, 1)

    def data(self, name: str) -> Data:
        data = self._data.get(name)
        if data is None:
            value, kind = self.values[name], self.kinds[name]
            data = self._data[name] = [value] if kind is SqlType.STRING else constant(value, kind)
        return data


def row_bytes(kinds: Mapping[str, SqlType], values: Mapping[str, Any]) -> int:
    """What a row takes, about, with the dict that its values are in."""
    texts = [_text_bytes(values[name]) for name, kind in kinds.items() if kind is SqlType.STRING]
    return _OBJECTS + _VALUE * len(values) + sum(texts)


def row_getter(kinds: Mapping[str, SqlType]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Gets the values of these columns of a row, the first once more at the end: of one name alone there would be no
    tuple."""
    names = list(kinds)
    return itemgetter(*names, names[0])


def columns_of_tuples(rows: Sequence[tuple[Any, ...]], kinds: Mapping[str, SqlType]) -> Batch:
    """Rows that `row_getter` has got, as one batch."""
    columns = zip(*rows, strict=True)
    data: dict[str, Data] = {}
    for (name, kind), values in zip(kinds.items(), columns, strict=False):
        data[name] = list(values) if kind is SqlType.STRING else numbers(values, kind)
    return Batch(kinds, data, len(rows))


def _text_bytes(text: str | None) -> int:
    return 8 if text is None else sys.getsizeof(text)


Rows: TypeAlias = pa.RecordBatch | Batch


def arrow_of(rows: Rows) -> pa.RecordBatch:
    return rows.to_arrow() if isinstance(rows, Batch) else rows
