"""The columns an expression is computed on: numpy values, a validity mask, and the rows that failed.

A number, boolean, date or time is a numpy array of its storage width (BOOLEAN: numpy bool); a STRING is an Arrow array
or scalar. Invariants that every function of the evaluator keeps:

1. `values`, `valid` and `errors` have one entry per row, or one entry (Arrow: a scalar) when all rows have the same.
2. `valid` is None where no row is NULL. Under a NULL `values` may hold anything; a STRING is NULL in Arrow too.
3. `errors` is None where no row failed, else the code of the first failure per row and 0 for the others.
   A row that failed is NULL.

Why: docs/decisions/numpy-inside.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import compute as pc
from penstock.errors import BudgetError
from penstock.types import SqlType

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

_DTYPES: dict[SqlType, np.dtype[Any]] = {
    type_: np.dtype(np.bool_) if type_ in (SqlType.BOOLEAN, SqlType.NULL) else type_.storage for type_ in SqlType
}


@dataclass(slots=True)
class Vector:
    values: Any
    valid: Mask | None
    errors: Codes | None = None


Operation = Callable[..., Vector]
"""What a function does to the vectors of its arguments."""

Site = Callable[[str], int]
"""Registers a way the call can fail, by its error class, and gives the code for `fail`."""


@dataclass(frozen=True)
class RowErrors:
    """The rows of a batch that ANSI mode would have raised on; `codes` indexes `reasons`, 0 is no error."""

    codes: Codes
    reasons: tuple[str, ...]

    @property
    def mask(self) -> Mask:
        mask: Mask = self.codes != 0
        return mask

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.codes)

    def reason(self, row: int) -> str | None:
        code = int(self.codes[row])
        return self.reasons[code - 1] if code else None


class Evaluated:
    """What an expression is for each row of a batch: Arrow for the edges, numpy for operators."""

    __slots__ = ("_length", "_reasons", "_type", "_vector")

    def __init__(self, vector: Vector, type_: SqlType, length: int, reasons: tuple[str, ...]) -> None:
        self._vector = vector
        self._type = type_
        self._length = length
        self._reasons = reasons

    @property
    def type(self) -> SqlType:
        return self._type

    @property
    def values(self) -> pa.Array:
        """The values as Arrow, NULL where the row failed."""
        return to_arrow(self._vector, self._type, self._length)

    @property
    def held(self) -> Any:
        """The column in whatever form it is at hand: a vector, an Arrow array, or the Python strings of a few rows."""
        return self._vector

    @property
    def errors(self) -> RowErrors | None:
        codes = self._vector.errors
        if codes is None or self._length == 0:
            return None
        codes = _spread(codes, self._length)
        return RowErrors(codes, self._reasons) if codes.any() else None

    @property
    def only(self) -> Any:
        """The value of the only row, as something hashable: equal values are equal, and NULL is None."""
        values, valid = self._vector.values, self._vector.valid
        if valid is not None and not valid[0]:
            return None
        return values.item(0) if isinstance(values, np.ndarray) else self.values[0].as_py()

    @property
    def columns(self) -> tuple[Array, Mask | None]:
        """Storage values and validity (None: no NULL) of a fixed-width result; BOOLEAN comes as numpy bool."""
        valid = self._vector.valid
        values = _spread(self._vector.values, self._length)
        return values, None if valid is None else _spread(valid, self._length)

    @property
    def true(self) -> Mask:
        """The rows a BOOLEAN is TRUE for: what WHERE keeps."""
        values, valid = self.columns
        return values if valid is None else values & valid


class ColumnView(Evaluated):
    """A bare column reference: the batch's own array, whatever its encoding."""

    __slots__ = ("_array",)

    def __init__(self, array: pa.Array, type_: SqlType) -> None:
        super().__init__(_PENDING, type_, len(array), ())
        self._array = array

    @property
    def values(self) -> pa.Array:
        return self._array

    @property
    def held(self) -> Any:
        return self._array

    @property
    def only(self) -> Any:
        only = self._array[0]
        # A time's integer: Python's calendar does not reach as far.
        return only.value if self._type in (SqlType.TIMESTAMP, SqlType.DATE) else only.as_py()

    @property
    def columns(self) -> tuple[Array, Mask | None]:
        vector = from_arrow(self._array, self._type)
        return vector.values, vector.valid


class TextView(Evaluated):
    """A reference to a STRING column that is held as Python strings."""

    __slots__ = ("_strings",)

    def __init__(self, strings: list[str | None]) -> None:
        super().__init__(_PENDING, SqlType.STRING, len(strings), ())
        self._strings = strings

    @property
    def values(self) -> pa.Array:
        return strings(self._strings)

    @property
    def held(self) -> Any:
        return self._strings

    @property
    def only(self) -> Any:
        return self._strings[0]


