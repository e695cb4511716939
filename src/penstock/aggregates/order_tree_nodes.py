"""The leaves and inner nodes of a counted B+-tree (`order_tree`): where they are, and changes of one or two of them.

Leaves are rows of three arrays: `keys` and `slots` have the entries, `sizes` their number. An inner node is a row of
the array `nodes`. `control` has the root, the free leaves and nodes, the path of a deletion, and the fingers.

Called by `order_tree`; its docstring has the invariants. `order_statistics` makes the arrays.

Why: docs/decisions/deques-and-trees.md
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.images import Word
from penstock.arrays import Int64s, Slots
from penstock.jit import inline, move_bytes, tight

LEAF = 128
FAN = 64
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


@inline
def precedes(slot: Word, key: Word, other_slot: Word, other_key: Word) -> bool | np.bool_:
    return slot < other_slot or (slot == other_slot and key < other_key)


@tight
def take_leaf(sizes: Slots, control: Int64s) -> Word:
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
def free_leaf(sizes: Slots, control: Int64s, leaf: Word) -> None:
    lift_fingers(control, leaf)
    sizes[leaf] = control[FREE_LEAF]
    control[FREE_LEAF] = leaf
    control[LEAVES_USED] -= 1


@tight
def take_node(nodes: Int64s, control: Int64s) -> Word:
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
def free_node(nodes: Int64s, control: Int64s, node: Word) -> None:
    nodes[node, SIZE] = control[FREE_NODE]
    control[FREE_NODE] = node
    control[NODES_USED] -= 1


@tight
def plant(sizes: Slots, control: Int64s) -> None:
    """An empty leaf as the root."""
    control[ROOT] = take_leaf(sizes, control)
    control[HEIGHT] = 0


@tight
def lift_fingers(control: Int64s, leaf: Word) -> None:
    """Entries of this leaf go elsewhere."""
    for finger in range(FINGERS, len(control), 2):
        if control[finger] == leaf:
            control[finger] = NONE


@inline
def move_fingers(keys: Int64s, slots: Slots, control: Int64s, leaf: Word, slot: Word, key: Word, by: int) -> None:
    """An entry has come to a leaf, or has gone: there are more or fewer before the leaves of fingers behind it."""
    for finger in range(FINGERS, len(control), 2):
        touched = control[finger]
        if touched != NONE and touched != leaf and precedes(slot, key, slots[touched, 0], keys[touched, 0]):
            control[finger + 1] += by


@tight
def child_for(nodes: Int64s, node: Word, slot: Word, key: Word) -> Word:
    """The last child whose least entry is not greater than (slot, key), or the first."""
    low, high = np.int64(1), nodes[node, SIZE]
    if nodes[node, SLOTS] == slot and nodes[node, SLOTS + high - 1] == slot:
        before = np.int64(0)  # a sum without a branch: the processor cannot guess the steps of a search
        for index in range(1, high):
            before += np.int64(nodes[node, KEYS + index] <= key)
        return before
    while low < high:
        middle = (low + high) >> 1
        if precedes(slot, key, nodes[node, SLOTS + middle], nodes[node, KEYS + middle]):
            high = middle
        else:
            low = middle + 1
    return low - 1


@tight
def place_in_leaf(keys: Int64s, slots: Slots, leaf: Word, size: Word, slot: Word, key: Word) -> Word:
    """The first entry of a leaf that is not less than (slot, key)."""
    low, high = np.int64(0), np.int64(size)
    if size > 0 and slots[leaf, 0] == slot and slots[leaf, size - 1] == slot:
        for index in range(size):
            low += np.int64(keys[leaf, index] < key)
        return low
    while low < high:
        middle = (low + high) >> 1
        if precedes(slots[leaf, middle], keys[leaf, middle], slot, key):
            low = middle + 1
        else:
            high = middle
    return low


@tight
def weight_of(sizes: Slots, nodes: Int64s, child: Word, is_leaf: bool) -> Word:
    """How many entries are below a leaf or node."""
    if is_leaf:
        return np.int64(sizes[child])
    weight = np.int64(0)
    for index in range(nodes[child, SIZE]):
        weight += nodes[child, WEIGHTS + index]
    return weight


@tight
def open_child(nodes: Int64s, node: Word, place: Word) -> None:
    """Makes room for a child at `place`."""
    for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
        for index in range(nodes[node, SIZE], place, -1):
            nodes[node, section + index] = nodes[node, section + index - 1]
    nodes[node, SIZE] += 1


@tight
def drop_child(nodes: Int64s, node: Word, place: Word) -> None:
    nodes[node, SIZE] -= 1
    for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
        for index in range(place, nodes[node, SIZE]):
            nodes[node, section + index] = nodes[node, section + index + 1]


@tight
def set_least(keys: Int64s, slots: Slots, nodes: Int64s, node: Word, place: Word, child: Word, is_leaf: bool) -> None:
    if is_leaf:
        nodes[node, KEYS + place] = keys[child, 0]
        nodes[node, SLOTS + place] = slots[child, 0]
    else:
        nodes[node, KEYS + place] = nodes[child, KEYS]
        nodes[node, SLOTS + place] = nodes[child, SLOTS]


@tight
def split_leaf(
    keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, node: Word, place: Word, kept: Word
) -> None:
    """Splits the full leaf that is child `place`; it keeps the first `kept` entries."""
    leaf = nodes[node, CHILDREN + place]
    lift_fingers(control, leaf)
    right = take_leaf(sizes, control)
    for index in range(kept, LEAF):
        keys[right, index - kept] = keys[leaf, index]
        slots[right, index - kept] = slots[leaf, index]
    sizes[leaf] = kept
    sizes[right] = LEAF - kept
    open_child(nodes, node, place + 1)
    nodes[node, CHILDREN + place + 1] = right
    nodes[node, WEIGHTS + place] = kept
    nodes[node, WEIGHTS + place + 1] = LEAF - kept
    set_least(keys, slots, nodes, node, place + 1, right, True)


@tight
def split_node(nodes: Int64s, control: Int64s, node: Word, place: Word) -> None:
    """Splits the full inner node that is child `place`."""
    child = nodes[node, CHILDREN + place]
    right = take_node(nodes, control)
    half = FAN // 2
    moved = np.int64(0)
    for index in range(half, FAN):
        for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
            nodes[right, section + index - half] = nodes[child, section + index]
        moved += nodes[child, WEIGHTS + index]
    nodes[child, SIZE] = half
    nodes[right, SIZE] = FAN - half
    open_child(nodes, node, place + 1)
    nodes[node, CHILDREN + place + 1] = right
    nodes[node, WEIGHTS + place] -= moved
    nodes[node, WEIGHTS + place + 1] = moved
    nodes[node, KEYS + place + 1] = nodes[right, KEYS]
    nodes[node, SLOTS + place + 1] = nodes[right, SLOTS]


@tight
def merge_children(
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
        free_leaf(sizes, control, right)
    else:
        size, more = nodes[left, SIZE], nodes[right, SIZE]
        if size + more > FAN * 3 // 4:
            return
        for index in range(more):
            for section in (KEYS, SLOTS, CHILDREN, WEIGHTS):
                nodes[left, section + size + index] = nodes[right, section + index]
        nodes[left, SIZE] = size + more
        free_node(nodes, control, right)
    nodes[node, WEIGHTS + left_place] += nodes[node, WEIGHTS + left_place + 1]
    drop_child(nodes, node, left_place + 1)


@inline
def shift_entries(keys: Int64s, slots: Slots, leaf: Word, place: Word, to: Word, count: Word) -> None:
    """Moves entries of a leaf to another place of it."""
    at = leaf * LEAF
    move_bytes(keys.ctypes.data + 8 * (at + to), keys.ctypes.data + 8 * (at + place), 8 * count)
    move_bytes(slots.ctypes.data + 4 * (at + to), slots.ctypes.data + 4 * (at + place), 4 * count)
