"""Many operations of one statement in one pass, also if several of them concern the same key.

Each new value of a column is known before, or is the old value plus something. Each key has a running row: the kernel
goes over the operations in order, notes the row before each operation and keeps the row after it. Rows are written
after the whole pass. If an operation fails (an overflow, a NULL that is not allowed), the pass is given up and the
operations are done in rounds, which reject the failing ones one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.aggregates.state import Argument, Values
from penstock.arrays import Bools, Int32s, Int64s
from penstock.jit import kernel
from penstock.lang.table_defs import ChangeKind
from penstock.operators.tables.changes import Operations
from penstock.operators.tables.history import Entries, Stamps
from penstock.operators.tables.table import Table
from penstock.store.keyed import KeyedStore

_SET, _ADD, _ADD_OR_DEFAULT = 0, 1, 2


@kernel
def _run(
    ids: Int64s, mode: int, sign: int, default: Any, values: Values, valid: Bools,
    running: Values, present: Bools, low: Any, high: Any, old: Values, old_valid: Bools,
) -> bool:  # fmt: skip
    """One column: `running` and `present` are the values by key, `old` those before each operation. Integers are int64,
    checked against the type's limits. Returns whether all went well."""
    for i in range(len(ids)):
        key = ids[i]
        old[i] = running[key]
        old_valid[i] = present[key]
        if mode == 0:
            running[key] = values[i]
            present[key] = valid[i]
            continue
        if not present[key] and mode == 2:
            running[key] = default
            present[key] = True
        if not valid[i] or not present[key]:
            present[key] = False
            continue
        added = running[key] + values[i] if sign > 0 else running[key] - values[i]
        grew = values[i] >= 0 if sign > 0 else values[i] < 0
        if low < high and (
            added < low or added > high or (grew and added < running[key]) or (not grew and added > running[key])
        ):
            return False
        running[key] = added
    return True


def run_together(table: Table, operations: Operations, rows: Int64s) -> Entries | None:
    """Carries out operations (in the order of `rows`) in one pass; None, and nothing done, if that cannot be. No row
    that one of them changes is over before the last one: their times are that close."""
    statement = operations.statement
    if not statement.runs:
        return None
    words = operations.words[rows]
    events = operations.events
    scratch, places, fresh = KeyedStore.numbering(words)
    firsts = np.flatnonzero(fresh)
    numbers = np.empty(scratch.partitions * scratch.capacity, np.int64)
    numbers[places[firsts]] = np.arange(len(firsts))
    ids = numbers[places]
    different = words if len(firsts) == len(words) else words[firsts]
    held_now = before = table.look_up(different, None, None)
    if table.expiry is not None:
        before = table.alive(held_now, operations.stamps.times[rows[firsts]])
    there = before.there
    if statement.write.kind is ChangeKind.UPDATE and not there.all():
        rows = rows[there[ids]]
        if not len(rows):
            return _nothing(table)
        return run_together(table, operations, rows)
    finals: dict[str, Argument] = {}
    olds: dict[str, Argument] = {}
    for name, kind in statement.kinds.items():
        storage: np.dtype[Any] = kind.storage
        floating = kind.is_floating
        plain: np.dtype[Any] = np.dtype(np.float64 if floating else np.int64)
        default: int | float = 0
        addition = statement.adds.get(name)
        if name in operations.ready:
            mode, sign = _SET, 1
            given = operations.ready[name].at(rows)
            plain = storage
        else:
            assert addition is not None
            mode = _ADD if addition.default is None else _ADD_OR_DEFAULT
            sign, default = addition.sign, addition.default or 0
            given = Argument(*addition.addend(events).columns).at(rows)
        held = before.argument(name)
        running = held.values.astype(plain)
        present = there.copy() if held.valid is None else held.valid & there
        limits = (0, 0) if floating or mode == _SET else (np.iinfo(storage).min, np.iinfo(storage).max)
        old = np.empty(len(ids), plain)
        old_valid = np.empty(len(ids), np.bool_)
        valid = np.ones(len(ids), np.bool_) if given.valid is None else given.valid
        cast = plain.type
        values = given.values.astype(plain, copy=False)
        went_well = _run(
            ids, mode, sign, cast(default), values, valid, running, present, cast(limits[0]), cast(limits[1]), old,
            old_valid,
        )  # fmt: skip
        if mode == _SET and table.unfit(name, given) is not None:
            return None
        nullable = table.others[table.places[name]].nullable
        if not went_well or (not nullable and not (present.all() and valid.all())):
            return None
        finals[name] = Argument(running.astype(storage, copy=False), None if present.all() else present)
        olds[name] = Argument(old.astype(storage, copy=False), None if old_valid.all() else old_valid)
    if any(not field.nullable and field.name not in finals for field in table.others) and not there.all():
        return None
    entries = _nothing(table)
    if table.keeps_history:
        existed = held_now.there[ids]
        existed[~fresh] = True
        columns = []
        for field in table.others:
            columns.append(olds[field.name] if field.name in olds else before.argument(field.name).at(ids))
        if held_now is not before:
            over = np.flatnonzero(held_now.there & ~there)
            for i, field in enumerate(table.others):
                columns[i] = _with(columns[i], firsts[over], held_now.argument(field.name).at(over))
        stamps = Stamps(*(part[rows] for part in operations.stamps))
        entries = Entries(stamps, words, existed, columns, differ=bool(fresh.all()))
    known: Int32s | None = before.rows
    if held_now is not before:
        table.begin_anew(different[held_now.there & ~there])
        known = None
    table.write(different, finals, known)
    return entries


def _with(column: Argument, places: Int64s, other: Argument) -> Argument:
    """The column with other values at some places."""
    values = column.values.copy()
    values[places] = other.values
    if column.valid is None and other.valid is None:
        return Argument(values, None)
    valid = np.ones(len(values), np.bool_) if column.valid is None else column.valid.copy()
    valid[places] = True if other.valid is None else other.valid
    return Argument(values, valid)


def _nothing(table: Table) -> Entries:
    none: Int64s = np.empty(0, np.int64)
    columns = [Argument(np.empty(0, field.type.storage), None) for field in table.others]
    words = np.empty((0, len(table.definition.key)), np.int64)
    return Entries(Stamps(none, none, none), words, np.empty(0, np.bool_), columns)
