"""Entries of a page as bytes: most have the same owner and come a few times, so little more than values is left.

    words   entries, how owners and counts are stored, what owners have in common
            values, 8 bytes each
            owners: none if all are the same, 4 bytes each if they are of one generation, otherwise 8
            counts: 1 byte each if all are small, otherwise 8

What has 8 bytes comes first; the whole is filled up to 8 bytes. Called by `packed_pages`.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import value_table as values
from penstock.arrays import Int64s, Slots
from penstock.columns import Values
from penstock.jit import tight

HEAD, MOST_WORDS = 3, 3
"""Words before the first entry, and that an entry takes at most."""

_ONE_OWNER, _ONE_GENERATION, _ANY_OWNER = 0, 1, 2
_SMALL_COUNTS = 4
_LARGEST_SMALL = 255


def packed(entries: Int64s, room: Int64s) -> Values:
    """The entries as bytes, in the room."""
    length = pack(entries, room, room.view(np.int32), room.view(np.uint8))
    return room.view(np.uint8)[: 8 * length]


def unpacked(content: Values, room: Int64s) -> Int64s:
    """The entries again, in the room."""
    words = content.view(np.int64)
    count = int(words[0])
    unpack(words, words.view(np.int32), content, room)
    return room[:count]


def entries_in(content: Values) -> int:
    count: np.int64 = content[:8].view(np.int64)[0]
    return int(count)


@tight
def pack(entries: Int64s, words: Int64s, halves: Slots, octets: Values) -> int:
    """Three views of one room; returns the words that it takes."""
    count = len(entries)
    first = entries[0, values.OWNER]
    different = np.int64(0)
    most = np.int64(0)
    for row in range(count):
        different |= entries[row, values.OWNER] ^ first
        most = max(most, entries[row, values.LOAD])
    kind = _ONE_OWNER if different == 0 else _ONE_GENERATION if different >> 31 == 0 else _ANY_OWNER
    small = most <= _LARGEST_SMALL
    words[0] = count
    words[1] = kind | _SMALL_COUNTS if small else kind
    words[2] = first if kind == _ONE_OWNER else first >> 32 << 32
    at = HEAD
    for row in range(count):
        words[at + row] = entries[row, values.VALUE]
    at += count
    if kind == _ANY_OWNER:
        for row in range(count):
            words[at + row] = entries[row, values.OWNER]
        at += count
    if not small:
        for row in range(count):
            words[at + row] = entries[row, values.LOAD]
        at += count
    at *= 8
    if kind == _ONE_GENERATION:
        for row in range(count):
            halves[at // 4 + row] = entries[row, values.OWNER] & 0x7FFF_FFFF
        at += 4 * count
    if small:
        for row in range(count):
            octets[at + row] = entries[row, values.LOAD]
        at += count
    return (at + 7) // 8


@tight
def unpack(words: Int64s, halves: Slots, octets: Values, entries: Int64s) -> None:
    count, base = words[0], words[2]
    kind, small = words[1] & 3, words[1] & _SMALL_COUNTS != 0
    at = HEAD
    for row in range(count):
        entries[row, values.VALUE] = words[at + row]
        entries[row, values.OWNER] = base
    at += count
    if kind == _ANY_OWNER:
        for row in range(count):
            entries[row, values.OWNER] = words[at + row]
        at += count
    if not small:
        for row in range(count):
            entries[row, values.LOAD] = words[at + row]
        at += count
    at *= 8
    if kind == _ONE_GENERATION:
        for row in range(count):
            entries[row, values.OWNER] |= np.int64(halves[at // 4 + row])
        at += 4 * count
    if small:
        for row in range(count):
            entries[row, values.LOAD] = octets[at + row]
