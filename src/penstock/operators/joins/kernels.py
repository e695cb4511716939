"""The loops of a join: rows chained by key, and the walk along a chain from the newest row to the tail of a window.

A side's rows have rising positions; `slots`, `previous` and `times` are those from position `base` on. `newest[slot]`
is the position of the last row with that key, `previous` of a row that of the one before it with the same key. What
lies before a window's tail may be long gone: chains end at the tail, wherever they lead.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.state import Int64s, Slots
from penstock.jit import kernel, prefetch

_AHEAD = 16
"""So many turns before it is needed memory is asked for."""


@kernel
def link(slots: Slots, first: int, base: int, newest: Int64s, previous: Int64s, counts: Int64s) -> None:
    """Rows from position `first` on enter the chains of their keys."""
    far = len(slots) - _AHEAD
    chains, rows = newest.ctypes.data, counts.ctypes.data
    for at in range(first - base, len(slots)):
        if at < far:
            prefetch(chains + 8 * max(slots[at + _AHEAD], 0))
            prefetch(rows + 8 * max(slots[at + _AHEAD], 0))
        slot = slots[at]
        if slot >= 0:
            previous[at] = newest[slot]
            newest[slot] = at + base
            counts[slot] += 1


@kernel
def unlink(slots: Slots, counts: Int64s) -> None:
    """Rows leave for good: their keys have fewer rows."""
    far = len(slots) - _AHEAD
    rows = counts.ctypes.data
    for at in range(len(slots)):
        if at < far:
            prefetch(rows + 8 * max(slots[at + _AHEAD], 0))
        slot = slots[at]
        if slot >= 0:
            counts[slot] -= 1


@kernel
def walk(
    asked: Slots,
    low: Int64s,
    high: Int64s,
    reach: Int64s,
    begin: int,
    slots: Slots,
    previous: Int64s,
    base: int,
    fresh: int,
    newest: Int64s,
    origins: Int64s,
    positions: Int64s,
) -> tuple[int, int]:
    """For each of `asked`, from `begin` on, the positions in [low, high) with that key, rising; `origins` says whose
    they are. Rows from position `fresh` on have entered one after the other: who asks sees those before `reach`, which
    rises. Stops when the answers are full; returns how many were answered and how many positions there are."""
    head = base + len(slots)
    for position in range(head - 1, fresh - 1, -1):
        slot = slots[position - base]
        if slot >= 0:
            newest[slot] = previous[position - base]
    entered = fresh
    filled = 0
    done = begin
    room = len(positions)
    full = False
    far = len(asked) - _AHEAD
    chains, links = newest.ctypes.data, previous.ctypes.data
    while done < len(asked) and not full:
        if done < far:  # fetch where chains begin, and then where they go on
            prefetch(chains + 8 * max(asked[done + _AHEAD], 0))
            near = asked[done + _AHEAD // 2]
            if near >= 0:
                prefetch(links + 8 * max(newest[near] - base, 0))
        while entered < reach[done]:
            slot = slots[entered - base]
            if slot >= 0:
                newest[slot] = entered
            entered += 1
        before = filled
        slot = asked[done]
        if slot >= 0:
            position = newest[slot]
            while position >= low[done]:
                if position < high[done]:
                    if filled == room:
                        full = True
                        break
                    positions[filled] = position
                    origins[filled] = done
                    filled += 1
                position = previous[position - base]
        if full:
            filled = before
            break
        left, right = before, filled - 1
        while left < right:
            positions[left], positions[right] = positions[right], positions[left]
            left += 1
            right -= 1
        done += 1
    while entered < head:
        slot = slots[entered - base]
        if slot >= 0:
            newest[slot] = entered
        entered += 1
    return done, filled


@kernel
def spread(low: Int64s, high: Int64s, total: int) -> tuple[Int64s, Int64s]:
    """All positions of each [low, high), one after the other, and whose they are."""
    origins = np.empty(total, np.int64)
    positions = np.empty(total, np.int64)
    filled = 0
    for at in range(len(low)):
        for position in range(low[at], high[at]):
            origins[filled] = at
            positions[filled] = position
            filled += 1
    return origins, positions
