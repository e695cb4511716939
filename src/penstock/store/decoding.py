"""Strings that come with their dictionary become plain ones.

Arrow copies them byte by byte and checks every code. The loop here copies eight bytes at a time, so that most strings
are one store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Int32s
from penstock.jit import intrinsic, numba_types, tight

_WORD = 8
_MOST_BYTES = 2**31 - _WORD
"""A column of strings has no more."""


@intrinsic
def _copy_word(typing: Any, to: Any, source: Any) -> Any:
    """Copies eight bytes from one address to another, wherever they lie."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        word = ir.IntType(64).as_pointer()
        to, source = [builder.inttoptr(address, word) for address in arguments]
        builder.store(builder.load(source, align=1), to, align=1)
        return context.get_dummy_value()

    types = numba_types()
    return types.void(types.int64, types.int64), generate


@tight
def _measure(codes: Int32s, offsets: Int32s, places: Int32s) -> int:
    """Where each string ends; returns the end of the last one, or -1 if they are too long for one column."""
    end = 0
    places[0] = 0
    for row in range(len(codes)):
        code = codes[row]
        end += offsets[code + 1] - offsets[code]
        if end > _MOST_BYTES:
            return -1
        places[row + 1] = end
    return end


@tight
def _copy(codes: Int32s, offsets: Int32s, source: int, places: Int32s, to: int) -> None:
    """Up to seven bytes behind a string are written as well; the next string overwrites them."""
    for row in range(len(codes)):
        start, at, end = source + offsets[codes[row]], to + places[row], to + places[row + 1]
        while at < end:
            _copy_word(at, start)
            at += _WORD
            start += _WORD


def plain_strings(column: pa.DictionaryArray) -> pa.Array:
    """The same column without its dictionary.

    >>> plain_strings(pa.array(["b", "a", "b"]).dictionary_encode()).to_pylist()
    ['b', 'a', 'b']
    """
    codes, entries = column.indices, column.dictionary
    plain = codes.type == pa.int32() and entries.type == pa.string()
    if not plain or codes.null_count or entries.null_count or not len(codes):
        return column.cast(pa.string())
    _, offsets, data = entries.buffers()
    if data is None:  # all strings are empty
        return column.cast(pa.string())
    numbers: Int32s = codes.to_numpy()
    ends: Int32s = np.frombuffer(offsets, np.int32)[entries.offset : entries.offset + len(entries) + 1]
    # A copy of the dictionary with room for the last word; entries of a part of a dictionary are few.
    texts: NDArray[np.uint8] = np.empty(int(ends[-1]) + _WORD, np.uint8)
    texts[: int(ends[-1])] = np.frombuffer(data, np.uint8, int(ends[-1]))
    places: Int32s = np.empty(len(numbers) + 1, np.int32)
    size = _measure(numbers, ends, places)
    if size < 0:
        return column.cast(pa.string())
    made: NDArray[np.uint8] = np.empty(size + _WORD, np.uint8)
    _copy(numbers, ends, texts.ctypes.data, places, made.ctypes.data)
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(places), pa.py_buffer(made[:size])])