_PENDING = Vector(None, None)


def _spread(values: Array, length: int) -> Array:
    """One entry per row; numpy's own broadcast is slow for the single rows of per-event queries."""
    return values if len(values) == length else np.broadcast_to(values, (length,))


def text(values: Any, errors: Codes | None = None) -> Vector:
    """A STRING vector, its mask read from Arrow."""
    if isinstance(values, pa.Scalar):
        return Vector(values, None if values.is_valid else np.zeros(1, np.bool_), errors)
    if values.null_count == 0:
        return Vector(values, None, errors)
    return Vector(values, values.is_valid().to_numpy(zero_copy_only=False), errors)


def constant(value: object, type_: SqlType) -> Vector:
    if type_ is SqlType.STRING:
        return text(pa.scalar(value, pa.string()))
    if value is None:
        return Vector(np.zeros(1, _DTYPES[type_]), np.zeros(1, np.bool_))
    return Vector(np.array([value], _DTYPES[type_]), None)


def numbers(values: Sequence[Any], type_: SqlType) -> Vector:
    """A column of Python values, None for NULL, of a type that is not STRING."""
    if None not in values:
        return Vector(np.array(values, _DTYPES[type_]), None)
    valid = np.array([value is not None for value in values], np.bool_)
    return Vector(np.array([0 if value is None else value for value in values], _DTYPES[type_]), valid)


_FEW = 16


def strings(values: list[Any]) -> pa.Array:
    """A builder takes few strings sooner than `pa.array` does, which besides imports pandas where there is one."""
    if len(values) > _FEW:
        return pa.array(values, pa.string())
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish()


def from_arrow(array: pa.Array, type_: SqlType) -> Vector:
    if type_ is SqlType.STRING:
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        return text(array if array.type == pa.string() else array.cast(pa.string()))
    if array.type != type_.arrow:
        array = array.cast(type_.arrow)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return Vector(numpy_of(array, type_), valid)


