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
from penstock.arrays import Int64s, Slots
from penstock.jit import inline, kernel, move_bytes, tight

LEAF = 128
FAN = 64
BUILT_LEAF, BUILT_FAN = 96, 48
"""So full are the leaves and inner nodes of a tree that is built at once: there is room for some more."""
SIZE, KEYS, SLOTS, CHILDREN, WEIGHTS = 0, 1, 1 + FAN, 1 + 2 * FAN, 1 + 3 * FAN
NODE_WORDS = 1 + 4 * FAN
"""The words of an inner node: its size, then keys and slots of the least entries, children and weights."""

ROOT, HEIGHT, FREE_LEAF, UNTOUCHED_LEAF, LEAVES_USED, FREE_NODE, UNTOUCHED_NODE, NODES_USED, PATH = range(9)
MOST_LEVELS = 12
FINGERS = PATH + 2 * MOST_LEVELS
"""HEIGHT 0: the root is a leaf. Free leaves and nodes are chained through their size. PATH: (node, child) per level.
From FINGERS to the end of the control words: (leaf, entries before it) per finger."""

NONE = -1


def empty_control(fingers: int) -> Int64s:
    """Control words of a tree without leaves, with so many fingers; `plant` makes the first leaf."""
    control = np.zeros(FINGERS + 2 * fingers, dtype=np.int64)
    control[[FREE_LEAF, FREE_NODE]] = NONE
    control[FINGERS::2] = NONE
    return control


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


@inline
def _before(slot: Word, key: Word, other_slot: Word, other_key: Word) -> bool | np.bool_:
    return slot < other_slot or (slot == other_slot and key < other_key)


@tight
def _take_leaf(sizes: Slots, control: Int64s) -> Word:
    leaf: Word = control[FREE_LEAF]
    if leaf != NONE:
        control[FREE_LEAF] = sizes[leaf]
    else:
        leaf = control[UNTOUCHED_LEAF]
        control[UNTOUCHED_LEAF] += 1
    control[LEAVES_USED] += 1
    sizes[leaf] = 0
    return leaf


@tight
def _lift_fingers(control: Int64s, leaf: Word) -> None:
    """Entries of this leaf go elsewhere."""
    for finger in range(FINGERS, len(control), 2):
        if control[finger] == leaf:
            control[finger] = NONE


@inline
def _move_fingers(keys: Int64s, slots: Slots, control: Int64s, leaf: Word, slot: Word, key: Word, by: int) -> None:
    """An entry has come to a leaf, or has gone: there are more or fewer before the leaves of fingers behind it."""
    for finger in range(FINGERS, len(control), 2):
        touched = control[finger]
        if touched != NONE and touched != leaf and _before(slot, key, slots[touched, 0], keys[touched, 0]):
            control[finger + 1] += by


@tight
def _free_leaf(sizes: Slots, control: Int64s, leaf: Word) -> None:
    _lift_fingers(control, leaf)
    sizes[leaf] = control[FREE_LEAF]
    control[FREE_LEAF] = leaf
    control[LEAVES_USED] -= 1


@tight
def _take_node(nodes: Int64s, control: Int64s) -> Word:
    node: Word = control[FREE_NODE]
    if node != NONE:
        control[FREE_NODE] = nodes[node, SIZE]
    else:
        node = control[UNTOUCHED_NODE]
        control[UNTOUCHED_NODE] += 1
    control[NODES_USED] += 1
    nodes[node, SIZE] = 0
    return node


@tight
def _free_node(nodes: Int64s, control: Int64s, node: Word) -> None:
    nodes[node, SIZE] = control[FREE_NODE]
    control[FREE_NODE] = node
    control[NODES_USED] -= 1


@tight
def plant(sizes: Slots, control: Int64s) -> None:
    """An empty leaf as the root."""
    control[ROOT] = _take_leaf(sizes, control)
    control[HEIGHT] = 0


@tight
def _child_for(nodes: Int64s, node: Word, slot: Word, key: Word) -> Word:
    """The last child whose least entry is not greater than (slot, key), or the first."""
    low, high = np.int64(1), nodes[node, SIZE]
    if nodes[node, SLOTS] == slot and nodes[node, SLOTS + high - 1] == slot:
        before = np.int64(0)  # a sum without a branch: the processor cannot guess the steps of a search
        for index in range(1, high):
            before += np.int64(nodes[node, KEYS + index] <= key)
        return before
    while low < high:
        middle = (low + high) >> 1
        if _before(slot, key, nodes[node, SLOTS + middle], nodes[node, KEYS + middle]):
            high = middle
        else:
            low = middle + 1
    return low - 1


