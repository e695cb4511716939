"""The loops of `store.hashed_pages`: records in the order of their keys' hash, merged, found and cut.

A record is a row of int64 words, the key first, and may have texts (`text_records`). Keys with the same hash stand in
any order among each other. Equal keys have equal words; the words of different texts may be equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s
from penstock.jit import inline, kernel
from penstock.store.text_records import Bytes, begin_of

Hashes = NDArray[np.uint64]

_NO_BYTES: Bytes = np.empty(0, np.uint8)


@inline
def _hash(records: Int64s, row: int, words: int) -> np.uint64:
    """As `keyed_kernels` has it: the records of a partition there are neighbours here."""
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(words):
        h ^= np.uint64(records[row, w])
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(29)
    return h


@inline
def _same(
    one: Int64s, one_texts: Bytes, row: int, other: Int64s, other_texts: Bytes, place: int, words: int, in_key: int,
    end: int,
) -> bool:  # fmt: skip
    """Whether two records have the same key: the same words, and the same texts."""
    for w in range(words):
        if one[row, w] != other[place, w]:
            return False
    if in_key > 0:
        length = 0
        for w in range(words - in_key, words):
            length += int(one[row, w])
        begin, begin_of_other = begin_of(one, row, end), begin_of(other, place, end)
        for i in range(length):
            if one_texts[begin + i] != other_texts[begin_of_other + i]:
                return False
    return True


@kernel
def hash_all(records: Int64s, words: int, out: Hashes) -> None:
    for i in range(len(records)):
        out[i] = _hash(records, i, words)


@inline
def _keep(rows: Int64s, row: int, place: int, end: int, to: int, out: Int64s, places: Int64s) -> None:
    """Notes the place of a record with texts; one without is complete with its row."""
    if end >= 0:
        places[to] = place
    else:
        for w in range(rows.shape[1]):
            out[to, w] = rows[row, w]


@kernel
def merge(
    old: Int64s, old_texts: Bytes, new: Int64s, new_texts: Bytes, gone: Bools, start: int, stop: int, words: int,
    in_key: int, end: int, out: Int64s, places: Int64s,
) -> int:  # fmt: skip
    """The old records and the new ones between two places, which take the place of old ones with their keys; of those
    that are `gone` no record stays. Returns how many there are. Without texts they are in `out`; else `places` says
    which they are, the new ones behind the old."""
    count = 0
    j = start
    new_hash = _hash(new, j, words) if j < stop else np.uint64(0)
    for i in range(len(old)):
        h = _hash(old, i, words)
        while j < stop and new_hash < h:
            if not gone[j]:
                _keep(new, j, len(old) + j, end, count, out, places)
                count += 1
            j += 1
            if j < stop:
                new_hash = _hash(new, j, words)
        replaced = False
        at = j
        while at < stop and _hash(new, at, words) == h:
            if _same(old, old_texts, i, new, new_texts, at, words, in_key, end):
                replaced = True
                break
            at += 1
        if not replaced:
            _keep(old, i, i, end, count, out, places)
            count += 1
    while j < stop:
        if not gone[j]:
            _keep(new, j, len(old) + j, end, count, out, places)
            count += 1
        j += 1
    return count


@inline
def _first_of(page: Int64s, h: np.uint64, low: int, words: int) -> int:
    """The first record, from a place on, whose hash is not below."""
    high = len(page)
    while low < high:
        middle = (low + high) // 2
        if _hash(page, middle, words) < h:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def find(page: Int64s, keys: Int64s, hashes: Hashes, begin: int, stop: int, out: Int64s, found: Bools) -> None:
    """The records of keys, which are in the order of their hashes, in a page; `found` says which are there."""
    words = keys.shape[1]
    low = 0
    for k in range(begin, stop):
        low = at = _first_of(page, hashes[k], low, words)
        found[k] = False
        while at < len(page) and _hash(page, at, words) == hashes[k]:
            if _same(page, _NO_BYTES, at, keys, _NO_BYTES, k, words, 0, -1):
                for w in range(page.shape[1]):
                    out[k, w] = page[at, w]
                found[k] = True
                break
            at += 1


@kernel
def find_by_texts(
    page: Int64s, texts: Bytes, keys: Int64s, key_texts: Bytes, hashes: Hashes, order: Int64s, begin: int, stop: int,
    words: int, in_key: int, end: int, places: Int64s,
) -> None:  # fmt: skip
    """Where the records of keys with texts are in a page, -1 if it has none; `order` has the keys in the order of their
    hashes."""
    low = 0
    for k in range(begin, stop):
        low = at = _first_of(page, hashes[k], low, words)
        places[k] = -1
        while at < len(page) and _hash(page, at, words) == hashes[k]:
            if _same(page, texts, at, keys, key_texts, order[k], words, in_key, end):
                places[k] = at
                break
            at += 1


@kernel
def cut(records: Int64s, words: int, wanted: int) -> int:
    """Where records can be cut: at the place wanted, or behind those with the same hash."""
    at = wanted
    while 0 < at < len(records) and _hash(records, at, words) == _hash(records, at - 1, words):
        at += 1
    return at
