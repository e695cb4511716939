"""The strings of an interner as compiled loops read them: found by their bytes, and given out by their codes.

The strings stand one after the other in one array. An open hash table has the code of each, with some bits of its hash.

Invariants:
1. `lengths[code]` is -1 where a code stands for no string. What a table entry leads to is compared byte by byte, so an
   entry of a string that was forgotten finds nothing, also when its code stands for another string.
2. At most three quarters of the table are entries; one that is out of date counts as one. The index is made anew when
   there is no room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Bools, Int32s, Int64s, Slots, UInt64s
from penstock.jit import inline, kernel
from penstock.store.charged import power_of_two

Bytes = NDArray[np.uint8]

_NO_BYTES: Bytes = np.empty(0, np.uint8)
_ALL_VALID: Bools = np.empty(0, np.bool_)
_MOST_BYTES = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow array reach."""


@inline
def _hash(text: Bytes, begin: int, end: int) -> np.uint64:
    h = np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(end - begin)
    at = begin
    while at < end:
        stop = min(at + 8, end)
        word = np.uint64(0)
        while at < stop:
            word = (word << np.uint64(8)) | np.uint64(text[at])
            at += 1
        h ^= word
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(29)
    return h


@inline
def _entry(h: np.uint64, code: int) -> np.uint64:
    """The upper half of the hash, and the code plus one: 0 is no entry."""
    return (h & np.uint64(0xFFFFFFFF00000000)) | np.uint64(code + 1)


@kernel
def _find(
    offsets: Int32s,
    data: Bytes,
    valid: Bools,
    entries: UInt64s,
    text: Bytes,
    starts: Int64s,
    lengths: Int32s,
    codes: Slots,
) -> None:
    """The code of each string, -1 for one that is not there and where `valid` says that there is none."""
    masked = len(valid) > 0
    mask = len(entries) - 1
    for row in range(len(codes)):
        codes[row] = -1
        if masked and not valid[row]:
            continue
        begin, end = int(offsets[row]), int(offsets[row + 1])
        h = _hash(data, begin, end)
        tag = h >> np.uint64(32)
        at = int(np.int64(h & np.uint64(mask)))
        while True:
            entry = entries[at]
            if entry == np.uint64(0):
                break
            if entry >> np.uint64(32) == tag:
                code = int(np.int64(entry & np.uint64(0xFFFFFFFF))) - 1
                if lengths[code] == end - begin:
                    first = starts[code]
                    same = True
                    for i in range(end - begin):
                        if text[first + i] != data[begin + i]:
                            same = False
                            break
                    if same:
                        codes[row] = code
                        break
            at = (at + 1) & mask


@kernel
def _enter(codes: Slots, entries: UInt64s, text: Bytes, starts: Int64s, lengths: Int32s) -> None:
    mask = len(entries) - 1
    for code in codes:
        begin = int(starts[code])
        h = _hash(text, begin, begin + int(lengths[code]))
        at = int(np.int64(h & np.uint64(mask)))
        while entries[at] != np.uint64(0):
            at = (at + 1) & mask
        entries[at] = _entry(h, int(code))


@kernel
def _measure(codes: Slots, lengths: Int32s) -> int:
    total = 0
    for code in codes:
        total += max(0, int(lengths[code]))
    return total


@kernel
def _gather(codes: Slots, text: Bytes, starts: Int64s, lengths: Int32s, offsets: Int32s, data: Bytes) -> None:
    end = 0
    for row in range(len(codes)):
        code = codes[row]
        first = starts[code]
        for i in range(lengths[code]):
            data[end + i] = text[first + i]
        end += max(0, int(lengths[code]))
        offsets[row + 1] = end


class TextIndex:
    """`strings` are those of the codes from 0 on, None where a code stands for none."""

    def __init__(self, strings: Sequence[bytes | None]) -> None:
        self._make(strings)

    def _make(self, strings: Sequence[bytes | None]) -> None:
        count = len(strings)
        self._lengths: Int32s = np.full(2 * count, -1, np.int32)
        self._lengths[:count] = [-1 if string is None else len(string) for string in strings]
        joined = b"".join([string for string in strings if string is not None])
        self._used = len(joined)
        self._text: Bytes = np.empty(2 * len(joined), np.uint8)
        self._text[: self._used] = np.frombuffer(joined, np.uint8)
        self._starts: Int64s = np.zeros(2 * count, np.int64)
        held = np.maximum(self._lengths[:count], 0)
        self._starts[:count] = np.cumsum(held) - held
        codes = np.flatnonzero(self._lengths[:count] >= 0).astype(np.int32)
        self._entries: UInt64s = np.zeros(power_of_two(2 * len(codes) + 2), np.uint64)
        self._entered = len(codes)
        _enter(codes, self._entries, self._text, self._starts, self._lengths)

    @staticmethod
    def bytes_for(strings: int, text: int) -> int:
        """What an index of so many strings with so many bytes takes."""
        return 2 * (text + 12 * strings) + 8 * power_of_two(2 * strings + 2)

    @property
    def nbytes(self) -> int:
        return self._text.nbytes + self._starts.nbytes + self._lengths.nbytes + self._entries.nbytes

    def find(self, strings: pa.StringArray) -> Slots:
        """The code of each string; -1 for one that is not known, and for NULL."""
        codes = np.empty(len(strings), np.int32)
        valid = strings.is_valid().to_numpy(zero_copy_only=False) if strings.null_count else _ALL_VALID
        _, offsets, data = strings.buffers()
        if len(codes):
            bounds = _shown(np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(codes) + 1])
            held = _shown(_NO_BYTES if data is None else np.frombuffer(data, np.uint8))
            _find(bounds, held, valid, self._entries, self._text, self._starts, self._lengths, codes)
        return codes

    def add(self, codes: Sequence[int], strings: Sequence[bytes], all_strings: Sequence[bytes | None]) -> None:
        """New strings; `all_strings` has them at their codes already."""
        new = sum(map(len, strings))
        room = self._used + new <= len(self._text) and len(all_strings) <= len(self._starts)
        if not room or 4 * (self._entered + len(codes)) > 3 * len(self._entries):
            self._make(all_strings)
            return
        places = np.array(codes, np.int32)
        lengths = np.array([len(string) for string in strings], np.int64)
        self._text[self._used : self._used + new] = np.frombuffer(b"".join(strings), np.uint8)
        self._starts[places] = self._used + np.cumsum(lengths) - lengths
        self._lengths[places] = lengths
        self._used += new
        self._entered += len(codes)
        _enter(places, self._entries, self._text, self._starts, self._lengths)

    def forget(self, codes: Sequence[int]) -> None:
        self._lengths[codes] = -1

    def strings(self, codes: Slots) -> pa.Array | None:
        """The strings of codes, as an Arrow array; None where they are too long for one."""
        total = _measure(codes, self._lengths)
        if total > _MOST_BYTES:
            return None
        offsets, data = np.zeros(len(codes) + 1, np.int32), np.empty(total, np.uint8)
        _gather(codes, self._text, self._starts, self._lengths, offsets, data)
        return pa.Array.from_buffers(pa.string(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _shown(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Arrow's memory, which may be writable or not, as one kind of array."""
    array.flags.writeable = False
    return array
