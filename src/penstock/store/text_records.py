"""Records of whole 64-bit words with the bytes of their texts: what pages by hash are made of.

    rows    key, lengths of its texts | end | other words      texts   bytes of row 0 | bytes of row 1 | …

Invariants:
1. The texts of a row stand behind those of the row before and in front of its `end`, those of its key first.
2. Records without texts have no lengths, no `end` and no bytes.

Why: docs/decisions/cold-texts-in-rows.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock.jit import inline, kernel

Bytes = NDArray[np.uint8]

NO_BYTES: Bytes = np.empty(0, np.uint8)


class Records(NamedTuple):
    rows: Int64s
    texts: Bytes


class TextWords(NamedTuple):
    """The last `in_key` words of a key are the lengths of its texts. The word `end` says where the texts of a row end;
    it is -1 if there are none."""

    in_key: int
    end: int


NO_TEXTS = TextWords(0, -1)


@inline
def begin_of(rows: Int64s, row: int, end: int) -> int:
    """Where the texts of a row begin."""
    return int(rows[row - 1, end]) if row > 0 else 0


@kernel
def _bytes_of(rows: Int64s, places: Int64s, end: int) -> int:
    total = 0
    for place in places:
        total += int(rows[place, end]) - begin_of(rows, place, end)
    return total


@kernel
def _bytes_of_two(rows: Int64s, others: Int64s, places: Int64s, end: int) -> int:
    total = 0
    for place in places:
        if place < len(rows):
            total += int(rows[place, end]) - begin_of(rows, place, end)
        else:
            total += int(others[place - len(rows), end]) - begin_of(others, place - len(rows), end)
    return total


@inline
def _put(rows: Int64s, texts: Bytes, place: int, end: int, to: int, out: Int64s, out_texts: Bytes) -> None:
    """One row with its texts as row `to` of others."""
    for w in range(rows.shape[1]):
        out[to, w] = rows[place, w]
    start = begin_of(out, to, end)
    begin = begin_of(rows, place, end)
    length = int(rows[place, end]) - begin
    for i in range(length):
        out_texts[start + i] = texts[begin + i]
    out[to, end] = start + length


@kernel
def _take(rows: Int64s, texts: Bytes, places: Int64s, end: int, out: Int64s, out_texts: Bytes) -> None:
    for to in range(len(places)):
        _put(rows, texts, places[to], end, to, out, out_texts)


@kernel
def _take_of_two(
    rows: Int64s, texts: Bytes, others: Int64s, other_texts: Bytes, places: Int64s, end: int, out: Int64s,
    out_texts: Bytes,
) -> None:  # fmt: skip
    """Places from the number of the first rows on are those of the others."""
    for to in range(len(places)):
        place = places[to]
        if place < len(rows):
            _put(rows, texts, place, end, to, out, out_texts)
        else:
            _put(others, other_texts, place - len(rows), end, to, out, out_texts)


def taken(records: Records, places: Int64s, end: int) -> Records:
    """The records at some places, in that order."""
    rows, texts = records
    if end < 0:
        return Records(rows[places], NO_BYTES)
    out = np.empty((len(places), rows.shape[1]), np.int64)
    out_texts = np.empty(_bytes_of(rows, places, end), np.uint8)
    _take(rows, texts, places, end, out, out_texts)
    return Records(out, out_texts)


def taken_of_two(one: Records, other: Records, places: Int64s, end: int) -> Records:
    """The same of two with texts, one behind the other."""
    out = np.empty((len(places), one.rows.shape[1]), np.int64)
    out_texts = np.empty(_bytes_of_two(one.rows, other.rows, places, end), np.uint8)
    _take_of_two(*one, *other, places, end, out, out_texts)
    return Records(out, out_texts)


def joined(parts: Sequence[Records], end: int) -> Records:
    """Records one behind the other."""
    rows = np.concatenate([part.rows for part in parts])
    if end < 0:
        return Records(rows, NO_BYTES)
    counts = [len(part.rows) for part in parts]
    starts = np.cumsum([0, *(len(part.texts) for part in parts)])[:-1]
    rows[:, end] += np.repeat(starts, counts)
    return Records(rows, np.concatenate([part.texts for part in parts]))


def cut_out(records: Records, start: int, stop: int, end: int) -> Records:
    """The records between two places."""
    rows = np.ascontiguousarray(records.rows[start:stop])
    if end < 0 or start == stop:
        return Records(rows, NO_BYTES)
    begin = int(records.rows[start - 1, end]) if start else 0
    texts = records.texts[begin : int(rows[-1, end])]
    if begin:
        rows = rows.copy()
        rows[:, end] -= begin
    return Records(rows, texts)
