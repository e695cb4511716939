"""What events do to a table, one statement at a time: ON ... INSERT, UPSERT, UPDATE, DELETE, compiled.

`Statement.operations` computes everything of a run of events that needs no look at the table; `apply` carries out
operations on keys that all differ, so that they may be done together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int32s, Int64s
from penstock.expressions.batch import Batch, Data, Rows, arrow_of
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.tree import Expression, columns
from penstock.expressions.vector import Evaluated, Vector
from penstock.lang.table_defs import ChangeKind, TableWrite
from penstock.operators.chunk import Chunk, readable
from penstock.operators.resources import Resources
from penstock.operators.tables.additions import addition
from penstock.operators.tables.counting import Counting
from penstock.operators.tables.expiry import WRITTEN
from penstock.operators.tables.history import Stamps
from penstock.operators.tables.matched import Matched
from penstock.operators.tables.table import Table
from penstock.types import SqlType


@dataclass
class Operations:
    """What a run of events asks of one statement: the events' columns as the statement names them, their stamps and
    keys. `ready` are the columns to set that are known already."""

    statement: Statement
    events: Rows
    stamps: Stamps
    words: Int64s
    ready: dict[str, Argument]

    def __len__(self) -> int:
        return int(self.events.num_rows)

    def row(self, index: int) -> dict[str, Any]:
        """An event for a message."""
        return _event(self.events, index)


@dataclass
class Outcome:
    """What operations did, those at `places` (the others did nothing): which changed something, which found a row, and
    what was in it (if a query may read it)."""

    places: Int64s
    changed: Bools
    existed: Bools
    before: list[Argument]


class Statement:
    """`number` orders the statements of a program; the changes of one event are made in this order."""

    def __init__(self, number: int, write: TableWrite, table: Table, resources: Resources) -> None:
        self.number = number
        self.write = write
        self._table = table
        self._reject = resources.reject
        sides = {write.alias, table.definition.name}
        self._counts = [Counting(table, count, sides, resources) for count in write.counted]
        self._own = f"{table.definition.name}."
        self._where = None if write.where is None else compile_expression(write.where)
        self._keys = [(compile_expression(key), key.type) for key in write.keys]
        self._match = None if write.match is None else compile_expression(write.match)
        self.kinds = {name: expression.type for name, expression in write.sets}
        if table.expiry is not None:
            self.kinds[WRITTEN] = SqlType.BIGINT
        self._early = {n: compile_expression(e) for n, e in write.sets if is_total(e) and not self._reads_table(e)}
        self.adds = {n: a for n, e in write.sets if (a := addition(e, f"{self._own}{n}")) is not None}
        self._late = {n: compile_expression(e) for n, e in write.sets if n not in self._early}
        needed = [e for n, e in write.sets if n in self._late] + ([] if write.match is None else [write.match])
        self._looks_at = self._read(needed)
        asked = [write.match, *(count.condition for count in write.counted)]
        self._matches_by = self._read([condition for condition in asked if condition is not None])
        self._kinds = {f"{self._own}{f.name}": f.type for f in table.definition.schema}
        self._required = [f.name for f in table.others if not f.nullable]

    @property
    def is_keyed(self) -> bool:
        return bool(self._keys)

    @property
    def is_alone(self) -> bool:
        """Whether its operations are carried out one after the other: each concerns rows of other keys than its own."""
        return not self._keys or bool(self._counts)

    @property
    def runs(self) -> bool:
        """Whether each column that it sets is known without the table or adds to what is there, and nothing else is
        asked: then many operations on one key are one pass."""
        known = all(name in self.adds for name in self._late)
        kinds = (ChangeKind.UPSERT, ChangeKind.UPDATE)
        return self.is_keyed and known and self._match is None and self.write.kind in kinds

    @property
    def is_blind(self) -> bool:
        """Whether it leaves the same row whatever there was, and no reader asks what there was."""
        table = self._table
        sets_all = self.write.kind is ChangeKind.UPSERT and not self._late and self._match is None
        sets_all = sets_all and all(field.name in self._early for field in table.others)
        return sets_all and not self._counts and not table.keeps_history

    def _read(self, expressions: Sequence[Expression]) -> list[str]:
        """The columns of the table that expressions read."""
        return sorted({n.removeprefix(self._own) for e in expressions for n in columns(e) if n.startswith(self._own)})

    def _reads_table(self, expression: Expression) -> bool:
        return any(name.startswith(self._own) for name in columns(expression))

    # Events to operations

    def operations(self, chunk: Chunk, position: int, sequences: Int64s) -> Operations | None:
        """The operations that the events ask for; None if no event passes WHERE."""
        events = _prefixed(chunk.columns, f"{self.write.alias}.")
        times = chunk.times
        keep = np.ones(chunk.rows, np.bool_)
        if self._where is not None:
            keep = self._without(self._where(events), events, keep, condition=True)
        keys: list[Evaluated] = []
        for compiled, _ in self._keys:
            key = compiled(events)
            keep = self._without(key, events, keep)
            keys.append(key)
        words = np.empty((chunk.rows, 0), np.int64)
        if keys:
            words, valid = self._table.words(keys, [kind for _, kind in self._keys])
            if valid is not None:
                keep = self._with_keys(events, keep, valid)
            if self.write.kind in (ChangeKind.INSERT, ChangeKind.UPSERT):
                keep = self._with_fit_keys(events, keep, words)
        ready = {n: self._table.stored(n, c(events), self.kinds[n]) for n, c in self._early.items()}
        if self._table.expiry is not None and self.write.kind is not ChangeKind.DELETE:
            ready[WRITTEN] = Argument(times, None)
        stamps = Stamps(times, np.full(chunk.rows, position, np.int64), sequences)
        done = Operations(self, events, stamps, words, ready)
        return done if keep.all() else _part(done, np.flatnonzero(keep))

    def _with_keys(self, events: Rows, keep: Bools, valid: Bools) -> Bools:
        """NULL is no key: it finds nothing, and nothing can be stored under it."""
        if self.write.kind in (ChangeKind.INSERT, ChangeKind.UPSERT):
            for row in np.flatnonzero(keep & ~valid).tolist():
                self.refuse(events, row, f"NULL_KEY: the key of {self._table.definition.name} is NULL")
        return keep & valid

    def _with_fit_keys(self, events: Rows, keep: Bools, words: Int64s) -> Bools:
        kept = np.flatnonzero(keep)
        unfit = self._table.unfit_keys(words[kept])
        if unfit is None:
            return keep
        for row in kept[unfit].tolist():
            self.refuse(events, row, self._unfit_reason(", ".join(self._table.definition.key)))
        keep = keep.copy()
        keep[kept[unfit]] = False
        return keep

    def _unfit_reason(self, name: str) -> str:
        return f"UNFIT: the database of {self._table.definition.name} cannot keep such a value of '{name}'"

    def _without(self, found: Evaluated, events: Rows, keep: Bools, *, condition: bool = False) -> Bools:
        errors = found.errors
        if errors is not None:
            for row in np.flatnonzero(errors.mask & keep).tolist():
                self.refuse(events, row, errors.reason(row) or "")
            keep = keep & ~errors.mask
        return keep & found.true if condition else keep

    def refuse(self, events: Rows, row: int, reason: str) -> None:
        self._reject(reason, _event(events, row))

    # Operations to changes

    def apply(self, operations: Operations, rows: Int64s) -> Outcome:
        """Carries out some of the operations, in order, whose keys all differ."""
        whole = len(rows) == len(operations)
        words = operations.words if whole else operations.words[rows]
        before = self._table.look_up(words, None, None)
        return self._apply(operations, rows, words, before, whole=whole)

    def apply_alone(self, operations: Operations, row: int) -> tuple[Int64s, Outcome]:
        """Carries out one operation, on the row of its key or on all rows of the table that match; returns their keys
        in order."""
        table = self._table
        if self._keys:
            only = np.array([row])
            return operations.words[only], self.apply(operations, only)
        all_words = table.store.key_words(table.all_rows())
        words = all_words[table.ordered(all_words)]
        before = table.look_up(words, None, None)
        rows = np.full(len(words), row, np.int64)
        if table.expiry is not None:
            there = table.alive(before, operations.stamps.times[rows]).there
            words, rows = words[there], rows[there]
            before = table.look_up(words, None, None)
        return words, self._apply(operations, rows, words, before, whole=False)

    def _apply(self, operations: Operations, rows: Int64s, words: Int64s, before: Matched, *, whole: bool) -> Outcome:
        """With `whole`, `rows` are all operations in their order. A row whose time is over is as good as none, but it
        was there for readers of the past."""
        held = before
        if self._table.expiry is not None:
            before = self._table.alive(held, operations.stamps.times[rows])
        kind, there = self.write.kind, before.there
        places = np.arange(len(rows))
        if self._match is not None:
            # Those that match may be few: nothing else is computed of the others.
            batch = self._rows(operations, rows, before, self._matches_by, whole=whole)
            for count in self._counts:
                numbers = Vector(count.of(Chunk(operations.stamps.times[rows], batch)), None)
                batch = batch.with_columns({count.name: numbers}, {count.name: SqlType.BIGINT})
            asked = there if kind in (ChangeKind.UPDATE, ChangeKind.DELETE) else np.ones(len(rows), np.bool_)
            places = np.flatnonzero(self._met(self._match(batch), operations, rows, asked, condition=True))
            if len(places) < len(rows):
                rows, words, whole = rows[places], words[places], False
                held = before = self._table.rows_at(before.rows[places])
                if self._table.expiry is not None:
                    before = self._table.alive(held, operations.stamps.times[rows])
                there = before.there
        if kind is ChangeKind.INSERT:
            for at in np.flatnonzero(there).tolist():
                self._refuse_at(operations, rows, at, f"DUPLICATE_KEY: {self._table.definition.name} has this key")
            changed = ~there
        elif kind is ChangeKind.UPSERT:
            changed = np.ones(len(rows), np.bool_)
        else:
            changed = there.copy()
        # Read before anything is written: row numbers do not last.
        old = [held.argument(f.name) for f in self._table.others] if self._table.keeps_history else []
        if not changed.any():
            return Outcome(places, changed, held.there, old)
        if kind is ChangeKind.DELETE:
            self._table.remove(words[changed])
            return Outcome(places, changed, held.there, old)
        batch = Batch({}, {}, len(rows))
        if self._late:
            batch = self._rows(operations, rows, before, self._looks_at, whole=whole)
        sets = {name: column if whole else column.at(rows) for name, column in operations.ready.items()}
        for name, compiled in self._late.items():
            found = compiled(batch)
            changed = self._met(found, operations, rows, changed)
            sets[name] = self._table.stored(name, found, self.kinds[name])
        for name in self._required:
            changed = self._not_null(name, sets.get(name), operations, rows, changed, there)
        for name, column in sets.items():
            changed = self._fit(name, column, operations, rows, changed)
        known: Int32s | None = before.rows
        if held is not before:
            over = changed & held.there & ~there
            if over.any():
                self._table.begin_anew(words[over])
                known = None
        if changed.all():
            self._table.write(words, sets, known)
        else:
            those = np.flatnonzero(changed)
            some = {name: column.at(those) for name, column in sets.items()}
            self._table.write(words[those], some, None if known is None else known[those])
        return Outcome(places, changed, held.there, old)

    def _rows(
        self, operations: Operations, rows: Int64s, before: Matched, looks_at: Sequence[str], *, whole: bool
    ) -> Batch:
        """The events beside the rows of the table that they concern, with the columns that are looked at."""
        events = operations.events if whole else arrow_of(operations.events).take(pa.array(rows))
        brought = {f"{self._own}{name}": before.column(name) for name in looks_at}
        if isinstance(events, Batch):
            return events.with_columns(brought, self._kinds)
        data: dict[str, Data] = dict(zip(events.schema.names, events.columns, strict=True))
        return Batch(self._kinds | dict.fromkeys(events.schema.names, SqlType.NULL), data | brought, len(rows))

    def _met(
        self, found: Evaluated, operations: Operations, rows: Int64s, changed: Bools, *, condition: bool = False
    ) -> Bools:
        errors = found.errors
        if errors is not None:
            for at in np.flatnonzero(errors.mask & changed).tolist():
                self._refuse_at(operations, rows, at, errors.reason(at) or "")
            changed = changed & ~errors.mask
        return changed & found.true if condition else changed

    def _not_null(
        self, name: str, column: Argument | None, operations: Operations, rows: Int64s, changed: Bools, there: Bools
    ) -> Bools:
        """A column that is never NULL has a value, or had one."""
        missing = changed & ~there if column is None else changed & _nulls(column, len(changed))
        for at in np.flatnonzero(missing).tolist():
            reason = f"NOT_NULL: '{name}' of {self._table.definition.name} would be NULL"
            self._refuse_at(operations, rows, at, reason)
        return changed & ~missing

    def _fit(self, name: str, column: Argument, operations: Operations, rows: Int64s, changed: Bools) -> Bools:
        unfit = self._table.unfit(name, column)
        if unfit is None:
            return changed
        for at in np.flatnonzero(changed & unfit).tolist():
            self._refuse_at(operations, rows, at, self._unfit_reason(name))
        return changed & ~unfit

    def _refuse_at(self, operations: Operations, rows: Int64s, at: int, reason: str) -> None:
        self._reject(reason, operations.row(int(rows[at])))


def _prefixed(rows: Rows, prefix: str) -> Rows:
    """The columns as a statement names them."""
    if isinstance(rows, Batch):
        return rows.prefixed(prefix)
    return pa.RecordBatch.from_arrays(rows.columns, names=[prefix + name for name in rows.schema.names])


def _event(events: Rows, row: int) -> dict[str, Any]:
    """An event for a message, with its own names."""
    only = arrow_of(events).slice(row, 1)
    plain = [name.partition(".")[2] for name in only.schema.names]
    return readable(pa.RecordBatch.from_arrays(only.columns, names=plain))[0]


def _nulls(column: Argument, rows: int) -> Bools:
    return np.zeros(rows, np.bool_) if column.valid is None else ~column.valid


def _part(operations: Operations, rows: Int64s) -> Operations | None:
    if not len(rows):
        return None
    return Operations(
        operations.statement,
        arrow_of(operations.events).take(pa.array(rows)),
        Stamps(*(part[rows] for part in operations.stamps)),
        operations.words[rows],
        {name: column.at(rows) for name, column in operations.ready.items()},
    )
