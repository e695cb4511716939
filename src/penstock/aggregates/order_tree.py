"""One ordered multiset of (slot, key) for all slots, with insert, delete and select by rank: a counted B+-tree.

Leaves hold up to LEAF entries, inner nodes up to FAN children with the least entry and the number of entries below
each. All slots are in one tree, so that many small groups do not each cost a leaf, and every operation takes time
in the logarithm of the whole.

Invariants:
1. Entries rise from left to right; equal ones are kept, side by side.
2. `least` of a child is exactly its first entry; `weight` is the number of entries below it.
3. No leaf and no node is empty, except a root leaf. A child under a quarter full is merged where its neighbour allows.
4. `insert` finds as many free leaves and nodes as `needed` says: the caller grows the pools beforehand.
5. A *finger* is a leaf that was read and the number of entries before it, or NONE. It is right whatever was inserted
   and deleted since: a rank that is near the last one is found without a way down.

Called by `order_statistics.OrderState` alone.

Why: docs/decisions/deques-and-trees.md
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.images import Word
from penstock.aggregates.order_tree_nodes import (
    CHILDREN,
    FAN,
    FINGERS,
    FREE_LEAF,
    FREE_NODE,
    HEIGHT,
    KEYS,
    LEAF,
    LEAVES_USED,
    NODES_USED,
    NONE,
    PATH,
    ROOT,
    SIZE,
    SLOTS,
    UNTOUCHED_LEAF,
    UNTOUCHED_NODE,
    WEIGHTS,
    child_for,
    drop_child,
    free_leaf,
    free_node,
    merge_children,
    move_fingers,
    place_in_leaf,
    plant,
    precedes,
    set_least,
    shift_entries,
    split_leaf,
    split_node,
    take_node,
    weight_of,
)
from penstock.arrays import Int64s, Slots
from penstock.jit import kernel, tight

BUILT_LEAF, BUILT_FAN = 96, 48
"""So full are the leaves and inner nodes of a tree that is built at once: there is room for some more."""


def needed(control: Int64s, inserts: int, filled: int) -> tuple[int, int]:
    """Leaves and inner nodes that a tree may have after so many inserts, whatever they are: kernels check no bounds.

    At most `filled` leaves of those there are split, after that one in LEAF / 2 inserts (a rising split leaves a nearly
    full leaf behind, but only the last leaf splits so: see `insert`). Every full node may split at once, after that the
    same holds for nodes and the splits below them; on its way down one insert splits at most one node per level. The
    divisors are half of what that needs.
    """
    leaves, nodes, height = int(control[LEAVES_USED]), int(control[NODES_USED]), int(control[HEIGHT])
    splits = min(inserts, filled + inserts // (LEAF // 4) + 4)
    inner_splits = min(inserts * (height + 1), nodes + nodes // 16 + splits // (FAN // 4))
    return leaves + splits + 1, nodes + inner_splits + height + 4


@kernel
def most_filled(sizes: Slots, control: Int64s, inserts: Word) -> Word:
    """How many of the leaves so many inserts can make overflow, at most: those with the least room come first."""
    with_room = np.zeros(LEAF + 1, np.int64)
    for leaf in range(control[UNTOUCHED_LEAF]):
        if 0 < sizes[leaf] <= LEAF:
            with_room[LEAF - sizes[leaf]] += 1
    free: Word = control[FREE_LEAF]
    while free != NONE:  # its size is the number of the next free one
        if 0 < sizes[free] <= LEAF:
            with_room[LEAF - sizes[free]] -= 1
        free = sizes[free]
    filled = 0
    for room in range(LEAF + 1):
        more = min(with_room[room], inserts // (room + 1))
        filled += more
        inserts -= more * (room + 1)
        if more < with_room[room]:
            break
    return filled


def built(count: int) -> tuple[int, int]:
    """The leaves and inner nodes that `build` takes for so many entries."""
    leaves = level = max(1, -(-count // BUILT_LEAF))
    nodes = 0
    while level > 1:
        level = -(-level // BUILT_FAN)
        nodes += level
    return leaves, nodes


@tight
def build(
    keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, counts: Int64s, entries: Int64s
) -> None:
    """A new tree of keys in order, with `counts` of them for each slot. It takes the place of what was there."""
    total = np.int64(0)
    for count in counts:
        total += count
    leaves = max(np.int64(1), (total + BUILT_LEAF - 1) // BUILT_LEAF)
    done, slot, of_slot = np.int64(0), np.int64(0), np.int64(0)
    for leaf in range(leaves):
        sizes[leaf] = total * (leaf + 1) // leaves - done
        for place in range(sizes[leaf]):
            while of_slot == counts[slot]:
                slot += 1
                of_slot = np.int64(0)
            slots[leaf, place] = slot
            of_slot += 1
            keys[leaf, place] = entries[done + place]
        done += sizes[leaf]
    below, level, height, used = np.int64(0), np.int64(leaves), np.int64(0), np.int64(0)
    while level > 1:
        made = (level + BUILT_FAN - 1) // BUILT_FAN
        for index in range(made):
            node = used + index
            begin, end = level * index // made, level * (index + 1) // made
            nodes[node, SIZE] = end - begin
            for place in range(end - begin):
                child = below + begin + place
                nodes[node, CHILDREN + place] = child
                set_least(keys, slots, nodes, node, place, child, height == 0)
                nodes[node, WEIGHTS + place] = weight_of(sizes, nodes, child, height == 0)
        below, level = used, made
        used += made
        height += 1
    control[ROOT], control[HEIGHT] = below, height
    control[FREE_LEAF] = control[FREE_NODE] = NONE
    control[UNTOUCHED_LEAF] = control[LEAVES_USED] = leaves
    control[UNTOUCHED_NODE] = control[NODES_USED] = used
    for finger in range(FINGERS, len(control), 2):
        control[finger] = NONE


@tight
def insert(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, slot: Word, key: Word) -> None:
    """Adds (slot, key). Full children are split on the way down, so there is no way back up.

    A leaf is split in halves, except that values which rise at the end of the tree leave full leaves behind.
    """
    root = control[ROOT]
    if (sizes[root] == LEAF) if control[HEIGHT] == 0 else (nodes[root, SIZE] == FAN):
        _raise_root(keys, slots, sizes, nodes, control)
    node = control[ROOT]
    last = True
    for level in range(control[HEIGHT], 0, -1):
        place = child_for(nodes, node, slot, key)
        last = last and place == nodes[node, SIZE] - 1
        if place == 0 and precedes(slot, key, nodes[node, SLOTS], nodes[node, KEYS]):
            nodes[node, SLOTS] = slot
            nodes[node, KEYS] = key
        child = nodes[node, CHILDREN + place]
        full = (sizes[child] == LEAF) if level == 1 else (nodes[child, SIZE] == FAN)
        if full:
            if level > 1:
                split_node(nodes, control, node, place)
            else:
                rising = last and precedes(slots[child, LEAF - 1], keys[child, LEAF - 1], slot, key)
                split_leaf(keys, slots, sizes, nodes, control, node, place, LEAF - 1 if rising else LEAF // 2)
            if not precedes(slot, key, nodes[node, SLOTS + place + 1], nodes[node, KEYS + place + 1]):
                place += 1
            child = nodes[node, CHILDREN + place]
        nodes[node, WEIGHTS + place] += 1
        node = child
    size = np.int64(sizes[node])
    place = place_in_leaf(keys, slots, node, size, slot, key)
    shift_entries(keys, slots, node, place, place + 1, size - place)
    keys[node, place] = key
    slots[node, place] = slot
    sizes[node] = size + 1
    move_fingers(keys, slots, control, node, slot, key, 1)


@tight
def delete(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, slot: Word, key: Word) -> None:
    """Removes one (slot, key), which the tree holds."""
    node = control[ROOT]
    height = control[HEIGHT]
    for level in range(height):
        place = child_for(nodes, node, slot, key)
        control[PATH + 2 * level] = node
        control[PATH + 2 * level + 1] = place
        nodes[node, WEIGHTS + place] -= 1
        node = nodes[node, CHILDREN + place]
    size = np.int64(sizes[node]) - 1
    place = place_in_leaf(keys, slots, node, size + 1, slot, key)
    shift_entries(keys, slots, node, place + 1, place, size - place)
    sizes[node] = size
    move_fingers(keys, slots, control, node, slot, key, -1)
    if place == 0 or size < LEAF // 4:
        _repair(keys, slots, sizes, nodes, control, node)


@tight
def _raise_root(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s) -> None:
    """A new root above a full one, so that it can be split like any child."""
    old = control[ROOT]
    root = take_node(nodes, control)
    nodes[root, SIZE] = 1
    nodes[root, CHILDREN] = old
    nodes[root, WEIGHTS] = weight_of(sizes, nodes, old, control[HEIGHT] == 0)
    set_least(keys, slots, nodes, root, 0, old, control[HEIGHT] == 0)
    control[ROOT] = root
    control[HEIGHT] += 1


@tight
def _repair(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, changed: Word) -> None:
    """Restores invariants 2 and 3 along PATH, above a leaf that has lost an entry."""
    child = changed
    height = control[HEIGHT]
    for level in range(height - 1, -1, -1):
        node, place = control[PATH + 2 * level], control[PATH + 2 * level + 1]
        is_leaf = level == height - 1
        size = np.int64(sizes[child]) if is_leaf else nodes[child, SIZE]
        if size == 0:
            if is_leaf:
                free_leaf(sizes, control, child)
            else:
                free_node(nodes, control, child)
            drop_child(nodes, node, place)
        else:
            set_least(keys, slots, nodes, node, place, child, is_leaf)
            if size < (LEAF if is_leaf else FAN) // 4 and nodes[node, SIZE] > 1:
                left = place if place + 1 < nodes[node, SIZE] else place - 1
                merge_children(keys, slots, sizes, nodes, control, node, left, is_leaf)
        child = node
    if height > 0 and nodes[control[ROOT], SIZE] == 0:
        free_node(nodes, control, control[ROOT])
        plant(sizes, control)
    while control[HEIGHT] > 0 and nodes[control[ROOT], SIZE] == 1:
        root = control[ROOT]
        control[ROOT] = nodes[root, CHILDREN]
        control[HEIGHT] -= 1
        free_node(nodes, control, root)


@tight
def entries(sizes: Slots, nodes: Int64s, control: Int64s) -> Word:
    """How many entries there are."""
    if control[LEAVES_USED] == 0:
        return np.int64(0)
    return weight_of(sizes, nodes, control[ROOT], control[HEIGHT] == 0)


@tight
def rank_of_slot(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, slot: Word) -> Word:
    """How many entries belong to smaller slots."""
    least = np.int64(-0x8000_0000_0000_0000)
    rank = np.int64(0)
    node = control[ROOT]
    if (slots[node, 0] if control[HEIGHT] == 0 else nodes[node, SLOTS]) >= slot:
        return rank
    for _ in range(control[HEIGHT]):
        low, high = np.int64(1), nodes[node, SIZE]
        while low < high:
            middle = (low + high) >> 1
            if nodes[node, SLOTS + middle] < slot:
                low = middle + 1
            else:
                high = middle
        for index in range(low - 1):
            rank += nodes[node, WEIGHTS + index]
        node = nodes[node, CHILDREN + low - 1]
    return rank + place_in_leaf(keys, slots, node, np.int64(sizes[node]), slot, least)


@tight
def find_rank(nodes: Int64s, control: Int64s, rank: Word) -> tuple[Word, Word]:
    """The leaf and the place in it of the entry that `rank` others precede."""
    node = control[ROOT]
    left = rank
    for _ in range(control[HEIGHT]):
        place = np.int64(0)
        while left >= nodes[node, WEIGHTS + place]:
            left -= nodes[node, WEIGHTS + place]
            place += 1
        node = nodes[node, CHILDREN + place]
    return node, left


@tight
def find_near(sizes: Slots, nodes: Int64s, control: Int64s, finger: Word, rank: Word) -> tuple[Word, Word]:
    """The same, with a finger: its number counts from 0."""
    at = FINGERS + 2 * finger
    leaf, place = control[at], rank - control[at + 1]
    if leaf == NONE or place < 0 or place >= sizes[leaf]:
        leaf, place = find_rank(nodes, control, rank)
        control[at], control[at + 1] = leaf, rank - place
    return leaf, place
