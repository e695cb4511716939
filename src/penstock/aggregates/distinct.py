"""COUNT_DISTINCT and MODE of one argument, exactly. NULLs are ignored; NaN is one value, and -0.0 is 0.0.

The distinct values of all slots are in one hash table (`value_table`). For COUNT_DISTINCT alone a cell counts the
rows that hold its value; where MODE is wanted it names the value's node in a heap per slot (`modes`).

Invariants:
1. `_distinct[s]` is the number of distinct values of slot s now in the window.
2. `_used` cells of the table are taken, `_stale` of them by slots that were reset since the last rebuild (a reset
   slot with MODE leaves nothing behind: its rows must be freed anyway).
3. Table, nodes and rows have room for the rows of a call before its first row enters: a `BudgetError` from `advance`
   changes nothing.

Created by the factory; driven by the operator through `AggregateState`.

Why: docs/decisions/deques-and-trees.md
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.aggregates import modes
from penstock.aggregates import value_table as values
from penstock.aggregates.columns import ALL_VALID, BOOL, INT32, NO_INTEGERS, plain
from penstock.aggregates.images import from_images, image_of_key, images, ordering_key
from penstock.aggregates.state import AggregateState, Argument, Emitted, Rows, Schedule, Snapshot, Want
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError
from penstock.jit import tight
from penstock.store.budget import Account
from penstock.store.own_memory import give_back
from penstock.types import SqlType

_REBUILT_IN = 16
"""Parts in which a table goes over into a larger one."""


@component("DistinctState")
class DistinctState(AggregateState):
    """Serves COUNT_DISTINCT and MODE, in the order wanted.

    >>> from penstock.store.budget import Budget
    >>> state = DistinctState([Want("COUNT_DISTINCT"), Want("MODE")], SqlType.INT, Budget(1 << 20).account("x"))
    >>> state.ensure(1)
    >>> rows = Rows(np.arange(4), np.zeros(4, np.int32), (Argument(np.array([7, 3, 3, 7], dtype=np.int32), None),))
    >>> none = Rows(np.arange(0), np.zeros(0, np.int32), (Argument(np.zeros(0, np.int32), None),))
    >>> once = Schedule(np.array([4]), np.array([0]), np.array([1]), np.zeros(1, np.int32))
    >>> [column.values.tolist() for column in state.advance(rows, none, once)]
    [[2], [7]]
    """

    def __init__(self, wants: Sequence[Want], argument: SqlType, account: Account) -> None:
        self._functions = tuple(want.function for want in wants)
        self._with_modes = "MODE" in self._functions
        self._storage = argument.storage
        self._floating = argument.is_floating
        self._account = account
        self._distinct: Int64s = NO_INTEGERS
        self._generations: Int64s = NO_INTEGERS
        self._roots: Int64s = NO_INTEGERS
        self._clear()

    def _clear(self) -> None:
        self._table = values.empty_table(values.cells_for(0))
        self._used: Int64s = np.zeros(1, dtype=np.int64)
        self._stale = 0
        self._nodes: Int64s = np.zeros((0, modes.NODE_WORDS), dtype=np.int64)
        self._rows: Int64s = np.zeros((0, modes.ROW_WORDS), dtype=np.int64)
        self._control: Int64s = np.zeros(modes.CONTROL_WORDS, dtype=np.int64)
        self._control[[modes.FREE_NODE, modes.FREE_ROW]] = modes.NONE

    def ensure(self, slots: int) -> None:
        held = len(self._distinct)
        if slots > held:
            room = max(16, slots)
            self._charge(self.nbytes + 24 * (room - held))
            self._distinct = np.concatenate([self._distinct, np.zeros(room - held, dtype=np.int64)])
            first = np.full(room - held, values.FIRST_GENERATION, dtype=np.int64)
            self._generations = np.concatenate([self._generations, first])
            self._roots = np.concatenate([self._roots, np.full(room - held, modes.NONE, dtype=np.int64)])

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        self._reserve(added.size)
        entering, entering_valid = _column(added.arguments[0])
        leaving, leaving_valid = _column(removed.arguments[0])
        emits = len(schedule.emit_slots)
        counts = np.empty(emits, dtype=np.int64)
        most = np.empty(emits if self._with_modes else 0, dtype=np.int64)
        _play(
            self._table,
            self._used,
            self._distinct,
            self._generations,
            self._with_modes,
            self._nodes,
            self._rows,
            self._control,
            self._roots,
            self._floating,
            added.positions,
            added.slots,
            entering,
            entering_valid,
            removed.slots,
            leaving,
            leaving_valid,
            *schedule,
            counts,
            most,
        )
        return tuple(
            Emitted(from_images(most, self._storage), counts > 0) if function == "MODE" else Emitted(counts, None)
            for function in self._functions
        )

    def _reserve(self, rows: int) -> None:
        """Room for so many rows, even if each has a new value."""
        entries = int(self._used[0]) + rows
        rebuilds = values.cells_for(entries) > len(self._table)
        cells = values.cells_for(entries - self._stale) if rebuilds else len(self._table)
        nodes = _more(len(self._nodes), int(self._control[modes.NODES_USED]) + rows) if self._with_modes else 0
        kept = _more(len(self._rows), int(self._control[modes.ROWS_USED]) + rows) if self._with_modes else 0
        if not rebuilds and nodes == len(self._nodes) and kept == len(self._rows):
            return
        self._charge(3 * self._distinct.nbytes + 8 * (3 * cells + modes.NODE_WORDS * nodes + modes.ROW_WORDS * kept))
        self._nodes = _grown(self._nodes, nodes)
        self._rows = _grown(self._rows, kept)
        if rebuilds:
            table, step = values.empty_table(cells), max(1, len(self._table) // _REBUILT_IN)
            for start in range(0, len(self._table), step):
                part = self._table[start : start + step]
                _rebuild(part, table, self._generations)
                give_back(part)  # so that both together take no more than the new one
            self._table = table
            self._used[0] -= self._stale
            self._stale = 0

    def _charge(self, nbytes: int) -> None:
        try:
            self._account.resize(nbytes)
        except BudgetError as refusal:
            what = "every row" if self._with_modes else "every distinct value"
            names = " and ".join(sorted(set(self._functions)))
            raise BudgetError(f"{names} must keep {what} of the window in memory: {refusal}") from refusal

    def reset(self, slots: Slots) -> None:
        if self._with_modes:
            _forget(
                self._table,
                self._used,
                self._generations,
                self._nodes,
                self._rows,
                self._control,
                self._roots,
                plain(slots, INT32),
            )
        else:
            self._stale += int(self._distinct[slots].sum())
            self._generations[slots] += 1
        self._distinct[slots] = 0

    @property
    def nbytes(self) -> int:
        return 3 * self._distinct.nbytes + self._table.nbytes + self._nodes.nbytes + self._rows.nbytes

    def snapshot(self) -> Snapshot:
        """Per distinct value its slot, key and count; with MODE also the positions of its rows, oldest first."""
        entries = int(self._used[0]) - self._stale
        found = np.empty((3, entries), dtype=np.int64)
        _export(self._table, self._generations, self._with_modes, self._nodes, found)
        positions = np.empty(int(found[2].sum()) if self._with_modes else 0, dtype=np.int64)
        if self._with_modes:
            _export_positions(self._table, self._generations, self._nodes, self._rows, positions)
        return {
            "slots": len(self._distinct),
            "entry_slots": found[0],
            "entry_keys": found[1],
            "entry_counts": found[2],
            "positions": positions,
        }

    def restore(self, snapshot: Snapshot) -> None:
        counts = np.array(snapshot["entry_counts"], dtype=np.int64)
        self._clear()
        self._distinct = self._generations = self._roots = NO_INTEGERS
        self.ensure(snapshot["slots"])
        self._reserve(int(counts.sum()) if self._with_modes else len(counts))
        _load(
            self._table,
            self._used,
            self._distinct,
            self._generations,
            self._with_modes,
            self._nodes,
            self._rows,
            self._control,
            self._roots,
            np.array(snapshot["entry_slots"], dtype=np.int64),
            np.array(snapshot["entry_keys"], dtype=np.int64),
            counts,
            np.array(snapshot["positions"], dtype=np.int64),
        )


def _column(argument: Argument) -> tuple[Int64s, Bools]:
    return images(argument.values), ALL_VALID if argument.valid is None else plain(argument.valid, BOOL)


def _more(held: int, needed: int) -> int:
    return held if needed <= held else max(needed, held + held // 2)


def _grown(array: Int64s, length: int) -> Int64s:
    if length == len(array):
        return array
    grown = np.empty((length, array.shape[1]), dtype=np.int64)
    grown[: len(array)] = array
    return grown


@tight
def _play(
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
def _rebuild(table: Int64s, rebuilt: Int64s, generations: Int64s) -> None:
    """Moves what is not stale into an empty table."""
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and _is_live(owner, generations):
            place = values.find(rebuilt, owner, table[cell, values.VALUE])
            for word in range(3):
                rebuilt[place, word] = table[cell, word]


@tight
def _forget(
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
def _is_live(owner: np.int64, generations: Int64s) -> bool:
    return bool(generations[owner & 0xFFFF_FFFF] == owner >> 32)


@tight
def _export(table: Int64s, generations: Int64s, with_modes: bool, nodes: Int64s, found: Int64s) -> None:
    entry = 0
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and _is_live(owner, generations):
            load = table[cell, values.LOAD]
            found[0, entry] = owner & 0xFFFF_FFFF
            found[1, entry] = table[cell, values.VALUE]
            found[2, entry] = nodes[load, modes.COUNT] if with_modes else load
            entry += 1


@tight
def _export_positions(table: Int64s, generations: Int64s, nodes: Int64s, rows: Int64s, positions: Int64s) -> None:
    at = 0
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and _is_live(owner, generations):
            row = nodes[table[cell, values.LOAD], modes.OLDEST]
            while row != modes.NONE:
                positions[at] = rows[row, modes.POSITION]
                row = rows[row, modes.FOLLOWING]
                at += 1


@tight
def _load(
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
