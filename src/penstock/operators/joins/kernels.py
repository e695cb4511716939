"""The loops of a join: rows chained by key, and the walk along a chain from the newest row to the tail of a window.

A side's rows have rising positions; `slots` and `previous` are those from position `base` on. `chains[slot]` are the
positions of the last row with that key and of the one before it, so that a key with one row in the window costs one
look at memory; `previous` of a row is the distance to the row before it with the same key. Rows before a window's tail
may be gone, so a walk ends at the tail and never follows a link beyond it. A distance that is too large for its type is
stored as the largest one: that is before every tail, since no window has so many rows.

Why: docs/decisions/joins-by-position.md
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s, Slots
from penstock.jit import inline, kernel, prefetch

_AHEAD = 16
"""So many turns before it is needed memory is asked for."""

_FAR = (1 << 31) - 1

_Steps = NDArray[np.int32]


@inline
def _enter(position: int, base: int, slots: Slots, chains: Int64s, previous: _Steps) -> None:
    slot = slots[position - base]
    if slot >= 0:
        before = chains[slot, 0]
        previous[position - base] = min(position - before, _FAR)
        chains[slot, 0] = position
        chains[slot, 1] = before


@kernel
def link(slots: Slots, first: int, base: int, chains: Int64s, previous: _Steps) -> None:
    """Rows from position `first` on enter the chains of their keys."""
    head = base + len(slots)
    address = chains.ctypes.data
    for position in range(first, head):
        if position < head - _AHEAD:
            prefetch(address + 16 * max(slots[position - base + _AHEAD], 0))
        _enter(position, base, slots, chains, previous)


@kernel
def walk(
    asked: Slots,
    low: Int64s,
    high: Int64s,
    reach: Int64s,
    begin: int,
    slots: Slots,
    previous: _Steps,
    base: int,
    fresh: int,
    linked: int,
    chains: Int64s,
    origins: Int64s,
    positions: Int64s,
) -> tuple[int, int]:
    """For each key of `asked`, from `begin` on, the positions in [low, high) with that key, rising; `origins` says to
    which key each position belongs. Rows from position `fresh` on enter one after the other: key i sees the rows before
    `reach[i]`, which rises. Rows before `linked` are in the chains already and leave them first; in the end all rows
    are in. Stops when the output is full; returns how many keys were answered and how many positions there are."""
    head = base + len(slots)
    for position in range(linked - 1, fresh - 1, -1):
        slot = slots[position - base]
        if slot >= 0:
            before = position - previous[position - base]
            chains[slot, 0] = before
            chains[slot, 1] = before - previous[before - base] if before >= base else -1
    entered = fresh
    filled = 0
    done = begin
    room = len(positions)
    full = False
    far = len(asked) - _AHEAD
    address, links = chains.ctypes.data, previous.ctypes.data
    while done < len(asked) and not full:
        if done < far:  # fetch where chains begin, and then where they go on
            prefetch(address + 16 * max(asked[done + _AHEAD], 0))
            near = asked[done + _AHEAD // 2]
            if near >= 0 and chains[near, 1] >= low[done]:
                prefetch(links + 4 * (chains[near, 1] - base))
        while entered < reach[done]:
            if entered < head - _AHEAD:
                prefetch(address + 16 * max(slots[entered - base + _AHEAD], 0))
            _enter(entered, base, slots, chains, previous)
            entered += 1
        before = filled
        slot = asked[done]
        if slot >= 0:
            position, following = chains[slot, 0], chains[slot, 1]
            while position >= low[done]:
                if position < high[done]:
                    if filled == room:
                        full = True
                        break
                    positions[filled] = position
                    origins[filled] = done
                    filled += 1
                position = following
                if position >= low[done]:
                    following = position - previous[position - base]
        if full:
            filled = before
            break
        left, right = before, filled - 1
        while left < right:
            positions[left], positions[right] = positions[right], positions[left]
            left += 1
            right -= 1
        done += 1
    link(slots, entered, base, chains, previous)
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
