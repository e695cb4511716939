"""The loops of `queues`: rows enter and leave their queues, spilled rows are found and brought to the front.

The table has one line of nine words per queue:

    LENGTH  rows in the queue, those on the device included     OLDEST  the first word (the time) of the oldest one
    HEAD, TAIL  places of its first and last row in the buffer, if it has any there
    DEVICE  rows on the device, all of them older than those in the buffer
    AT, END the part in use of the queue's front, which is its own few rows of `fronts`: copies of the oldest rows on
            the device. Where a copy comes from is in `origins`, as block << ORIGIN_BITS | row.
    BLOCK, ROW  the next row to be copied: in the first block from BLOCK on that has rows of the queue; if that is
            BLOCK itself, not before row ROW

A block has six words: its ADDRESS, the rows that are still needed (LIVE), the FIRST and LAST queue in it, its ROUND and
the CAPACITY of the device when it was written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock.jit import prefetch, tight
from penstock.store.records import Words

Ids = NDArray[np.int32]
Bits = NDArray[np.uint8]

LENGTH, OLDEST, HEAD, TAIL, DEVICE, AT, END, BLOCK, ROW = range(9)
TABLE_WORDS = 9

ORIGIN_BITS = 24

ADDRESS, LIVE, FIRST, LAST, ROUND, CAPACITY = range(6)
BLOCK_WORDS = 6

PHASE, LEFT, DEATHS, FREE, USED = range(5)
CONTROL_WORDS = 5
"""PHASE: what is still to be done for the row at which `enter` stopped. LEFT: rows that have left. DEATHS: blocks that
are no longer needed. FREE: the first place of the buffer whose row has left; such places are linked, -1 ends the list.
USED: places from here on were never used."""

ENTERS, LEAVES, LOOKS = 0, 1, 2
"""The phases: the row is not in its queue yet; the queue's oldest, on the device, must leave; the oldest is to be
looked at."""

_AHEAD = 12
"""So many rows before its turn a queue is fetched; its rows are fetched in two steps on the way to it."""


@tight
def enter(
    ids: Ids,
    rows: Words,
    start: int,
    limits: Int64s,
    table: Int64s,
    buffer: Words,
    nexts: Int64s,
    fronts: Words,
    origins: Int64s,
    share: int,
    blocks: Int64s,
    gone: Words,
    gone_upto: Int64s,
    oldest: Int64s,
    died: Int64s,
    control: Int64s,
) -> int:
    """Rows from `start` on enter their queues; from a queue that grows beyond its limit, which is at least 1, the
    oldest row leaves. Stops at a row for which the buffer has no room (its phase is ENTERS), or whose queue needs its
    front filled, to be called again."""
    phase = control[PHASE]
    lines, places, links, width = table.ctypes.data, buffer.ctypes.data, nexts.ctypes.data, 8 * buffer.shape[1]
    for row in range(start, len(ids)):
        # Each queue is elsewhere in memory: its line first, then its oldest row, then the one behind that.
        if row + 3 * _AHEAD < len(ids):
            line = lines + 8 * TABLE_WORDS * ids[row + 3 * _AHEAD]
            prefetch(line)
            prefetch(line + 64)
        if row + 2 * _AHEAD < len(ids):
            near = ids[row + 2 * _AHEAD]
            if table[near, LENGTH] > table[near, DEVICE]:
                prefetch(places + width * table[near, HEAD])
                prefetch(links + 8 * table[near, HEAD])
                prefetch(links + 8 * table[near, TAIL])
        if row + _AHEAD < len(ids):
            near = ids[row + _AHEAD]
            if table[near, LENGTH] > table[near, DEVICE] + 1:
                prefetch(places + width * nexts[table[near, HEAD]])
        queue = ids[row]
        if phase == ENTERS:
            if table[queue, DEVICE] == 0 and table[queue, LENGTH] >= limits[row]:
                # The oldest leaves first, and its place is taken.
                place = table[queue, HEAD]
                for word in range(buffer.shape[1]):
                    gone[control[LEFT], word] = buffer[place, word]
                control[LEFT] += 1
                table[queue, HEAD] = nexts[place]
                table[queue, LENGTH] -= 1
                phase = LOOKS
            elif control[FREE] >= 0:
                place = control[FREE]
                control[FREE] = nexts[place]
            elif control[USED] < len(buffer):
                place = control[USED]
                control[USED] += 1
            else:
                control[PHASE] = phase
                return row
            for word in range(buffer.shape[1]):
                buffer[place, word] = rows[row, word]
            if table[queue, LENGTH] == table[queue, DEVICE]:
                table[queue, HEAD] = place
            else:
                nexts[table[queue, TAIL]] = place
            table[queue, TAIL] = place
            table[queue, LENGTH] += 1
            if table[queue, LENGTH] > limits[row] and phase == ENTERS:
                phase = LEAVES
            elif table[queue, LENGTH] == 1:
                phase = LOOKS
        if phase == LEAVES:
            if table[queue, AT] == table[queue, END]:
                control[PHASE] = phase
                return row
            place = queue * share + table[queue, AT]
            for word in range(buffer.shape[1]):
                gone[control[LEFT], word] = fronts[place, word]
            table[queue, AT] += 1
            table[queue, DEVICE] -= 1
            block = origins[place] >> ORIGIN_BITS
            blocks[block, LIVE] -= 1
            if blocks[block, LIVE] == 0:
                died[control[DEATHS]] = block
                control[DEATHS] += 1
            table[queue, LENGTH] -= 1
            control[LEFT] += 1
            phase = LOOKS
        if phase == LOOKS:
            if table[queue, DEVICE] == 0:
                table[queue, OLDEST] = buffer[table[queue, HEAD], 0]
            else:
                if table[queue, AT] == table[queue, END]:
                    control[PHASE] = phase
                    return row
                table[queue, OLDEST] = fronts[queue * share + table[queue, AT], 0]
            phase = ENTERS
        gone_upto[row] = control[LEFT]
        oldest[row] = table[queue, OLDEST]
    control[PHASE] = ENTERS
    return len(ids)


@tight
def locate(queue: int, block: int, count: int, blocks: Int64s, ends: Int64s, bits: Bits) -> int:
    """The first block from `block` on that holds rows of the queue; `count`, the number of blocks, if none does."""
    while block < count:
        number = blocks[block, ROUND]
        end = ends[number]
        if bits[number, queue >> 3] >> (queue & 7) & 1:
            low, high = block, end
            while low < high:
                middle = (low + high) // 2
                if blocks[middle, LAST] < queue:
                    low = middle + 1
                else:
                    high = middle
            if low < end and blocks[low, FIRST] <= queue:
                return low
        block = end
    return count


@tight
def fill(
    ids: Ids,
    words: Words,
    block: int,
    table: Int64s,
    fronts: Words,
    origins: Int64s,
    share: int,
    count: int,
    blocks: Int64s,
    ends: Int64s,
    bits: Bits,
) -> None:
    """Copies rows of a block, which has the rows of a queue together, to every front that is at most half full and
    goes on in this block: queues that grow alike come to their blocks at about the same time."""
    start = 0
    while start < len(ids):
        queue = ids[start]
        stop = start + 1
        while stop < len(ids) and ids[stop] == queue:
            stop += 1
        held = table[queue, END] - table[queue, AT]
        if table[queue, DEVICE] > held and 2 * held <= share:
            found = locate(queue, table[queue, BLOCK], count, blocks, ends, bits)
            if found != table[queue, BLOCK]:
                table[queue, BLOCK] = found
                table[queue, ROW] = 0
            if found == block:
                _top_up(words, block, queue, start, stop, table, fronts, origins, share)
        start = stop


@tight
def _top_up(
    words: Words,
    block: int,
    queue: int,
    start: int,
    stop: int,
    table: Int64s,
    fronts: Words,
    origins: Int64s,
    share: int,
) -> None:
    """Copies rows of a queue, which has `[start, stop)` of the block, behind those that its front still has."""
    base = queue * share
    end = table[queue, END]
    if end == share or table[queue, AT] == end:
        end = 0
        for place in range(base + table[queue, AT], base + table[queue, END]):
            for word in range(words.shape[1]):
                fronts[base + end, word] = fronts[place, word]
            origins[base + end] = origins[place]
            end += 1
        table[queue, AT] = 0
    row = max(start, table[queue, ROW])
    while row < stop and end < share:
        for word in range(words.shape[1]):
            fronts[base + end, word] = words[row, word]
        origins[base + end] = block << ORIGIN_BITS | row
        end += 1
        row += 1
    table[queue, END] = end
    table[queue, ROW] = row
    if row == stop:
        table[queue, BLOCK] = block + 1
        table[queue, ROW] = 0


@tight
def link(ids: Ids, table: Int64s, nexts: Int64s) -> None:
    """Links the first rows of the buffer, which belong to these queues, anew; there are no others."""
    for queue in range(len(table)):
        table[queue, HEAD] = -1
    for place in range(len(ids)):
        queue = ids[place]
        if table[queue, HEAD] < 0:
            table[queue, HEAD] = place
        else:
            nexts[table[queue, TAIL]] = place
        table[queue, TAIL] = place


@tight
def chain(place: int, nexts: Int64s, places: Int64s) -> None:
    """The places of as many linked rows as `places` holds, from the first one on."""
    for i in range(len(places)):
        places[i] = place
        place = nexts[place]


@tight
def chains(table: Int64s, nexts: Int64s, ids: Ids, places: Int64s) -> None:
    """The rows of the buffer queue by queue, oldest first: whose each is and its place."""
    row = 0
    for queue in range(len(table)):
        place = table[queue, HEAD]
        for _ in range(table[queue, LENGTH] - table[queue, DEVICE]):
            ids[row] = queue
            places[row] = place
            row += 1
            place = nexts[place]


@tight
def gather(queues: Ids, ends: Int64s, table: Int64s, nexts: Int64s, buffer: Words, rows: Words) -> None:
    """Copies the rows that queues have in the buffer, oldest first, to places that end at `ends`."""
    for i in range(len(queues)):
        queue = queues[i]
        count = table[queue, LENGTH] - table[queue, DEVICE]
        place = table[queue, HEAD]
        for row in range(ends[i] - count, ends[i]):
            for word in range(buffer.shape[1]):
                rows[row, word] = buffer[place, word]
            place = nexts[place]
