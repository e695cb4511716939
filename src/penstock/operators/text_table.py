"""Strings as compiled loops read them: found by their bytes, and given out by their codes.

    entries   hash, code     code ─▶ records   first bytes, place ─▶ words   code, length, bytes | code, length, …

The strings stand one behind the other in words of four bytes, each behind its code and its length. A record for each
code has the first eight bytes of its string and where it stands. An open hash table has the code of each string, with
some bits of its hash.

Invariants:
1. A code that stands for no string has the length of none, and no entry leads to it.
2. At most three quarters of the table are entries. The upper half of the hash says where an entry belongs; it stands
   there or behind, with nothing empty in between. So a table that grows needs no strings.
3. All is on the account. What is refused changes nothing. The room of strings that are gone is used again when it is
   a quarter of all, and it is given up where memory is short.
4. Codes without a string are a chain through their records: the last one that became free is taken first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Bools, Int32s, Int64s, Slots, UInt64s
from penstock.errors import BudgetError
from penstock.jit import inline, kernel, prefetch
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray, power_of_two

Bytes = NDArray[np.uint8]

_NO_BYTES: Bytes = np.empty(0, np.uint8)
_ALL_VALID: Bools = np.empty(0, np.bool_)
_MOST_BYTES = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow array reach."""

_BLOCK = 64
"""So many strings are looked for together: the processor fetches what they lead to at the same time."""

_FIRST, _PLACE = 0, 1
"""The words of a record: the first eight bytes of the string, and its place, word << LENGTH_BITS | length. That of a
code without a string has the next one in the chain instead of the first bytes."""

_LENGTH_BITS = 31
_LENGTH = (1 << _LENGTH_BITS) - 1
_NO_STRING = _LENGTH
"""The place of a code that stands for none: no string is that long."""

_HEAD = 2
"""Words before the bytes: the code and the length."""


@inline
def _word(text: Bytes, begin: int, end: int) -> np.uint64:
    """At most eight bytes as a number."""
    word = np.uint64(0)
    for at in range(begin, end):
        word = (word << np.uint64(8)) | np.uint64(text[at])
    return word


@inline
def _first(text: Bytes, begin: int, end: int) -> np.uint64:
    """The first eight bytes of a string as a number: the less it is, the less is the string."""
    if end - begin >= 8:
        return _word(text, begin, begin + 8)
    return _word(text, begin, end) << np.uint64(8 * (8 - (end - begin)) & 63)


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
def _home(entry: np.uint64, mask: np.uint64) -> np.uint64:
    """Where an entry, or a hash, belongs."""
    return (entry >> np.uint64(32)) & mask


@inline
def _code(entry: np.uint64) -> int:
    return int(np.int64(entry & np.uint64(0xFFFFFFFF))) - 1


@inline
def _begin(place: np.int64) -> int:
    """The byte where a string stands."""
    return 4 * int(place >> _LENGTH_BITS)


@inline
def _length(place: np.int64) -> int:
    length = int(place & _LENGTH)
    return 0 if length == _NO_STRING else length


@inline
def _words(length: int) -> int:
    return _HEAD + ((length + 3) >> 2)


@inline
def is_less(text: Bytes, records: UInt64s, one: int, other: int) -> bool:
    """Whether the string of a code is before that of another by its bytes."""
    first, first_of_other = records[one, _FIRST], records[other, _FIRST]
    if first != first_of_other:
        return bool(first < first_of_other)
    place, place_of_other = np.int64(records[one, _PLACE]), np.int64(records[other, _PLACE])
    length, length_of_other = _length(place), _length(place_of_other)
    begin, begin_of_other = _begin(place), _begin(place_of_other)
    for i in range(8, min(length, length_of_other)):
        byte, byte_of_other = text[begin + i], text[begin_of_other + i]
        if byte != byte_of_other:
            return bool(byte < byte_of_other)
    return length < length_of_other


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
            first = _first(data, begin, end)
            h = _hash(data, begin, end, first)
            firsts[row - start], hashes[row - start] = first, h
            prefetch(table + 8 * np.int64(_home(h, mask)))
        for row in range(start, stop):
            entry = entries[np.int64(_home(hashes[row - start], mask))]
            if entry != np.uint64(0):
                prefetch(lines + 16 * _code(entry))
        for row in range(start, stop):
            codes[row] = -1
            if masked and not valid[row]:
                continue
            begin, length = int(offsets[row]), int(offsets[row + 1]) - int(offsets[row])
            h, first = hashes[row - start], firsts[row - start]
            at = _home(h, mask)
            while True:
                entry = entries[np.int64(at)]
                if entry == np.uint64(0):
                    break
                if entry >> np.uint64(32) == h >> np.uint64(32):
                    code = _code(entry)
                    place = np.int64(records[code, _PLACE])
                    if records[code, _FIRST] == first and place & _LENGTH == length:
                        stands = _begin(place)
                        i = 8
                        while i < length and text[stands + i] == data[begin + i]:
                            i += 1
                        if i >= length:
                            codes[row] = code
                            break
                at = (at + np.uint64(1)) & mask


