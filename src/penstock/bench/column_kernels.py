"""The thesis's aggregation and join over columns, as compiled loops: a circular window of arrays, one per attribute.

`state` holds the window's next place, its sum and its number of rows from call to call. The sums are plain ones, as
in the thesis: these loops measure representations, not the exact arithmetic of the engine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.jit import kernel

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

Columns = tuple[Ints, Doubles, Doubles, Longs]
"""ID, A1, A2 and TS."""

BUFFER = 100
"""Events in the buffer of the cache-aware loop."""


@kernel
def average(events: Columns, window: Columns, state: Doubles, answers: Doubles) -> None:
    """Every event is written to the window at once, attribute by attribute."""
    ids, a1, a2, ts = events
    w_ids, w_a1, w_a2, w_ts = window
    size = len(w_a1)
    at, total, count = int(state[0]), float(state[1]), float(state[2])
    for i in range(len(a1)):
        if count == size:
            total -= w_a1[at]
        else:
            count += 1.0
        w_ids[at] = ids[i]
        w_a1[at] = a1[i]
        w_a2[at] = a2[i]
        w_ts[at] = ts[i]
        total += a1[i]
        answers[i] = total / count
        at += 1
        if at == size:
            at = 0
    state[0], state[1], state[2] = at, total, count


@kernel
def average_projected(a1: Doubles, w_a1: Doubles, state: Doubles, answers: Doubles) -> None:
    """Only what the query reads is kept."""
    size = len(w_a1)
    at, total, count = int(state[0]), float(state[1]), float(state[2])
    for i in range(len(a1)):
        if count == size:
            total -= w_a1[at]
        else:
            count += 1.0
        w_a1[at] = a1[i]
        total += a1[i]
        answers[i] = total / count
        at += 1
        if at == size:
            at = 0
    state[0], state[1], state[2] = at, total, count


@kernel
def average_buffered(events: Columns, window: Columns, state: Doubles, answers: Doubles) -> None:
    """Events gather in a buffer that stays in the cache, and go to the window together, one attribute at a time."""
    ids, a1, a2, ts = events
    w_ids, w_a1, w_a2, w_ts = window
    size = len(w_a1)
    at, total, count = int(state[0]), float(state[1]), float(state[2])
    b_ids = np.empty(BUFFER, np.int32)
    b_a1, b_a2 = np.empty(BUFFER), np.empty(BUFFER)
    b_ts = np.empty(BUFFER, np.int64)
    i = 0
    while i < len(a1):
        n = min(BUFFER, len(a1) - i, size - at)
        for j in range(n):
            if count == size:
                total -= w_a1[at + j]
            else:
                count += 1.0
            b_ids[j] = ids[i + j]
            b_a1[j] = a1[i + j]
            b_a2[j] = a2[i + j]
            b_ts[j] = ts[i + j]
            total += a1[i + j]
            answers[i + j] = total / count
        for j in range(n):
            w_ids[at + j] = b_ids[j]
        for j in range(n):
            w_a1[at + j] = b_a1[j]
        for j in range(n):
            w_a2[at + j] = b_a2[j]
        for j in range(n):
            w_ts[at + j] = b_ts[j]
        i += n
        at += n
        if at == size:
            at = 0
    state[0], state[1], state[2] = at, total, count


@kernel
def index(ids: Longs, slots: Ints) -> None:
    """A hash index with open addressing; its length is a power of two."""
    mask = len(slots) - 1
    for row in range(len(ids)):
        at = (ids[row] * 0x9E3779B1) & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = row


@kernel
def join(wanted: Longs, a1: Doubles, ids: Longs, t1: Ints, slots: Ints, out_t1: Ints, out_a1: Doubles) -> None:
    """A1 and T1 of each event's match."""
    mask = len(slots) - 1
    for i in range(len(wanted)):
        at = (wanted[i] * 0x9E3779B1) & mask
        while ids[slots[at]] != wanted[i]:
            at = (at + 1) & mask
        out_t1[i] = t1[slots[at]]
        out_a1[i] = a1[i]
