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
def _length(codes: Int32s, offsets: Int32s) -> int:
    """The bytes of all strings together."""
    length = 0
    for row in range(len(codes)):
        length += int(offsets[codes[row] + 1] - offsets[codes[row]])
    return length


@tight
def _copy(codes: Int32s, offsets: Int32s, source: int, places: Int32s, to: int) -> int:
    """Copies the strings, says where each ends, and returns the end of the last. Up to eight bytes behind a string are
    written as well; the next string overwrites them."""
    places[0] = end = 0
    for row in range(len(codes)):
        code = np.uint64(codes[row])
        at, start = end, offsets[code]
        end += offsets[code + np.uint64(1)] - start
        places[row + 1] = end
        _copy_word(to + at, source + start)
        while at + _WORD < end:
            at += _WORD
            start += _WORD
            _copy_word(to + at, source + start)
    return end


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
    longest = int((ends[1:] - ends[:-1]).max())
    most = len(numbers) * longest if longest <= _WORD else _length(numbers, ends)
    if most > _MOST_BYTES:
        return column.cast(pa.string())
    places: Int32s = np.empty(len(numbers) + 1, np.int32)
    made: NDArray[np.uint8] = np.empty(most + _WORD, np.uint8)
    size = _copy(numbers, ends, texts.ctypes.data, places, made.ctypes.data)
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(places), pa.py_buffer(made[:size])])
