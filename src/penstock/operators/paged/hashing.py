"""Which shard a key belongs to: the upper bits of a hash of its columns.

Equal keys have equal hashes: NULL is a value, NaN is one value and -0.0 is 0.0, as for groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int32s, Int64s, UInt64s
from penstock.columns import Values
from penstock.expressions.vector import ColumnView
from penstock.jit import inline, kernel
from penstock.operators.columns import image, validity
from penstock.types import SqlType

_ALL: Bools = np.empty(0, np.bool_)


@inline
def _mixed(h: np.uint64, word: np.uint64) -> np.uint64:
    h = (h ^ word) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> np.uint64(32))


@kernel
def _mix_numbers(hashes: UInt64s, images: Int64s, valid: Bools) -> None:
    masked = len(valid) > 0
    for row in range(len(hashes)):
        is_null = masked and not valid[row]
        hashes[row] = _mixed(hashes[row], np.uint64(0x5BD1E995) if is_null else np.uint64(images[row]))


@kernel
def _mix_texts(hashes: UInt64s, offsets: Int32s, data: Values, valid: Bools) -> None:
    masked = len(valid) > 0
    for row in range(len(hashes)):
        h = hashes[row]
        if masked and not valid[row]:
            hashes[row] = _mixed(h, np.uint64(0x5BD1E995))
            continue
        begin, end = int(offsets[row]), int(offsets[row + 1])
        h = _mixed(h, np.uint64(end - begin))
        while begin < end:
            word = np.uint64(0)
            for at in range(begin, min(begin + 8, end)):
                word = (word << np.uint64(8)) | np.uint64(data[at])
            h = _mixed(h, word)
            begin += 8
        hashes[row] = h


def key_hashes(keys: Sequence[pa.Array], types: Sequence[SqlType], rows: int) -> UInt64s:
    """The hash of each row's key."""
    hashes: UInt64s = np.zeros(rows, np.uint64)
    if rows == 0:
        return hashes
    for key, kind in zip(keys, types, strict=True):
        if kind is SqlType.STRING:
            _, offsets, data = key.buffers()
            held = np.frombuffer(b"" if data is None else data, np.uint8)
            bounds = np.frombuffer(offsets, np.int32)[key.offset : key.offset + rows + 1]
            valid = validity(key)
            _mix_texts(hashes, _shown(bounds), _shown(held), _ALL if valid is None else valid)
        else:
            images, valid = image(ColumnView(key, kind), kind, None)
            _mix_numbers(hashes, np.ascontiguousarray(images), _ALL if valid is None else valid)
    return hashes


def _shown(array: Values) -> Values:
    """Arrow's memory, which may be writable or not, as one kind of array."""
    array.flags.writeable = False
    return array
