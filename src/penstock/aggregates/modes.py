"""Which value of a slot is the most frequent, kept up row by row: a pairing heap of values per slot.

A value's node knows how many rows hold it and lists their positions, oldest first. The heap's root is the value with
the most rows and, among those, the one whose oldest row is oldest. A row that enters makes its value better: the
node is cut off and linked with the root. A row that leaves makes it worse: the node is taken out and put back.

Invariants:
1. `nodes[n, COUNT]` rows are chained from OLDEST to NEWEST in the order of their positions; FIRST is OLDEST's position.
2. No child beats its parent (`_beats`). PREVIOUS of a first child is its parent, of any other its left sibling.
3. Free nodes are chained by SIBLING, free rows by FOLLOWING, from `control`; the caller has made room beforehand.

Called by `distinct.DistinctState` alone.
"""

from __future__ import annotations

from penstock.aggregates.images import Word
from penstock.arrays import Int64s
from penstock.jit import tight

VALUE, COUNT, FIRST, OLDEST, NEWEST, CHILD, SIBLING, PREVIOUS = range(8)
NODE_WORDS = 8
POSITION, FOLLOWING = 0, 1
ROW_WORDS = 2
FREE_NODE, UNTOUCHED_NODE, FREE_ROW, UNTOUCHED_ROW, NODES_USED, ROWS_USED = range(6)
CONTROL_WORDS = 6
NONE = -1


@tight
def _beats(nodes: Int64s, node: Word, other: Word) -> bool:
    if nodes[node, COUNT] != nodes[other, COUNT]:
        return bool(nodes[node, COUNT] > nodes[other, COUNT])
    return bool(nodes[node, FIRST] < nodes[other, FIRST])


@tight
def _link(nodes: Int64s, one: Word, other: Word) -> Word:
    """Joins two heaps, either of which may be NONE; returns the root."""
    if one == NONE:
        return other
    if other == NONE:
        return one
    winner, loser = (one, other) if _beats(nodes, one, other) else (other, one)
    child = nodes[winner, CHILD]
    if child != NONE:
        nodes[child, PREVIOUS] = loser
    nodes[loser, SIBLING] = child
    nodes[loser, PREVIOUS] = winner
    nodes[winner, CHILD] = loser
    return winner


@tight
def _cut(nodes: Int64s, node: Word) -> None:
    """Takes a node that is no root, with its children, out of its heap."""
    previous, sibling = nodes[node, PREVIOUS], nodes[node, SIBLING]
    if nodes[previous, CHILD] == node:
        nodes[previous, CHILD] = sibling
    else:
        nodes[previous, SIBLING] = sibling
    if sibling != NONE:
        nodes[sibling, PREVIOUS] = previous
    nodes[node, SIBLING] = NONE
    nodes[node, PREVIOUS] = NONE


@tight
def _orphans(nodes: Int64s, node: Word) -> Word:
    """Takes the children off a node and makes them one heap: linked in pairs, then from the last pair to the first."""
    pairs: Word = NONE
    child: Word = nodes[node, CHILD]
    nodes[node, CHILD] = NONE
    while child != NONE:
        partner = nodes[child, SIBLING]
        following: Word = NONE
        nodes[child, SIBLING] = NONE
        nodes[child, PREVIOUS] = NONE
        if partner != NONE:
            following = nodes[partner, SIBLING]
            nodes[partner, SIBLING] = NONE
            nodes[partner, PREVIOUS] = NONE
        pair = _link(nodes, child, partner)
        nodes[pair, SIBLING] = pairs
        pairs = pair
        child = following
    heap: Word = NONE
    while pairs != NONE:
        following = nodes[pairs, SIBLING]
        nodes[pairs, SIBLING] = NONE
        heap = _link(nodes, heap, pairs)
        pairs = following
    return heap


@tight
def _take_out(nodes: Int64s, roots: Int64s, slot: Word, node: Word) -> None:
    """Takes a node alone out of its slot's heap."""
    if roots[slot] == node:
        roots[slot] = _orphans(nodes, node)
    else:
        _cut(nodes, node)
        roots[slot] = _link(nodes, roots[slot], _orphans(nodes, node))


@tight
def new_node(nodes: Int64s, control: Int64s, value: Word) -> Word:
    """A node without rows, in no heap."""
    node: Word = control[FREE_NODE]
    if node != NONE:
        control[FREE_NODE] = nodes[node, SIBLING]
    else:
        node = control[UNTOUCHED_NODE]
        control[UNTOUCHED_NODE] += 1
    control[NODES_USED] += 1
    nodes[node, VALUE] = value
    nodes[node, COUNT] = 0
    for word in (OLDEST, NEWEST, CHILD, SIBLING, PREVIOUS):
        nodes[node, word] = NONE
    return node


@tight
def row_enters(
    nodes: Int64s, rows: Int64s, control: Int64s, roots: Int64s, slot: Word, node: Word, position: Word
) -> None:
    """A row of the node's value, younger than all others, enters."""
    row = control[FREE_ROW]
    if row != NONE:
        control[FREE_ROW] = rows[row, FOLLOWING]
    else:
        row = control[UNTOUCHED_ROW]
        control[UNTOUCHED_ROW] += 1
    control[ROWS_USED] += 1
    rows[row, POSITION] = position
    rows[row, FOLLOWING] = NONE
    if nodes[node, COUNT] == 0:
        nodes[node, OLDEST] = row
        nodes[node, FIRST] = position
    else:
        rows[nodes[node, NEWEST], FOLLOWING] = row
        if roots[slot] != node:
            _cut(nodes, node)
    nodes[node, NEWEST] = row
    nodes[node, COUNT] += 1
    if roots[slot] != node:
        roots[slot] = _link(nodes, roots[slot], node)


@tight
def oldest_row_leaves(nodes: Int64s, rows: Int64s, control: Int64s, roots: Int64s, slot: Word, node: Word) -> bool:
    """The oldest row of the node's value leaves. Returns whether that was the last one and the node is gone."""
    row = nodes[node, OLDEST]
    following = rows[row, FOLLOWING]
    _free_row(rows, control, row)
    in_place = roots[slot] != node and nodes[node, CHILD] == NONE and following != NONE
    if not in_place:
        _take_out(nodes, roots, slot, node)
    nodes[node, COUNT] -= 1
    if following == NONE:
        _free_node(nodes, control, node)
        return True
    nodes[node, OLDEST] = following
    nodes[node, FIRST] = rows[following, POSITION]
    if not in_place:
        roots[slot] = _link(nodes, roots[slot], node)
    return False


@tight
def discard_root(nodes: Int64s, rows: Int64s, control: Int64s, roots: Int64s, slot: Word) -> None:
    """Forgets the value at the root of a slot's heap, with all its rows."""
    node = roots[slot]
    roots[slot] = _orphans(nodes, node)
    row = nodes[node, OLDEST]
    while row != NONE:
        following = rows[row, FOLLOWING]
        _free_row(rows, control, row)
        row = following
    _free_node(nodes, control, node)


@tight
def _free_row(rows: Int64s, control: Int64s, row: Word) -> None:
    rows[row, FOLLOWING] = control[FREE_ROW]
    control[FREE_ROW] = row
    control[ROWS_USED] -= 1


@tight
def _free_node(nodes: Int64s, control: Int64s, node: Word) -> None:
    nodes[node, SIBLING] = control[FREE_NODE]
    control[FREE_NODE] = node
    control[NODES_USED] -= 1
