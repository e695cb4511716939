"""The strings of an interner as compiled loops read them: found by their bytes, and given out by their codes.

The strings stand one after the other in one array. A record of two words for each code has the first eight bytes of its
string and where it stands. An open hash table has the code of each string, with some bits of its hash.

Invariants:
1. A code that stands for no string has the length of none. What a table entry leads to is compared byte by byte, so an
   entry of a string that was forgotten finds nothing, also when its code stands for another string.
2. At most three quarters of the table are entries; one that is out of date counts as one. An index does not grow:
   where there is no room for a string, another index is to be made. It has room for about as much as there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Bools, Int32s, Int64s, Slots, UInt64s
from penstock.jit import inline, kernel, prefetch
from penstock.store.charged import power_of_two

Bytes = NDArray[np.uint8]

_NO_BYTES: Bytes = np.empty(0, np.uint8)
_ALL_VALID: Bools = np.empty(0, np.bool_)
_MOST_BYTES = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow array reach."""


_BLOCK = 64
"""So many strings are looked for together: the processor fetches what they lead to at the same time."""

_FIRST, _PLACE = 0, 1
"""The words of a record: the first eight bytes of the string, and its place, begin << LENGTH_BITS | length."""

_LENGTH_BITS = 31
_LENGTH = (1 << _LENGTH_BITS) - 1
_NO_STRING = _LENGTH
"""The place of a code that stands for none: no string is that long."""


@inline
def _word(text: Bytes, begin: int, end: int) -> np.uint64:
    """At most eight bytes as a number."""
    word = np.uint64(0)
    for at in range(begin, end):
        word = (word << np.uint64(8)) | np.uint64(text[at])
    return word


@inline
def _mixed(h: np.uint64, word: np.uint64) -> np.uint64:
    h = (h ^ word) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@inline
def _hash(text: Bytes, begin: int, end: int, first: np.uint64) -> np.uint64:
    """Of the string whose first eight bytes are known."""
    h = _mixed(np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(end - begin), first)
    at = begin + 8
    while at < end:
        h = _mixed(h, _word(text, at, min(at + 8, end)))
        at += 8
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(29))


@inline
def _entry(h: np.uint64, code: int) -> np.uint64:
    """The upper half of the hash, and the code plus one: 0 is no entry."""
    return (h & np.uint64(0xFFFFFFFF00000000)) | np.uint64(code + 1)


@inline
def _code(entry: np.uint64) -> int:
    return int(np.int64(entry & np.uint64(0xFFFFFFFF))) - 1


@kernel
def _find(
    offsets: Int32s, data: Bytes, valid: Bools, entries: UInt64s, text: Bytes, records: UInt64s, codes: Slots
) -> None:
    """The code of each string, -1 for one that is not there and where `valid` says that there is none."""
    masked = len(valid) > 0
    mask = np.uint64(len(entries) - 1)
    firsts, hashes = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    table, lines = entries.ctypes.data, records.ctypes.data
    for start in range(0, len(codes), _BLOCK):
        stop = min(start + _BLOCK, len(codes))
        for row in range(start, stop):
            begin, end = int(offsets[row]), int(offsets[row + 1])
            first = _word(data, begin, min(begin + 8, end))
            h = _hash(data, begin, end, first)
            firsts[row - start], hashes[row - start] = first, h
            prefetch(table + 8 * np.int64(h & mask))
        for row in range(start, stop):
            entry = entries[np.int64(hashes[row - start] & mask)]
            if entry != np.uint64(0):
                prefetch(lines + 16 * _code(entry))
        for row in range(start, stop):
            codes[row] = -1
            if masked and not valid[row]:
                continue
            begin, length = int(offsets[row]), int(offsets[row + 1]) - int(offsets[row])
            h, first = hashes[row - start], firsts[row - start]
            at = h & mask
            while True:
                entry = entries[np.int64(at)]
                if entry == np.uint64(0):
                    break
                if entry >> np.uint64(32) == h >> np.uint64(32):
                    code = _code(entry)
                    place = np.int64(records[code, _PLACE])
                    if records[code, _FIRST] == first and place & _LENGTH == length:
                        stands = place >> _LENGTH_BITS
                        i = 8
                        while i < length and text[stands + i] == data[begin + i]:
                            i += 1
                        if i >= length:
                            codes[row] = code
                            break
                at = (at + np.uint64(1)) & mask


