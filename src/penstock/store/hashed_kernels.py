"""The loops of `store.hashed_pages`: records in the order of their keys' hash, merged, found and cut.

A record is a row of int64 words, the key first. Keys with the same hash stand in any order among each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s
from penstock.jit import inline, kernel

Hashes = NDArray[np.uint64]


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
def _same(one: Int64s, row: int, other: Int64s, place: int, words: int) -> bool:
    same = True
    for w in range(words):
        if one[row, w] != other[place, w]:
            same = False
    return same


@kernel
def hash_all(records: Int64s, words: int, out: Hashes) -> None:
    for i in range(len(records)):
        out[i] = _hash(records, i, words)


@kernel
def merge(old: Int64s, new: Int64s, gone: Bools, words: int, out: Int64s) -> int:
    """The old records and the new ones, which take the place of old ones with their keys; of those that are `gone` no
    record stays. Returns how many there are."""
    count = 0
    j = 0
    new_hash = _hash(new, 0, words) if len(new) > 0 else np.uint64(0)
    for i in range(len(old)):
        h = _hash(old, i, words)
        while j < len(new) and new_hash < h:
            if not gone[j]:
                out[count] = new[j]
                count += 1
            j += 1
            if j < len(new):
                new_hash = _hash(new, j, words)
        replaced = False
        at = j
        while at < len(new) and _hash(new, at, words) == h:
            if _same(old, i, new, at, words):
                replaced = True
                break
            at += 1
        if not replaced:
            out[count] = old[i]
            count += 1
    while j < len(new):
        if not gone[j]:
            out[count] = new[j]
            count += 1
        j += 1
    return count


@kernel
def find(page: Int64s, keys: Int64s, hashes: Hashes, begin: int, end: int, out: Int64s, found: Bools) -> None:
    """The records of keys, which are in the order of their hashes, in a page; `found` says which are there."""
    words = keys.shape[1]
    low = 0
    for k in range(begin, end):
        h = hashes[k]
        high = len(page)
        while low < high:
            middle = (low + high) // 2
            if _hash(page, middle, words) < h:
                low = middle + 1
            else:
                high = middle
        at = low
        found[k] = False
        while at < len(page) and _hash(page, at, words) == h:
            if _same(page, at, keys, k, words):
                out[k] = page[at]
                found[k] = True
                break
            at += 1


@kernel
def cut(records: Int64s, words: int, wanted: int) -> int:
    """Where records can be cut: at the place wanted, or behind those with the same hash."""
    at = wanted
    while 0 < at < len(records) and _hash(records, at, words) == _hash(records, at - 1, words):
        at += 1
    return at
