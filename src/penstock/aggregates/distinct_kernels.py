"""Loops of `distinct.DistinctState` over its table and, with MODE, over nodes and rows (`modes`)."""

from __future__ import annotations

import numpy as np

from penstock.aggregates import modes
from penstock.aggregates import value_table as values
from penstock.aggregates.images import image_of_key, ordering_key
from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import tight


@tight
def play(
    table: Int64s,
    used: Int64s,
    distinct: Int64s,
    generations: Int64s,
    with_modes: bool,
    nodes: Int64s,
    rows: Int64s,
    control: Int64s,
    roots: Int64s,
    floating: bool,
    positions: Int64s,
    add_slots: Slots,
    entering: Int64s,
    entering_valid: Bools,
    remove_slots: Slots,
    leaving: Int64s,
    leaving_valid: Bools,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    counts: Int64s,
    most: Int64s,
) -> None:
    entered = left = emitted = 0
    for step in range(len(add_upto)):
        for row in range(entered, add_upto[step]):
            slot = np.int64(add_slots[row])
            if slot >= 0 and (len(entering_valid) == 0 or entering_valid[row]):
                key = ordering_key(entering[row], floating)
                owner = values.owner_of(slot, generations)
                cell = values.find(table, owner, key)
                if table[cell, values.OWNER] == values.EMPTY:
                    table[cell, values.OWNER] = owner
                    table[cell, values.VALUE] = key
                    table[cell, values.LOAD] = modes.new_node(nodes, control, key) if with_modes else 0
                    used[0] += 1
                    distinct[slot] += 1
                if with_modes:
                    modes.row_enters(nodes, rows, control, roots, slot, table[cell, values.LOAD], positions[row])
                else:
                    table[cell, values.LOAD] += 1
        entered = add_upto[step]
        for row in range(left, remove_upto[step]):
            slot = np.int64(remove_slots[row])
            if slot >= 0 and (len(leaving_valid) == 0 or leaving_valid[row]):
                key = ordering_key(leaving[row], floating)
                cell = values.find(table, values.owner_of(slot, generations), key)
                if with_modes:
                    gone = modes.oldest_row_leaves(nodes, rows, control, roots, slot, table[cell, values.LOAD])
                else:
                    table[cell, values.LOAD] -= 1
                    gone = table[cell, values.LOAD] == 0
                if gone:
                    values.erase(table, cell)
                    used[0] -= 1
                    distinct[slot] -= 1
        left = remove_upto[step]
        for index in range(emitted, emit_upto[step]):
            slot = np.int64(emit_slots[index])
            counts[index] = distinct[slot]
            if with_modes:
                root = roots[slot]
                most[index] = image_of_key(nodes[root, modes.VALUE], floating) if root != modes.NONE else 0
        emitted = emit_upto[step]


@tight
def rebuild(table: Int64s, rebuilt: Int64s, generations: Int64s) -> None:
    """Moves what is not stale into an empty table."""
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and values.is_live(owner, generations):
            place = values.find(rebuilt, owner, table[cell, values.VALUE])
            for word in range(3):
                rebuilt[place, word] = table[cell, word]


@tight
def forget(
    table: Int64s,
    used: Int64s,
    generations: Int64s,
    nodes: Int64s,
    rows: Int64s,
    control: Int64s,
    roots: Int64s,
    slots: Slots,
) -> None:
    """Frees all nodes and rows of some slots."""
    for slot in slots:
        while roots[slot] != modes.NONE:
            root = roots[slot]
            values.erase(table, values.find(table, values.owner_of(slot, generations), nodes[root, modes.VALUE]))
            used[0] -= 1
            modes.discard_root(nodes, rows, control, roots, slot)


@tight
def export(table: Int64s, generations: Int64s, with_modes: bool, nodes: Int64s, found: Int64s) -> None:
    entry = 0
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and values.is_live(owner, generations):
            load = table[cell, values.LOAD]
            found[0, entry] = owner & 0xFFFF_FFFF
            found[1, entry] = table[cell, values.VALUE]
            found[2, entry] = nodes[load, modes.COUNT] if with_modes else load
            entry += 1


@tight
def export_positions(table: Int64s, generations: Int64s, nodes: Int64s, rows: Int64s, positions: Int64s) -> None:
    at = 0
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and values.is_live(owner, generations):
            row = nodes[table[cell, values.LOAD], modes.OLDEST]
            while row != modes.NONE:
                positions[at] = rows[row, modes.POSITION]
                row = rows[row, modes.FOLLOWING]
                at += 1


@tight
def load(
    table: Int64s,
    used: Int64s,
    distinct: Int64s,
    generations: Int64s,
    with_modes: bool,
    nodes: Int64s,
    rows: Int64s,
    control: Int64s,
    roots: Int64s,
    entry_slots: Int64s,
    entry_keys: Int64s,
    entry_counts: Int64s,
    positions: Int64s,
) -> None:
    at = 0
    for entry in range(len(entry_slots)):
        slot, key = entry_slots[entry], entry_keys[entry]
        owner = values.owner_of(slot, generations)
        cell = values.find(table, owner, key)
        table[cell, values.OWNER] = owner
        table[cell, values.VALUE] = key
        table[cell, values.LOAD] = modes.new_node(nodes, control, key) if with_modes else entry_counts[entry]
        used[0] += 1
        distinct[slot] += 1
        if with_modes:
            for _ in range(entry_counts[entry]):
                modes.row_enters(nodes, rows, control, roots, slot, table[cell, values.LOAD], positions[at])
                at += 1