@inline
def _enter(entry: np.uint64, entries: UInt64s) -> None:
    mask = np.uint64(len(entries) - 1)
    at = _home(entry, mask)
    while entries[np.int64(at)] != np.uint64(0):
        at = (at + np.uint64(1)) & mask
    entries[np.int64(at)] = entry


@inline
def _leave(entry: np.uint64, entries: UInt64s) -> None:
    """Removes an entry that is there; entries behind it move up, as far as they may."""
    mask = np.uint64(len(entries) - 1)
    hole = _home(entry, mask)
    while entries[np.int64(hole)] != entry:
        hole = (hole + np.uint64(1)) & mask
    at = hole
    while True:
        at = (at + np.uint64(1)) & mask
        other = entries[np.int64(at)]
        if other == np.uint64(0):
            break
        if (at - _home(other, mask)) & mask >= (at - hole) & mask:
            entries[np.int64(hole)] = other
            hole = at
    entries[np.int64(hole)] = np.uint64(0)


@kernel
def _add(
    offsets: Int32s, data: Bytes, codes: Slots, words: Int32s, text: Bytes, end: int, records: UInt64s, entries: UInt64s
) -> int:
    """Puts strings behind the others, which end at a word; returns where they end then."""
    for row in range(len(codes)):
        code, begin = int(codes[row]), int(offsets[row])
        length = int(offsets[row + 1]) - begin
        words[end], words[end + 1] = code, length
        stands = 4 * (end + _HEAD)
        for i in range(length):
            text[stands + i] = data[begin + i]
        first = _first(data, begin, begin + length)
        records[code, _FIRST] = first
        records[code, _PLACE] = np.uint64((np.int64(end + _HEAD) << _LENGTH_BITS) | length)
        _enter(_entry(_hash(data, begin, begin + length, first), code), entries)
        end += _words(length)
    return end


@kernel
def _enter_all(others: UInt64s, entries: UInt64s) -> None:
    """The entries of another table."""
    for entry in others:
        if entry != np.uint64(0):
            _enter(entry, entries)


@kernel
def _take(records: UInt64s, free: int, codes: Slots) -> int:
    """Codes from the chain of free ones; returns the one that is free then."""
    for row in range(len(codes)):
        codes[row] = free
        free = int(np.int64(records[free, _FIRST]))
    return free


@kernel
def _forget(codes: Slots, free: int, records: UInt64s, text: Bytes, entries: UInt64s) -> tuple[int, int]:
    """The codes become free. Returns the one that is the first in the chain then, and how many words are unused."""
    gone = 0
    for code in codes:
        place = np.int64(records[code, _PLACE])
        begin, length = _begin(place), _length(place)
        gone += _words(length)
        _leave(_entry(_hash(text, begin, begin + length, records[code, _FIRST]), int(code)), entries)
        records[code, _FIRST], records[code, _PLACE] = np.uint64(free), np.uint64(_NO_STRING)
        free = int(code)
    return free, gone


@kernel
def _chain(codes: int, free: int, records: UInt64s) -> int:
    """All codes without a string become free."""
    for code in range(codes):
        if np.int64(records[code, _PLACE]) & _LENGTH == _NO_STRING:
            records[code, _FIRST] = np.uint64(free)
            free = code
    return free