@tight
def _place_in_leaf(keys: Int64s, slots: Slots, leaf: Word, size: Word, slot: Word, key: Word) -> Word:
    """The first entry of a leaf that is not less than (slot, key)."""
    low, high = np.int64(0), np.int64(size)
    if size > 0 and slots[leaf, 0] == slot and slots[leaf, size - 1] == slot:
        for index in range(size):
            low += np.int64(keys[leaf, index] < key)
        return low
    while low < high:
        middle = (low + high) >> 1
        if _before(slots[leaf, middle], keys[leaf, middle], slot, key):
            low = middle + 1
        else:
            high = middle
    return low


@tight
def _open_child(nodes: Int64s, node: Word, place: Word) -> None:
    """Makes room for a child at `place`."""
    for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
        for index in range(nodes[node, SIZE], place, -1):
            nodes[node, section + index] = nodes[node, section + index - 1]
    nodes[node, SIZE] += 1


@tight
def _drop_child(nodes: Int64s, node: Word, place: Word) -> None:
    nodes[node, SIZE] -= 1
    for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
        for index in range(place, nodes[node, SIZE]):
            nodes[node, section + index] = nodes[node, section + index + 1]


@tight
def _set_least(keys: Int64s, slots: Slots, nodes: Int64s, node: Word, place: Word, child: Word, is_leaf: bool) -> None:
    if is_leaf:
        nodes[node, KEYS + place] = keys[child, 0]
        nodes[node, SLOTS + place] = slots[child, 0]
    else:
        nodes[node, KEYS + place] = nodes[child, KEYS]
        nodes[node, SLOTS + place] = nodes[child, SLOTS]


@tight
def _split_leaf(
    keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, node: Word, place: Word, kept: Word
) -> None:
    """Splits the full leaf that is child `place`; it keeps the first `kept` entries."""
    leaf = nodes[node, CHILDREN + place]
    _lift_fingers(control, leaf)
    right = _take_leaf(sizes, control)
    for index in range(kept, LEAF):
        keys[right, index - kept] = keys[leaf, index]
        slots[right, index - kept] = slots[leaf, index]
    sizes[leaf] = kept
    sizes[right] = LEAF - kept
    _open_child(nodes, node, place + 1)
    nodes[node, CHILDREN + place + 1] = right
    nodes[node, WEIGHTS + place] = kept
    nodes[node, WEIGHTS + place + 1] = LEAF - kept
    _set_least(keys, slots, nodes, node, place + 1, right, True)


@tight
def _split_node(nodes: Int64s, control: Int64s, node: Word, place: Word) -> None:
    """Splits the full inner node that is child `place`."""
    child = nodes[node, CHILDREN + place]
    right = _take_node(nodes, control)
    half = FAN // 2
    moved = np.int64(0)
    for index in range(half, FAN):
        for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
            nodes[right, section + index - half] = nodes[child, section + index]
        moved += nodes[child, WEIGHTS + index]
    nodes[child, SIZE] = half
    nodes[right, SIZE] = FAN - half
    _open_child(nodes, node, place + 1)
    nodes[node, CHILDREN + place + 1] = right
    nodes[node, WEIGHTS + place] -= moved
    nodes[node, WEIGHTS + place + 1] = moved
    nodes[node, KEYS + place + 1] = nodes[right, KEYS]
    nodes[node, SLOTS + place + 1] = nodes[right, SLOTS]


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
                _set_least(keys, slots, nodes, node, place, child, height == 0)
                nodes[node, WEIGHTS + place] = _weight(sizes, nodes, child, height == 0)
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
def _weight(sizes: Slots, nodes: Int64s, child: Word, is_leaf: bool) -> Word:
    """How many entries are below a leaf or node."""
    if is_leaf:
        return np.int64(sizes[child])
    weight = np.int64(0)
    for index in range(nodes[child, SIZE]):
        weight += nodes[child, WEIGHTS + index]
    return weight


@tight
def _raise_root(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s) -> None:
    """A new root above a full one, so that it can be split like any child."""
    old = control[ROOT]
    root = _take_node(nodes, control)
    nodes[root, SIZE] = 1
    nodes[root, CHILDREN] = old
    nodes[root, WEIGHTS] = _weight(sizes, nodes, old, control[HEIGHT] == 0)
    _set_least(keys, slots, nodes, root, 0, old, control[HEIGHT] == 0)
    control[ROOT] = root
    control[HEIGHT] += 1


