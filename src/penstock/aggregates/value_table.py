"""A hash table from (owner, value) to one word: open addressing with linear probing, and deletion without tombstones.

An *owner* is a slot at one time of its life: resetting a slot gives it a new generation, and what the old one owned
becomes stale and is dropped when the table is rebuilt. So a reset need not look for what a slot holds.

Invariants:
1. The number of cells is a power of two, and at least a quarter of them are empty: the caller rebuilds in time.
2. Between the home cell of an entry and the entry no cell is empty.
3. The home cell of an entry in a table of twice the size is the same, or as many cells further as the table has: a
   table that goes over into a larger one fills two stretches of that, one cell after the other.

Called by `distinct.DistinctState`, and for one page at a time by `paged_values`.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.images import Word
from penstock.arrays import Int64s
from penstock.jit import tight
from penstock.store.own_memory import zeros

OWNER, VALUE, LOAD = 0, 1, 2
EMPTY = 0
"""No owner: generations begin with 1, so that a table of zeros is empty and takes memory as it is filled."""

FIRST_GENERATION = 1


def empty_table(cells: int) -> Int64s:
    return zeros((cells, 3), np.int64)


def cells_for(entries: int) -> int:
    """The cells of a table that may hold so many entries.

    >>> cells_for(0), cells_for(12), cells_for(13)
    (16, 16, 32)
    """
    return max(16, 1 << (entries * 4 // 3 - 1).bit_length()) if entries else 16


@tight
def owner_of(slot: Word, generations: Int64s) -> Word:
    generation: np.int64 = generations[slot]
    return generation << 32 | slot


@tight
def is_live(owner: Word, generations: Int64s) -> bool:
    """Whether its slot has not been reset since."""
    return bool(generations[owner & 0xFFFF_FFFF] == owner >> 32)


@tight
def mixed(owner: Word, value: Word) -> Word:
    """A multiplicative hash, whose high bits are well mixed."""
    product = (value ^ (owner * np.int64(-0x61C8864680B583EB))) * np.int64(-0x4B47D0C5D9F2A1ED)
    return (product ^ ((product >> 32) & 0xFFFF_FFFF)) * np.int64(-0x3B314601E57A13AD)


@tight
def _home(owner: Word, value: Word, mask: Word) -> Word:
    return (mixed(owner, value) >> 29) & mask


@tight
def find(table: Int64s, owner: Word, value: Word) -> Word:
    """The cell of an entry, or the empty cell where it belongs."""
    mask = len(table) - 1
    cell = _home(owner, value, mask)
    while table[cell, OWNER] != EMPTY and not (table[cell, OWNER] == owner and table[cell, VALUE] == value):
        cell = (cell + 1) & mask
    return cell


@tight
def erase(table: Int64s, cell: Word) -> None:
    """Empties a cell and moves later entries up where invariant 2 needs it."""
    mask = len(table) - 1
    hole = cell
    probe = (cell + 1) & mask
    while table[probe, OWNER] != EMPTY:
        home = _home(table[probe, OWNER], table[probe, VALUE], mask)
        if (probe - home) & mask >= (probe - hole) & mask:
            for word in range(3):
                table[hole, word] = table[probe, word]
            hole = probe
        probe = (probe + 1) & mask
    table[hole, OWNER] = EMPTY