@kernel
def _compact(words: Int32s, end: int, records: UInt64s) -> int:
    """Moves strings to where others were; returns where they end then."""
    at = to = 0
    while at < end:
        count = _words(int(words[at + 1]))
        place = np.int64(records[words[at], _PLACE])
        if place >> _LENGTH_BITS == at + _HEAD and place & _LENGTH != _NO_STRING:
            records[words[at], _PLACE] = np.uint64((np.int64(to + _HEAD) << _LENGTH_BITS) | np.int64(words[at + 1]))
            for i in range(count):
                words[to + i] = words[at + i]
            to += count
        at += count
    return to


@kernel
def _measure(codes: Slots, records: UInt64s) -> int:
    total = 0
    for code in codes:
        total += _length(np.int64(records[code, _PLACE]))
    return total


@kernel
def _gather(codes: Slots, text: Bytes, records: UInt64s, offsets: Any, data: Bytes) -> None:
    end = 0
    for row in range(len(codes)):
        place = np.int64(records[codes[row], _PLACE])
        begin, length = _begin(place), _length(place)
        for i in range(length):
            data[end + i] = text[begin + i]
        end += length
        offsets[row + 1] = end


class TextTable:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._words = ChargedArray(account, np.int32)
        self._end = self._gone = 0
        """Where the strings end, and how many words before are of none."""
        self._records = ChargedArray(account, np.uint64, (2,), fill=_NO_STRING)
        self._entries = ChargedArray(account, np.uint64)
        self._begin()
        account.on_need(self._give_up)

    def _begin(self) -> None:
        self._end = self._gone = 0
        self.codes = self.strings_kept = 0
        """How many codes have been given, and how many of them stand for a string."""
        self._free = -1
        self._is_changing = False

    def clear(self) -> None:
        for array in (self._words, self._records, self._entries):
            array.clear()
        self._begin()

    @property
    def nbytes(self) -> int:
        return self._words.nbytes + self._records.nbytes + self._entries.nbytes

    @property
    def text(self) -> Bytes:
        """With `records`, what compiled loops read."""
        text: Bytes = self._words.array.view(np.uint8)
        return text

    @property
    def records(self) -> UInt64s:
        records: UInt64s = self._records.array
        return records

    @property
    def is_kept(self) -> Bools:
        """For each code whether it stands for a string."""
        kept: Bools = self.records[: self.codes, _PLACE] & np.uint64(_LENGTH) != _NO_STRING
        return kept

    # Strings are looked for

    def find(self, strings: pa.StringArray) -> Slots:
        """The code of each string; -1 for one that is not known, and for NULL."""
        codes = np.full(len(strings), -1, np.int32)
        if len(codes) and self.strings_kept:
            valid = strings.is_valid().to_numpy(zero_copy_only=False) if strings.null_count else _ALL_VALID
            _find(*_parts(strings), valid, self._entries.array, self.text, self.records, codes)
        return codes

    def strings(self, codes: Slots) -> pa.StringArray:
        """The strings of codes; the empty string for a code that stands for none."""
        total = _measure(codes, self.records)
        if total > _MOST_BYTES:
            raise pa.ArrowCapacityError(f"strings of {total:,} bytes do not fit into one array")
        offsets, data = np.zeros(len(codes) + 1, np.int32), np.empty(total, np.uint8)
        _gather(codes, self.text, self.records, offsets, data)
        return pa.Array.from_buffers(pa.string(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    # Strings come and go

    def add(self, strings: pa.StringArray) -> Slots:
        """Codes for strings, of which none is known and none is there twice."""
        count = len(strings)
        offsets, data = _parts(strings)
        free = self.codes - self.strings_kept
        self._make_room(count, max(0, count - free), _words_for(offsets))
        codes = np.empty(count, np.int32)
        reused = min(count, free)
        self._free = _take(self.records, self._free, codes[:reused])
        codes[reused:] = np.arange(self.codes, self.codes + count - reused)
        self.codes += count - reused
        self.strings_kept += count
        self._put(offsets, data, codes)
        return codes

    def _put(self, offsets: Int32s, data: Bytes, codes: Slots) -> None:
        words = self._words.array
        self._end = _add(offsets, data, codes, words, self.text, self._end, self.records, self._entries.array)

    def forget(self, codes: Slots) -> None:
        """The strings of these codes are gone; each code is there once and stands for one."""
        self._free, gone = _forget(codes, self._free, self.records, self.text, self._entries.array)
        self._gone += gone
        self.strings_kept -= len(codes)

    # Room

    def room_for(self, strings: int, nbytes: int) -> int:
        """About the most bytes that so many new strings of so many bytes take besides those that are on the account."""
        codes = self.codes + max(0, strings - (self.codes - self.strings_kept)) - len(self._records)
        words = self._end - self._gone + (_HEAD + 1) * strings + nbytes // 4 - len(self._words)
        entries = power_of_two(-(-4 * (self.strings_kept + strings) // 3))
        growth = 16 * max(0, codes) + 4 * max(0, words)
        if growth:
            growth += growth // 8 + self._words.nbytes // 16
        return growth + (8 * entries if entries > len(self._entries) else 0)

    def _make_room(self, strings: int, codes: int, words: int) -> None:
        """For so many more of each."""
        self._is_changing = True
        try:
            self._records.fit(self.codes + codes)
            self._make_room_for_words(words)
            self._make_room_for_entries(self.strings_kept + strings)
        finally:
            self._is_changing = False

    def _make_room_for_words(self, words: int) -> None:
        if self._end + words <= len(self._words):
            return
        if 4 * self._gone > self._end:
            self._compact()
        try:
            self._words.resize(self._length_for(words))
        except BudgetError:
            if not self._gone:
                raise
            self._compact()
            self._words.resize(max(len(self._words), self._length_for(words)))

    def _length_for(self, words: int) -> int:
        """For so many more: an eighth of them at most is not needed."""
        step = power_of_two(self._end + words) // 16
        return -(-(self._end + words) // step) * step

    def _make_room_for_entries(self, strings: int) -> None:
        if 4 * strings > 3 * len(self._entries):
            entries = ChargedArray(self._account, np.uint64)
            entries.resize(power_of_two(-(-4 * strings // 3)))
            _enter_all(self._entries.array, entries.array)
            self._entries.clear()
            self._entries = entries

    def _compact(self) -> None:
        self._end = _compact(self._words.array, self._end, self.records)
        self._gone = 0

    def _give_up(self) -> bool:
        """Memory is needed: what strings had that are gone is given back. Whether there was some."""
        if self._is_changing or self._gone == 0 or 4 * self._gone < len(self._words):
            return False
        self._compact()
        self._words.resize(self._end)
        return True

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """The strings of all codes, one behind the other."""
        ends, codes = np.zeros(self.codes + 1, np.int64), np.arange(self.codes, dtype=np.int32)
        data = np.empty(_measure(codes, self.records), np.uint8)
        _gather(codes, self.text, self.records, ends, data)
        return {"text": data.tobytes(), "ends": ends[1:], "alive": self.is_kept}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.clear()
        data, kept = np.frombuffer(snapshot["text"], np.uint8), snapshot["alive"]
        codes = np.flatnonzero(kept).astype(np.int32)
        ends = np.append(0, snapshot["ends"][codes])
        words = int((_HEAD + (np.diff(ends) + 3 >> 2)).sum())
        self._make_room(len(codes), len(kept), words)
        self.codes, self.strings_kept = len(kept), len(codes)
        row = 0
        while row < len(codes):
            upto = max(row + 1, int(np.searchsorted(ends, ends[row] + _MOST_BYTES, "right")) - 1)
            part = _shown(data[ends[row] : ends[upto]])
            self._put(_shown((ends[row : upto + 1] - ends[row]).astype(np.int32)), part, codes[row:upto])
            row = upto
        self._free = _chain(self.codes, -1, self.records)


def _parts(strings: pa.StringArray) -> tuple[Int32s, Bytes]:
    """Where the strings end in the bytes, and the bytes."""
    _, offsets, data = strings.buffers()
    bounds = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    return _shown(bounds), _shown(_NO_BYTES if data is None else np.frombuffer(data, np.uint8))


def _words_for(offsets: Int64s | Int32s) -> int:
    return int((_HEAD + (np.diff(offsets).astype(np.int64) + 3 >> 2)).sum())


def _shown(array: NDArray[Any]) -> NDArray[Any]:
    """Arrow's memory, which may be writable or not, as one kind of array."""
    array.flags.writeable = False
    return array