@kernel
def _enter(codes: Slots, entries: UInt64s, text: Bytes, records: UInt64s) -> None:
    """Strings that stand at their places get entries."""
    mask = np.uint64(len(entries) - 1)
    for code in codes:
        place = np.int64(records[code, _PLACE])
        begin, length = int(place >> _LENGTH_BITS), int(place & _LENGTH)
        first = _word(text, begin, begin + min(8, length))
        records[code, _FIRST] = first
        h = _hash(text, begin, begin + length, first)
        at = h & mask
        while entries[np.int64(at)] != np.uint64(0):
            at = (at + np.uint64(1)) & mask
        entries[np.int64(at)] = _entry(h, int(code))


@inline
def _length(place: np.uint64) -> int:
    length = int(np.int64(place) & _LENGTH)
    return 0 if length == _NO_STRING else length


@kernel
def _measure(codes: Slots, records: UInt64s) -> int:
    total = 0
    for code in codes:
        total += _length(records[code, _PLACE])
    return total


@kernel
def _gather(codes: Slots, text: Bytes, records: UInt64s, offsets: Int32s, data: Bytes) -> None:
    end = 0
    for row in range(len(codes)):
        place = records[codes[row], _PLACE]
        begin, length = np.int64(place) >> _LENGTH_BITS, _length(place)
        for i in range(length):
            data[end + i] = text[begin + i]
        end += length
        offsets[row + 1] = end


class TextIndex:
    """`strings` are those of the codes from 0 on, None where a code stands for none."""

    def __init__(self, strings: Sequence[bytes | None]) -> None:
        count = len(strings)
        joined = b"".join([string for string in strings if string is not None])
        self._used = len(joined)
        self._text: Bytes = np.empty(2 * len(joined), np.uint8)
        self._text[: self._used] = np.frombuffer(joined, np.uint8)
        self._records: UInt64s = np.full((2 * count, 2), _NO_STRING, np.uint64)
        lengths = np.array([_NO_STRING if string is None else len(string) for string in strings], np.int64)
        codes = np.flatnonzero(lengths != _NO_STRING).astype(np.int32)
        self._entries: UInt64s = np.zeros(power_of_two(2 * len(codes) + 2), np.uint64)
        self._entered = 0
        self._place(codes, lengths[codes], 0)

    def _place(self, codes: Slots, lengths: Int64s, begin: int) -> None:
        """Strings that stand one after the other from `begin` on are found from now on."""
        places = (begin + np.cumsum(lengths) - lengths) << _LENGTH_BITS | lengths
        self._records[codes, _PLACE] = places.astype(np.uint64)
        self._entered += len(codes)
        _enter(codes, self._entries, self._text, self._records)

    @staticmethod
    def bytes_for(strings: int, text: int) -> int:
        """What an index of so many codes takes, whose strings have so many bytes."""
        return 2 * (text + 16 * strings) + 8 * power_of_two(2 * strings + 2)

    @property
    def nbytes(self) -> int:
        return self._text.nbytes + self._records.nbytes + self._entries.nbytes

    def find(self, strings: pa.StringArray) -> Slots:
        """The code of each string; -1 for one that is not known, and for NULL."""
        codes = np.empty(len(strings), np.int32)
        valid = strings.is_valid().to_numpy(zero_copy_only=False) if strings.null_count else _ALL_VALID
        _, offsets, data = strings.buffers()
        if len(codes):
            bounds = _shown(np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(codes) + 1])
            held = _shown(_NO_BYTES if data is None else np.frombuffer(data, np.uint8))
            _find(bounds, held, valid, self._entries, self._text, self._records, codes)
        return codes

    def add(self, codes: Sequence[int], strings: Sequence[bytes]) -> bool:
        """New strings, if there is room for them."""
        new = sum(map(len, strings))
        if self._used + new > len(self._text) or max(codes) >= len(self._records):
            return False
        if 4 * (self._entered + len(codes)) > 3 * len(self._entries):
            return False
        self._text[self._used : self._used + new] = np.frombuffer(b"".join(strings), np.uint8)
        self._place(np.array(codes, np.int32), np.array([len(string) for string in strings], np.int64), self._used)
        self._used += new
        return True

    def forget(self, codes: Sequence[int]) -> None:
        self._records[codes, _PLACE] = _NO_STRING

    def strings(self, codes: Slots) -> pa.Array | None:
        """The strings of codes, as an Arrow array; None where they are too long for one."""
        total = _measure(codes, self._records)
        if total > _MOST_BYTES:
            return None
        offsets, data = np.zeros(len(codes) + 1, np.int32), np.empty(total, np.uint8)
        _gather(codes, self._text, self._records, offsets, data)
        return pa.Array.from_buffers(pa.string(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _shown(array: NDArray[Any]) -> NDArray[Any]:
    """Arrow's memory, which may be writable or not, as one kind of array."""
    array.flags.writeable = False
    return array
