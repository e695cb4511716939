"""Partials: the content of one slot, on its way to another state: to be merged with that of the same group computed
elsewhere, or to be kept until the group is needed again (`operators.paged.group_columns`).

A partial is one Arrow value. All words are 64 bits, little-endian; integers of several words are two's complement, the
lowest word first.

    COUNT             int64: the count
    MIN, MAX          the value in its storage type (a string by its code), NULL if there is none
    SUM of integers   binary: count, sum (2 words)
    SUM of floats     binary: count, base, sum (3 words, in units of 2**(base - 1075))
                      and, where something did not fit that, a row of `wide` (38 words)
    MOMENTS,          binary: base of x, base of y, then the words of `exact_moments` (12, 15 or 27)
    COMOMENTS         and, where something did not fit them, five integers of `wide_products` (68 words each)
    FIRST, LAST,      the row that answers: a mark (0 if there is none, 3 if it has a value, 1 if that is NULL), its key
    ARG_MIN, ARG_MAX  as `deques` compare it, and the image of its value (a string by its code)

A base of 0 means that the sums beside it are zero. Partials of different bases merge exactly. They are read by the
version that wrote them and no other; `VERSION` goes with them, so that another is refused.

The states write and read partials. Code that moves partials sees only Arrow arrays.

Why: docs/decisions/exact-merge.md
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

import numpy as np
import pyarrow as pa

from penstock.aggregates.columns import plain
from penstock.aggregates.kinds import Kind, Partial
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s
from penstock.types import SqlType

VERSION = 1

_WORD = 8
_UINT64 = np.dtype(np.uint64)


def partial_type(kind: Kind, types: tuple[SqlType, ...]) -> pa.DataType:
    """The Arrow type of the partials of a kind of state over arguments of these types.

    >>> from penstock.aggregates.kinds import MIN, SUM
    >>> partial_type(MIN, (SqlType.INT,)), partial_type(SUM, (SqlType.DOUBLE,))
    (DataType(int32), DataType(binary))
    """
    match kind.partial:
        case Partial.NUMBER:
            return pa.int64()
        case Partial.VALUE:
            return pa.from_numpy_dtype(types[0].storage)
        case Partial.PACKED:
            return pa.binary()
        case Partial.ENTRY:
            return entry_type(pa.int64(), pa.int64())
        case None:
            raise AssertionError(f"it is asked first whether {kind.name} has partials")
        case other:
            assert_never(other)


def entry_type(key: pa.DataType, payload: pa.DataType) -> pa.StructType:
    """That of the row that answers."""
    return pa.struct([pa.field("mark", pa.int8()), pa.field("key", key), pa.field("payload", payload)])


class Packed(NamedTuple):
    """Binary partials: partial i is words[starts[i] : starts[i] + sizes[i]]."""

    words: Words
    starts: Int64s
    sizes: Int64s


def pack(regular: Words, which: Int64s, extra: Words) -> pa.Array:
    """Binary partials: each is a row of `regular`; those at `which` (rising) go on with a row of `extra`.

    >>> rows = np.array([[1, 2], [3, 4]], dtype=np.uint64)
    >>> [len(value) for value in pack(rows, np.array([1]), np.array([[5]], dtype=np.uint64)).to_pylist()]
    [16, 24]
    """
    count, width = regular.shape
    sizes = np.full(count, width, np.int64)
    sizes[which] += extra.shape[1]
    ends = np.cumsum(sizes)
    if len(which):
        words = np.empty(int(ends[-1]), np.uint64)
        starts = ends - sizes
        words[starts[:, None] + np.arange(width)] = regular
        words[starts[which][:, None] + np.arange(width, width + extra.shape[1])] = extra
    else:
        words = np.ascontiguousarray(regular).reshape(-1)
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends * _WORD
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(words)])


def unpack(partials: pa.Array) -> Packed:
    """The inverse of `pack`; `words` is a copy that kernels may be called with."""
    count = len(partials)
    _, offsets_buffer, data = partials.buffers()
    if count == 0:
        nothing = np.zeros(0, np.int64)
        return Packed(np.zeros(0, np.uint64), nothing, nothing)
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, partials.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    words = np.frombuffer(data, np.uint64, (last - first) // _WORD, first)
    starts = (offsets.astype(np.int64) - first) // _WORD
    return Packed(plain(words, _UINT64), starts[:-1], np.diff(starts))