def numpy_of(array: pa.Array, type_: SqlType) -> Array:
    """The storage values of a fixed-width Arrow array, whatever is under its NULLs."""
    length = len(array)
    if type_ is SqlType.NULL or length == 0:
        return np.zeros(length, _DTYPES[type_])
    if type_ is SqlType.BOOLEAN:
        bits = np.frombuffer(array.buffers()[1], np.uint8)
        offset = array.offset
        return np.unpackbits(bits[: (offset + length + 7) // 8], bitorder="little")[offset : offset + length].view(
            np.bool_
        )
    whole: Array = np.frombuffer(array.buffers()[1], _DTYPES[type_])
    return whole[array.offset : array.offset + length]


def to_arrow(vector: Vector, type_: SqlType, length: int) -> pa.Array:
    values, valid = vector.values, vector.valid
    if type_ is SqlType.NULL:
        return pa.nulls(length)
    if type_ is SqlType.STRING:
        return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values
    values = _spread(values, length)
    if type_ is SqlType.BOOLEAN:
        data = _bits(values)
    else:
        dtype = _DTYPES[type_]
        is_plain = values.dtype is dtype and values.flags.c_contiguous
        data = pa.py_buffer(values if is_plain else np.ascontiguousarray(values, dtype))
    # `pa.array` of a numpy array imports pandas where there is one, which takes longer than all else at the start.
    mask = None if valid is None else _bits(_spread(valid, length))
    return pa.Array.from_buffers(type_.arrow, length, [mask, data])


def _bits(mask: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def both(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None:
        return second
    return first if second is None else first & second


def all_valid(vectors: Iterable[Vector]) -> Mask | None:
    valid: Mask | None = None
    for vector in vectors:
        valid = both(valid, vector.valid)
    return valid


def strict_errors(vectors: Sequence[Vector]) -> Codes | None:
    """Arguments count from left to right up to the first NULL, as Spark evaluates them."""
    codes: Codes | None = None
    reached: Mask | None = None
    for vector in vectors:
        if vector.errors is not None:
            counted = vector.errors if reached is None else np.where(reached, vector.errors, np.int32(0))
            codes = counted if codes is None else np.where(codes != 0, codes, counted)
        reached = both(reached, vector.valid)
    return codes


def fail(vector: Vector, failed: Mask, code: int) -> Vector:
    """The vector with the rows of `failed` (those not NULL already) turned into errors."""
    if vector.valid is not None:
        failed = failed & vector.valid
    if not failed.any():
        return vector
    codes = np.where(failed, np.int32(code), np.int32(0) if vector.errors is None else vector.errors)
    values = vector.values if isinstance(vector.values, np.ndarray) else null_text(vector.values, failed)
    return Vector(values, both(vector.valid, ~failed), codes)


def text_rows(values: Any) -> list[Any]:
    """The rows of a vector's values as Python objects; one for a constant."""
    if isinstance(values, pa.Scalar):
        return [values.as_py()]
    rows: list[Any] = values.to_pylist() if isinstance(values, pa.Array) else values.tolist()
    return rows


def by_row(function: Callable[..., object], *columns: Any) -> list[Any]:
    """The function of each distinct combination of arguments, spread over the rows; NULL text gives None.

    For what neither Arrow nor numpy can do: it costs Python once per row to look up and once per distinct value.
    """
    known: dict[tuple[Any, ...], object] = {}
    lists = [text_rows(column) for column in columns]
    length = np.broadcast_shapes(*((len(rows),) for rows in lists))[0]
    results = []
    for row in zip(*(rows if len(rows) == length else rows * length for rows in lists), strict=True):
        if row not in known:
            known[row] = None if None in row else function(*row)
        results.append(known[row])
    return results


MOST_TOGETHER = 1 << 29
"""So many characters fit a column of text for sure."""


def check_total(characters: int) -> None:
    if characters > MOST_TOGETHER:
        raise BudgetError(
            f"a text function gives {characters:,} characters for the rows of one step, and at most {MOST_TOGETHER:,} "
            "can be held at once\n  hint: push fewer rows at a time, or make shorter texts"
        )


def text_by_row(function: Callable[..., str | None], *columns: Any) -> Any:
    """`by_row` for functions that give text: a scalar when all arguments are constants."""
    rows = by_row(function, *columns)
    check_total(sum(map(len, filter(None, rows))))
    array = pa.array(rows, pa.string())
    return array[0] if all(isinstance(c, pa.Scalar) or len(c) == 1 for c in columns) and len(array) == 1 else array


def strict(kernel: Callable[..., Any]) -> Operation:
    """An operation on values that cannot fail; NULL in, NULL out."""

    def run(*args: Vector) -> Vector:
        return Vector(kernel(*[a.values for a in args]), all_valid(args), strict_errors(args))

    return run


def checked(kernel: Callable[..., tuple[Any, Mask | None]], code: int) -> Operation:
    """An operation that also says which rows failed (None: it looked and there were none)."""

    def run(*args: Vector) -> Vector:
        values, failed = kernel(*[a.values for a in args])
        vector = Vector(values, all_valid(args), strict_errors(args))
        return vector if failed is None else fail(vector, failed, code)

    return run


def strict_text(kernel: Callable[..., Any]) -> Operation:
    """A `strict` operation that gives text; Arrow carries NULLs of text arguments, the others are put in here."""

    def run(*args: Vector) -> Vector:
        values = kernel(*[a.values for a in args])
        errors = strict_errors(args)
        hidden = all_valid(a for a in args if isinstance(a.values, np.ndarray))
        return text(values if hidden is None else null_text(values, ~hidden), errors)

    return run


def checked_text(kernel: Callable[..., tuple[Any, Mask | None]], code: int) -> Operation:
    """A `strict_text` operation that also says which rows failed."""

    def run(*args: Vector) -> Vector:
        failed: Mask | None = None

        def values(*columns: Any) -> Any:
            nonlocal failed
            found, failed = kernel(*columns)
            return found

        vector = strict_text(values)(*args)
        return vector if failed is None else fail(vector, failed, code)

    return run


def null_text(values: Any, rows: Mask) -> Any:
    """Text with NULL in the given rows; a constant stays one only if the mask is one."""
    nulled = pc.if_else(pa.array(rows), pa.scalar(None, pa.string()), values)
    return nulled[0] if len(rows) == 1 and isinstance(values, pa.Scalar) else nulled


def select(taken: Mask, then: Vector, otherwise: Vector) -> Vector:
    """Each row of `then` or `otherwise`, value and error alike."""
    if len(taken) == 1:
        return then if taken[0] else otherwise
    valid = None
    if then.valid is not None or otherwise.valid is not None:
        valid = np.where(
            taken, True if then.valid is None else then.valid, True if otherwise.valid is None else otherwise.valid
        )
    errors = None
    if then.errors is not None or otherwise.errors is not None:
        none = np.int32(0)
        errors = np.where(
            taken, none if then.errors is None else then.errors, none if otherwise.errors is None else otherwise.errors
        )
    if isinstance(then.values, np.ndarray):
        return Vector(np.where(taken, then.values, otherwise.values), valid, errors)
    return Vector(pc.if_else(pa.array(taken), then.values, otherwise.values), valid, errors)
