"""The thesis's aggregation and join over columns, as compiled loops: a circular window of arrays, one per attribute.

Events come as rows, one after the other, and are taken apart into the window's columns. `state` holds the window's next
place, its sum and its number of rows from call to call. The sums are plain ones, as in the thesis: these loops
measure representations, not the exact arithmetic of the engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.instruments import kernel

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

EVENT = np.dtype([("id", np.int32), ("a1", np.float64), ("a2", np.float64), ("ts", np.int64)], align=True)
"""S(ID, A1, A2, TS) as it comes in."""

Events = NDArray[Any]

BUFFER = 100
"""Events in the buffer of the cache-aware loop."""


@kernel
def average(events: Events, ids: Ints, a1: Doubles, a2: Doubles, ts: Longs, state: Doubles, answers: Doubles) -> None:
    """Every event is written to the window at once, attribute by attribute."""
    size = len(a1)
    at, total, count = int(state[0]), float(state[1]), float(state[2])
    for i in range(len(events)):
        event = events[i]
        if count == size:
            total -= a1[at]
        else:
            count += 1.0
        ids[at] = event.id
        a1[at] = event.a1
        a2[at] = event.a2
        ts[at] = event.ts
        total += event.a1
        answers[i] = total / count
        at += 1
        if at == size:
            at = 0
    state[0], state[1], state[2] = at, total, count


@kernel
def average_projected(events: Events, a1: Doubles, state: Doubles, answers: Doubles) -> None:
    """Only what the query reads is kept."""
    size = len(a1)
    at, total, count = int(state[0]), float(state[1]), float(state[2])
    for i in range(len(events)):
        value = events[i].a1
        if count == size:
            total -= a1[at]
        else:
            count += 1.0
        a1[at] = value
        total += value
        answers[i] = total / count
        at += 1
        if at == size:
            at = 0
    state[0], state[1], state[2] = at, total, count


@kernel
def average_buffered(
    events: Events, ids: Ints, a1: Doubles, a2: Doubles, ts: Longs, state: Doubles, answers: Doubles
) -> None:
    """Events gather in a buffer that stays in the cache, and go to the window together, one attribute at a time."""
    size = len(a1)
    at, total, count = int(state[0]), float(state[1]), float(state[2])
    new_ids, new_ts = np.empty(BUFFER, np.int32), np.empty(BUFFER, np.int64)
    new_a1, new_a2 = np.empty(BUFFER), np.empty(BUFFER)
    done = 0
    while done < len(events):
        n = min(BUFFER, len(events) - done, size - at)
        coming, leaving, shown = events[done : done + n], a1[at : at + n], answers[done : done + n]
        for j in range(n):
            event = coming[j]
            if count == size:
                total -= leaving[j]
            else:
                count += 1.0
            new_ids[j] = event.id
            new_a1[j] = event.a1
            new_a2[j] = event.a2
            new_ts[j] = event.ts
            total += event.a1
            shown[j] = total / count
        ids[at : at + n] = new_ids[:n]
        a1[at : at + n] = new_a1[:n]
        a2[at : at + n] = new_a2[:n]
        ts[at : at + n] = new_ts[:n]
        done += n
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