@inline
def _shift(keys: Int64s, slots: Slots, leaf: Word, place: Word, to: Word, count: Word) -> None:
    """Moves entries of a leaf to another place of it."""
    at = leaf * LEAF
    move_bytes(keys.ctypes.data + 8 * (at + to), keys.ctypes.data + 8 * (at + place), 8 * count)
    move_bytes(slots.ctypes.data + 4 * (at + to), slots.ctypes.data + 4 * (at + place), 4 * count)


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
        place = _child_for(nodes, node, slot, key)
        last = last and place == nodes[node, SIZE] - 1
        if place == 0 and _before(slot, key, nodes[node, SLOTS], nodes[node, KEYS]):
            nodes[node, SLOTS] = slot
            nodes[node, KEYS] = key
        child = nodes[node, CHILDREN + place]
        full = (sizes[child] == LEAF) if level == 1 else (nodes[child, SIZE] == FAN)
        if full:
            if level > 1:
                _split_node(nodes, control, node, place)
            else:
                rising = last and _before(slots[child, LEAF - 1], keys[child, LEAF - 1], slot, key)
                _split_leaf(keys, slots, sizes, nodes, control, node, place, LEAF - 1 if rising else LEAF // 2)
            if not _before(slot, key, nodes[node, SLOTS + place + 1], nodes[node, KEYS + place + 1]):
                place += 1
            child = nodes[node, CHILDREN + place]
        nodes[node, WEIGHTS + place] += 1
        node = child
    size = np.int64(sizes[node])
    place = _place_in_leaf(keys, slots, node, size, slot, key)
    _shift(keys, slots, node, place, place + 1, size - place)
    keys[node, place] = key
    slots[node, place] = slot
    sizes[node] = size + 1
    _move_fingers(keys, slots, control, node, slot, key, 1)


@tight
def delete(keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, slot: Word, key: Word) -> None:
    """Takes one (slot, key) out; it is there."""
    node = control[ROOT]
    height = control[HEIGHT]
    for level in range(height):
        place = _child_for(nodes, node, slot, key)
        control[PATH + 2 * level] = node
        control[PATH + 2 * level + 1] = place
        nodes[node, WEIGHTS + place] -= 1
        node = nodes[node, CHILDREN + place]
    size = np.int64(sizes[node]) - 1
    place = _place_in_leaf(keys, slots, node, size + 1, slot, key)
    _shift(keys, slots, node, place + 1, place, size - place)
    sizes[node] = size
    _move_fingers(keys, slots, control, node, slot, key, -1)
    if place == 0 or size < LEAF // 4:
        _repair(keys, slots, sizes, nodes, control, node)


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
                _free_leaf(sizes, control, child)
            else:
                _free_node(nodes, control, child)
            _drop_child(nodes, node, place)
        else:
            _set_least(keys, slots, nodes, node, place, child, is_leaf)
            if size < (LEAF if is_leaf else FAN) // 4 and nodes[node, SIZE] > 1:
                left = place if place + 1 < nodes[node, SIZE] else place - 1
                _merge(keys, slots, sizes, nodes, control, node, left, is_leaf)
        child = node
    if height > 0 and nodes[control[ROOT], SIZE] == 0:
        _free_node(nodes, control, control[ROOT])
        plant(sizes, control)
    while control[HEIGHT] > 0 and nodes[control[ROOT], SIZE] == 1:
        root = control[ROOT]
        control[ROOT] = nodes[root, CHILDREN]
        control[HEIGHT] -= 1
        _free_node(nodes, control, root)


@tight
def _merge(
    keys: Int64s,
    slots: Slots,
    sizes: Slots,
    nodes: Int64s,
    control: Int64s,
    node: Word,
    left_place: Word,
    is_leaf: bool,
) -> None:
    """Moves a child into its left neighbour, unless that would be over three quarters full."""
    left, right = nodes[node, CHILDREN + left_place], nodes[node, CHILDREN + left_place + 1]
    if is_leaf:
        size, more = np.int64(sizes[left]), np.int64(sizes[right])
        if size + more > LEAF * 3 // 4:
            return
        for index in range(more):
            keys[left, size + index] = keys[right, index]
            slots[left, size + index] = slots[right, index]
        sizes[left] = size + more
        _free_leaf(sizes, control, right)
    else:
        size, more = nodes[left, SIZE], nodes[right, SIZE]
        if size + more > FAN * 3 // 4:
            return
        for index in range(more):
            for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
                nodes[left, section + size + index] = nodes[right, section + index]
        nodes[left, SIZE] = size + more
        _free_node(nodes, control, right)
    nodes[node, WEIGHTS + left_place] += nodes[node, WEIGHTS + left_place + 1]
    _drop_child(nodes, node, left_place + 1)


@tight
def entries(sizes: Slots, nodes: Int64s, control: Int64s) -> Word:
    """How many entries there are."""
    if control[LEAVES_USED] == 0:
        return np.int64(0)
    return _weight(sizes, nodes, control[ROOT], control[HEIGHT] == 0)


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
    return rank + _place_in_leaf(keys, slots, node, np.int64(sizes[node]), slot, least)


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
