"""The loops of `store.keyed`: hashing keys, finding, adding and removing them, and reading columns by row number.

A key is a row of int64 words. Its hash says three things, by bits that do not overlap: the partition (the highest
bits), a tag of 16 bits that is kept in the index, and where in the partition's index to begin to look (the lowest 32).
An index entry is 0 where nothing is, else the tag above and the row's place in the partition, plus one, below. So a row
is looked at only if the tag is right, and the entries of a partition are 4 bytes each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools, Int32s, Int64s
from penstock.columns import Values
from penstock.jit import inline, kernel

Entries = NDArray[np.uint32]
Keys = NDArray[Any]
"""The stored keys: [partition, place, word], int32 or int64."""


_BLOCK = 64
"""So many keys are looked for together."""


@inline
def _hash(keys: Int64s, row: int) -> np.uint64:
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(keys.shape[1]):
        h ^= np.uint64(keys[row, w])
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(29)
    return h


@inline
def _stored_hash(stored: Keys, partition: int, place: int) -> np.uint64:
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(stored.shape[2]):
        h ^= np.uint64(np.int64(stored[partition, place, w]))
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(29)
    return h


@inline
def _partition(h: np.uint64, bits: int) -> int:
    return int(np.int64(h >> np.uint64(64 - bits))) if bits > 0 else 0


@inline
def _first(h: np.uint64, size: int) -> int:
    """Where to begin: the lowest 32 bits, spread over the index."""
    return int(np.int64(((h & np.uint64(0xFFFFFFFF)) * np.uint64(size)) >> np.uint64(32)))


@inline
def _tag(h: np.uint64) -> np.uint32:
    return np.uint32((h >> np.uint64(16)) & np.uint64(0xFFFF0000))


@inline
def _same(stored: Keys, partition: int, place: int, keys: Int64s, row: int) -> bool:
    same = True
    for w in range(stored.shape[2]):
        if np.int64(stored[partition, place, w]) != keys[row, w]:
            same = False
    return same


@inline
def _lookup(index: Entries, stored: Keys, keys: Int64s, row: int, h: np.uint64, bits: int) -> int:
    """The row of a key: its partition times the capacity plus its place; -1 where there is none."""
    size = index.shape[1]
    p = _partition(h, bits)
    at = _first(h, size)
    tag = _tag(h)
    found = -1
    while True:
        entry = index[p, at]
        if entry == np.uint32(0):
            break
        if (entry & np.uint32(0xFFFF0000)) == tag:
            place = int(np.int64(entry & np.uint32(0xFFFF))) - 1
            if _same(stored, p, place, keys, row):
                found = p * stored.shape[1] + place
                break
        at += 1
        if at == size:
            at = 0
    return found


@kernel
def find(index: Entries, stored: Keys, bits: int, keys: Int64s, valid: Bools, rows: Int32s) -> None:
    """The row of each key in the order given: the plain hash join. -1 for none, and for keys that are not valid.

    In a large table each look misses the cache. So a block of keys goes through the index together, and then together
    to the rows: the processor fetches several lines at a time.
    """
    masked = len(valid) > 0
    size, capacity = index.shape[1], stored.shape[1]
    hashes = np.empty(_BLOCK, np.uint64)
    entries = np.empty(_BLOCK, np.uint32)
    for begin in range(0, len(keys), _BLOCK):
        end = min(begin + _BLOCK, len(keys))
        for i in range(begin, end):
            h = _hash(keys, i)
            hashes[i - begin] = h
            entries[i - begin] = index[_partition(h, bits), _first(h, size)]
        for i in range(begin, end):
            h = hashes[i - begin]
            p, at, tag, entry = _partition(h, bits), _first(h, size), _tag(h), entries[i - begin]
            while entry != np.uint32(0) and (entry & np.uint32(0xFFFF0000)) != tag:
                at += 1
                if at == size:
                    at = 0
                entry = index[p, at]
            rows[i] = p * capacity + int(np.int64(entry & np.uint32(0xFFFF))) - 1 if entry != np.uint32(0) else -1
        for i in range(begin, end):
            if masked and not valid[i]:
                rows[i] = -1
            elif rows[i] >= 0:
                p = _partition(hashes[i - begin], bits)
                if not _same(stored, p, rows[i] - p * capacity, keys, i):
                    rows[i] = _lookup(index, stored, keys, i, hashes[i - begin], bits)


@kernel
def all_differ(keys: Int64s, seen: Int64s, first: int) -> bool:
    """Whether no key comes twice. `seen` is a hash table of a power of two of slots, twice as many as keys at least.
    What it holds from calls before is below `first`; it holds `first` plus the number of a key afterwards. Keys that
    rise differ: they are not looked up."""
    rising = 1
    while rising < len(keys) and keys[rising - 1, 0] < keys[rising, 0]:
        rising += 1
    if rising >= len(keys):
        return True
    mask = len(seen) - 1
    for i in range(len(keys)):
        at = np.int64(_hash(keys, i) & np.uint64(mask))
        while seen[at] >= first:
            other = seen[at] - first
            same = True
            for w in range(keys.shape[1]):
                same = same and keys[i, w] == keys[other, w]
            if same:
                return False
            at = (at + 1) & mask
        seen[at] = first + i
    return True


@kernel
def spread(keys: Int64s, valid: Bools, bits: int, parted: Int64s, order: Int32s) -> int:
    """The keys of a batch partition by partition, and where each was; returns how many there are."""
    count = 1 << bits
    begins = np.zeros(count + 1, np.int64)
    parts = np.empty(len(keys), np.int32)
    masked = len(valid) > 0
    for i in range(len(keys)):
        if masked and not valid[i]:
            parts[i] = -1
        else:
            p = _partition(_hash(keys, i), bits)
            parts[i] = p
            begins[p + 1] += 1
    for p in range(count):
        begins[p + 1] += begins[p]
    total = int(begins[count])
    for i in range(len(keys)):
        p = parts[i]
        if p >= 0:
            to = begins[p]
            begins[p] = to + 1
            order[to] = i
            for w in range(keys.shape[1]):
                parted[to, w] = keys[i, w]
    return total


@kernel
def gather(column: Values, rows: Int32s, out: Values) -> None:
    """The values of rows, 0 where there is none."""
    zero = out.dtype.type(0)
    for i in range(len(rows)):
        row = rows[i]
        out[i] = column[row] if row >= 0 else zero


@kernel
def gather_to(column: Values, rows: Int32s, order: Int32s, out: Values) -> None:
    """The same for rows partition by partition, each to where its key was."""
    zero = out.dtype.type(0)
    for i in range(len(rows)):
        row = rows[i]
        out[order[i]] = column[row] if row >= 0 else zero


@kernel
def scatter_rows(rows: Int32s, order: Int32s, out: Int32s) -> None:
    for i in range(len(rows)):
        out[order[i]] = rows[i]


@kernel
def add(
    index: Entries, stored: Keys, counts: Int32s, bits: int, keys: Int64s, begin: int, rows: Int32s, fresh: Bools
) -> int:
    """Finds or adds each key from `begin` on; stops before the first that finds its partition full. `rows` are where
    they are, `fresh` says which are new. Returns how many are done."""
    capacity, size = stored.shape[1], index.shape[1]
    for i in range(begin, len(keys)):
        h = _hash(keys, i)
        p = _partition(h, bits)
        at = _first(h, size)
        tag = _tag(h)
        while True:
            entry = index[p, at]
            if entry == np.uint32(0):
                place = counts[p]
                if place == capacity:
                    return i
                counts[p] = place + 1
                index[p, at] = tag | np.uint32(place + 1)
                for w in range(stored.shape[2]):
                    stored[p, place, w] = keys[i, w]
                rows[i] = p * capacity + place
                fresh[i] = True
                break
            if (entry & np.uint32(0xFFFF0000)) == tag:
                place = int(np.int64(entry & np.uint32(0xFFFF))) - 1
                if _same(stored, p, place, keys, i):
                    rows[i] = p * capacity + place
                    fresh[i] = False
                    break
            at += 1
            if at == size:
                at = 0
    return len(keys)


@inline
def _entry_of(index: Entries, p: int, h: np.uint64, place: int) -> int:
    """Where the index has a row that is there."""
    size = index.shape[1]
    at = _first(h, size)
    wanted = _tag(h) | np.uint32(place + 1)
    while index[p, at] != wanted:
        at += 1
        if at == size:
            at = 0
    return at


@inline
def _unlink(index: Entries, stored: Keys, p: int, at: int) -> None:
    """Takes an entry out and closes the gap: entries that follow move up as far as they may, so none is ever marked
    as deleted."""
    size = index.shape[1]
    hole = at
    while True:
        at += 1
        if at == size:
            at = 0
        entry = index[p, at]
        if entry == np.uint32(0):
            break
        home = _first(_stored_hash(stored, p, int(np.int64(entry & np.uint32(0xFFFF))) - 1), size)
        # It may move if its home does not lie behind the hole, going round.
        movable = (home <= hole or home > at) if hole <= at else (home <= hole and home > at)
        if movable:
            index[p, hole] = entry
            hole = at
    index[p, hole] = np.uint32(0)


@kernel
def remove(
    index: Entries, stored: Keys, counts: Int32s, bits: int, keys: Int64s, moved_from: Int32s, moved_to: Int32s
) -> int:
    """Takes keys out. The last row of a partition takes the place of one that goes: `moved_from` and `moved_to` say,
    in this order, what has to be copied. Returns how many moves there are."""
    capacity = stored.shape[1]
    moves = 0
    for i in range(len(keys)):
        h = _hash(keys, i)
        row = _lookup(index, stored, keys, i, h, bits)
        if row < 0:
            continue
        p = row // capacity
        place = row - p * capacity
        _unlink(index, stored, p, _entry_of(index, p, h, place))
        last = counts[p] - 1
        counts[p] = last
        if place != last:
            hl = _stored_hash(stored, p, last)
            at = _entry_of(index, p, hl, last)
            index[p, at] = _tag(hl) | np.uint32(place + 1)
            for w in range(stored.shape[2]):
                stored[p, place, w] = stored[p, last, w]
            moved_from[moves] = p * capacity + last
            moved_to[moves] = p * capacity + place
            moves += 1
    return moves


@kernel
def copy_moves(column: Values, moved_from: Int32s, moved_to: Int32s) -> None:
    """One after the other: a row may move twice."""
    for i in range(len(moved_from)):
        column[moved_to[i]] = column[moved_from[i]]


@kernel
def reindex(index: Entries, stored: Keys, counts: Int32s) -> None:
    """Fills an empty index."""
    size = index.shape[1]
    for p in range(len(counts)):
        for place in range(counts[p]):
            h = _stored_hash(stored, p, place)
            at = _first(h, size)
            while index[p, at] != np.uint32(0):
                at += 1
                if at == size:
                    at = 0
            index[p, at] = _tag(h) | np.uint32(place + 1)


@kernel
def split_places(stored: Keys, counts: Int32s, bits: int, new_counts: Int32s, rows: Int32s) -> None:
    """Where each row, partition by partition, goes when there are 2^bits partitions: its place there. `new_counts` are
    the rows of each."""
    new_counts[:] = 0
    n = 0
    for p in range(len(counts)):
        for place in range(counts[p]):
            q = _partition(_stored_hash(stored, p, place), bits)
            rows[n] = new_counts[q]
            new_counts[q] += 1
            n += 1


@kernel
def split_column(stored: Keys, counts: Int32s, bits: int, rows: Int32s, old: Values, new: Values) -> None:
    """Copies a column, [partition, place], to where `split_places` says."""
    n = 0
    for p in range(len(counts)):
        for place in range(counts[p]):
            q = _partition(_stored_hash(stored, p, place), bits)
            new[q, rows[n]] = old[p, place]
            n += 1
