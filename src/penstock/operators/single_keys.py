"""The hash table of groups with one key: the key is in the table, beside its slot.

With a table of slots alone, a search reads the table and then the key stored for the slot: in large tables both are
cache misses. One key fits into the table beside its slot, so a search costs one cache miss. Keys of several columns
would make the table too wide.

A place of the table is the key's image and twice its slot, plus 1 for NULL; -1 where there is none.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import inline, kernel, prefetch, tight
from penstock.lane.memory import int32s, int64s, pairs, whole_at
from penstock.lane.words import DONE, GOES_ON, STOPPED, UPTO
from penstock.store.own_memory import zeros

_AHEAD = 16
_IN_CACHE = 1 << 14
"""Tables with so many places are not waited for."""

_NOBODY = -1

TABLE, PLACES, KEYS, KEY_WIDTH, FOUND = range(1, 6)
"""The words of `find_slots`: the table and how many places it has, the keys and their width, and where slots go."""


def _places(slots: int) -> int:
    """At least twice as many places as slots; small tables have more, so that most keys are where they are looked for
    first."""
    return 4 * slots if 4 * slots <= _IN_CACHE else 2 * slots


def empty_table(slots: int) -> Int64s:
    table: Int64s = zeros((_places(slots), 2), np.int64)
    table[:] = _NOBODY
    return table


def table_bytes(slots: int) -> int:
    return 16 * _places(slots)


@inline
def _place(key: int, null: int, mask: int) -> int:
    h = (np.uint64(key) + np.uint64(null)) * np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    return int(np.int64((h >> np.uint64(32)) & np.uint64(mask)))


@kernel
def assign_single(
    keys: Int64s, keep: Bools, table: Int64s, stored: Int64s, used: int, free: Slots, free_count: int, slots: Slots
) -> tuple[int, int, int]:
    """Finds or makes the slot of each key; stops when the table must grow. Returns (rows done, used, free left).

    A key that is the one of the row before, as times cut to hours mostly are, has its slot: it is not looked for."""
    mask = len(table) - 1
    masked = len(keep) > 0
    last = -1
    far = len(keys) - _AHEAD if len(table) > _IN_CACHE else 0
    address = table.ctypes.data
    for row in range(len(keys)):
        if row < far:
            prefetch(address + 16 * _place(keys[row + _AHEAD, 0], keys[row + _AHEAD, 1], mask))
        if masked and not keep[row]:
            slots[row] = -1
            continue
        key, null = keys[row, 0], keys[row, 1]
        if last >= 0 and keys[last, 0] == key and keys[last, 1] == null:
            slots[row] = slots[last]
            last = row
            continue
        last = row
        at = _place(key, null, mask)
        while True:
            known = table[at, 1]
            if table[at, 0] == key and known >= 0 and known & 1 == null:
                slots[row] = known >> 1
                break
            if known < 0:
                if free_count > 0:
                    slot = np.int64(free[free_count - 1])
                    free_count -= 1
                elif used < len(stored):
                    slot = np.int64(used)
                    used += 1
                else:
                    return row, used, free_count
                table[at, 0], table[at, 1] = key, 2 * slot + null
                stored[slot, 0], stored[slot, 1] = key, null
                slots[row] = slot
                break
            at = (at + 1) & mask
    return len(keys), used, free_count


@tight
def find_slots(context: int, instruction: int) -> int:
    """An operation of the lane: the slots of rows that enter, by keys that are not NULL. The strip is cut before a row
    whose key has none."""
    words, own = int64s(context), int64s(instruction)
    table, mask = pairs(own[TABLE]), own[PLACES] - 1
    slots, keys, width = int32s(own[FOUND]), own[KEYS], own[KEY_WIDTH]
    for row in range(words[DONE], words[UPTO]):
        key = int(whole_at(keys, row, width))
        at = _place(key, 0, mask)
        while table[at, 1] >= 0 and not (table[at, 0] == key and table[at, 1] & 1 == 0):
            at = (at + 1) & mask
        if table[at, 1] < 0:
            words[UPTO] = row
            words[STOPPED] = 1
            break
        slots[row] = np.int32(table[at, 1] >> 1)
    return GOES_ON


@kernel
def rehash_single(table: Int64s, stored: Int64s, used: int, alive: Bools) -> None:
    """Puts the slots that are alive into the table, and only those."""
    mask = len(table) - 1
    table[:, 1] = _NOBODY
    for slot in range(used):
        if alive[slot]:
            at = _place(stored[slot, 0], stored[slot, 1], mask)
            while table[at, 1] >= 0:
                at = (at + 1) & mask
            table[at, 0], table[at, 1] = stored[slot, 0], 2 * slot + stored[slot, 1]
