"""The loops of pattern matching, over the nodes of `candidates`: link, expand, consume, expire.

A node is an event in the place of an element. `links[node, e]` leads to the newest node of element e, among those with
the node's key, that came before its event: all that a match needs of its past is found by following links. A link is
the number of nodes back, 0 where there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import inline, kernel

Bytes = NDArray[np.int8]

NO_CEILING = np.int64(2**62)
"""A position that no event reaches."""


@inline
def back(links: Slots, node: int, at: int, element: int) -> int:
    """Where a link of a node leads; -1 where there is none."""
    distance = links[at, element]
    return node - distance if distance > 0 else -1


@kernel
def count_due(
    times: Int64s,
    elements: Bytes,
    first: int,
    stop: int,
    waits: Bools,
    before: int,
    more: Int64s,
    of: Int64s,
) -> int:
    """How many nodes that begin a match which waits have their time over: those of the ring and `more` to come."""
    mask = len(times) - 1
    count = 0
    for node in range(first, stop):
        if times[node & mask] > before:
            return count
        if waits[elements[node & mask]]:
            count += 1
    for i in range(len(more)):
        if more[i] > before:
            break
        if waits[of[i]]:
            count += 1
    return count


@kernel
def link(
    new_times: Int64s,
    new_positions: Int64s,
    new_elements: Int64s,
    new_slots: Slots,
    new_rows: Int64s,
    times: Int64s,
    positions: Int64s,
    elements: Bytes,
    slots: Slots,
    rows: Int64s,
    used: Bools,
    links: Slots,
    heads: Int64s,
    keyed: Bools,
    counts: Int64s,
    tail: int,
    stop: int,
    due: int,
    within: int,
    waits: Bools,
    any_waits: bool,
    limit: int,
    due_nodes: Int64s,
    due_heads: Int64s,
) -> tuple[int, int]:
    """Adds nodes in order; before each event, and at the end up to `limit`, notes the nodes whose time is over, with
    the heads as they are then. Returns how far those have come and how many were noted."""
    mask = len(times) - 1
    width = links.shape[1]
    noted = 0
    i = 0
    count = len(new_times)
    while i <= count:
        now = new_times[i] if i < count else limit
        if any_waits:
            while due < stop and times[due & mask] <= now - within:
                at = due & mask
                if waits[elements[at]]:
                    due_nodes[noted] = due
                    for e in range(width):
                        due_heads[noted, e] = heads[slots[at] if keyed[e] else 0, e]
                    noted += 1
                due += 1
        if i == count:
            break
        j = i
        while j < count and new_positions[j] == new_positions[i]:
            at = (stop + j - i) & mask
            slot = new_slots[j]
            times[at] = new_times[j]
            positions[at] = new_positions[j]
            elements[at] = new_elements[j]
            slots[at] = slot
            rows[at] = new_rows[j]
            used[at] = False
            for e in range(width):
                head = heads[slot if keyed[e] else 0, e]
                links[at, e] = stop + j - i - head if head >= tail else 0
            counts[slot] += 1
            j += 1
        for k in range(i, j):
            heads[new_slots[k], new_elements[k]] = stop + k - i
        stop += j - i
        i = j
    return due, noted


@kernel
def expand(
    starts: Int64s,
    floors: Int64s,
    ceilings: Int64s,
    after: Int64s,
    element: int,
    times: Int64s,
    positions: Int64s,
    links: Slots,
    used: Bools,
    skips_used: bool,
    tail: int,
    begin: int,
    node: int,
    parents: Int64s,
    nodes: Int64s,
) -> tuple[int, int, int]:
    """The nodes of an element from `starts[p]` back: at positions between `floors[p]` and `ceilings[p]` and times after
    `after[p]`, all exclusive. Stops when there is no room; goes on from parent `begin` at `node` (-1: its start).
    Returns where it stopped and how many were found. With `skips_used` nodes that have served are passed over, and the
    links of the others lead past them from then on."""
    mask = len(times) - 1
    room = len(parents)
    count = 0
    for p in range(begin, len(starts)):
        if node < 0:
            node = starts[p]
        before = -1
        while node >= tail:
            at = node & mask
            if positions[at] <= floors[p] or times[at] <= after[p]:
                break
            if skips_used and used[at]:
                node = back(links, node, at, element)
                if before >= 0:
                    links[before & mask, element] = before - node if node >= tail else 0
                continue
            before = node
            if positions[at] < ceilings[p]:
                if count == room:
                    return p, node, count
                parents[count] = p
                nodes[count] = node
                count += 1
            node = back(links, node, at, element)
        node = -1
    return len(starts), -1, count


@kernel
def exists(
    starts: Int64s,
    floors: Int64s,
    ceilings: Int64s,
    after: Int64s,
    element: int,
    times: Int64s,
    positions: Int64s,
    links: Slots,
    tail: int,
    found: Bools,
) -> None:
    """Whether `expand` would find anything for each parent."""
    mask = len(times) - 1
    for p in range(len(starts)):
        node = starts[p]
        while node >= tail and positions[node & mask] >= ceilings[p]:
            node = back(links, node, node & mask, element)
        at = node & mask
        found[p] = node >= tail and positions[at] > floors[p] and times[at] > after[p]


@kernel
def consume(upto: Int64s, nodes: Int64s, used: Bools, keep: Bools) -> None:
    """Takes matches one after the other: match m, whose nodes in ONE places are nodes[upto[m-1]:upto[m]], is kept if
    none of them has served before."""
    mask = len(used) - 1
    begin = 0
    for m in range(len(upto)):
        end = upto[m]
        free = True
        for k in range(begin, end):
            if used[nodes[k] & mask]:
                free = False
                break
        if free:
            for k in range(begin, end):
                used[nodes[k] & mask] = True
        keep[m] = free
        begin = end


@kernel
def keep_apart(firsts: Int64s, lasts: Int64s, slots: Slots, busy: Int64s, keep: Bools) -> None:
    """Takes matches one after the other: one is kept if it begins after the last event of the one before of its key."""
    for m in range(len(firsts)):
        keep[m] = firsts[m] > busy[slots[m]]
        if keep[m]:
            busy[slots[m]] = lasts[m]


@kernel
def expire(
    times: Int64s,
    elements: Bytes,
    slots: Slots,
    rows: Int64s,
    inputs: Int64s,
    counts: Int64s,
    tail: int,
    stop: int,
    horizon: int,
    left: Int64s,
) -> int:
    """Nodes up to a time leave; `left[i]` becomes the first row of input i that some node may still need."""
    mask = len(times) - 1
    while tail < stop and times[tail & mask] <= horizon:
        at = tail & mask
        counts[slots[at]] -= 1
        left[inputs[elements[at]]] = rows[at] + 1
        tail += 1
    return tail
