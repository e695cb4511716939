"""The columns that aggregates read. Each is computed once for all states, groupings and queries that read it.

A column has the name of what it computes (`plan.reads`). Strings travel as codes. An operator that stores rows calls
`use` when a row's strings are stored and `release` when the row is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.vector import Evaluated, RowErrors
from penstock.operators.chunk import Chunk
from penstock.operators.columns import to_argument, without_codes
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.plan.nodes import StateSpec
from penstock.plan.nullability import can_be_null
from penstock.plan.reads import Read, reads_of
from penstock.store.budget import Account
from penstock.store.fifo import ColumnSpec
from penstock.types import Schema


class StateColumns(NamedTuple):
    """Where a state finds its arguments and its filter among an aggregation's columns; filter -1 is none."""

    arguments: tuple[int, ...]
    filter: int


class Reading(Protocol):
    """What an aggregation reads: its groups and their row counts, and its columns. It saves what the reading holds with
    its states."""

    @property
    def groups(self) -> GroupTable: ...

    @property
    def counts(self) -> Int64s: ...

    @property
    def interners(self) -> tuple[Interner | None, ...]: ...

    @property
    def state_columns(self) -> tuple[StateColumns, ...]: ...

    def no_columns(self) -> tuple[Argument, ...]: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


class OwnColumns:
    """The columns of one aggregation, in the order of `names`."""

    def __init__(
        self,
        reads: tuple[Read, ...],
        states: tuple[StateSpec, ...],
        specs: tuple[ColumnSpec, ...],
        interners: tuple[Interner | None, ...],
    ) -> None:
        self.names = tuple(read.name for read in reads)
        self.specs = specs
        self.interners = interners
        places = {name: place for place, name in enumerate(self.names)}
        self.state_columns = tuple(
            StateColumns(
                tuple(places[Read(False, arg).name] for arg in state.args),
                -1 if state.filter is None else places[Read(True, state.filter).name],
            )
            for state in states
        )

    def nothing(self) -> tuple[Argument, ...]:
        """The columns of no rows."""
        return tuple(
            Argument(np.empty(0, spec.dtype), np.empty(0, np.bool_) if spec.nullable else None) for spec in self.specs
        )


class Computed(NamedTuple):
    """The columns of a chunk by name, and the rows of each on which it could not be computed. `texts` has columns of
    strings that are without codes: in `columns` they have zeros."""

    columns: dict[str, Argument]
    errors: dict[str, RowErrors]
    texts: dict[str, Evaluated]


class _Column:
    """One computed column, and how many aggregations read it."""

    def __init__(self, read: Read, account: Account) -> None:
        self.read = read
        self.compiled = compile_expression(read.expression)
        self.interner = Interner(account) if read.is_text else None
        self.readers = 0


class ArgumentColumns:
    """Strings are on the `account`."""

    def __init__(self, schema: Schema, account: Account) -> None:
        self._schema = schema
        self._account = account
        self._columns: dict[str, _Column] = {}
        self._texts: dict[str, Interner] = {}
        self.uncoded: set[str] = set()
        """Columns of strings whose readers have them elsewhere (`operators.paged.texts`)."""

    def read(self, states: tuple[StateSpec, ...]) -> OwnColumns:
        """From now on the columns of these states are computed."""
        reads = reads_of(states)
        for read in reads:
            column = self._columns.get(read.name) or _Column(read, self._account)
            self._columns[read.name] = column
            column.readers += 1
            if column.interner is not None:
                self._texts[read.name] = column.interner
        interners = tuple(self._columns[read.name].interner for read in reads)
        return OwnColumns(reads, states, tuple(map(self.spec, reads)), interners)

    def forget(self, columns: OwnColumns) -> None:
        """One reader less; columns without one are not computed any more."""
        for name in columns.names:
            self._columns[name].readers -= 1
            if self._columns[name].readers == 0:
                del self._columns[name]
                self.uncoded.discard(name)
                unread = self._texts.pop(name, None)
                if unread is not None:
                    unread.close()

    def spec(self, read: Read) -> ColumnSpec:
        if read.is_filter:
            return ColumnSpec(read.name, np.dtype(np.int8), False)
        return ColumnSpec(read.name, read.expression.type.storage, can_be_null(read.expression, self._schema))

    def leave_uncoded(self, name: str) -> None:
        """From now on the strings of a column have no codes: nothing is kept of them here."""
        self._texts.pop(name).close()
        self.uncoded.add(name)

    @property
    def has_texts(self) -> bool:
        """Whether there are columns of strings with codes."""
        return bool(self._texts)

    @property
    def texts(self) -> Mapping[str, Interner]:
        """The columns of strings."""
        return self._texts

    def knows(self, names: Iterable[str]) -> bool:
        return all(name in self._columns for name in names)

    def compute(self, chunk: Chunk) -> Computed:
        columns: dict[str, Argument] = {}
        errors: dict[str, RowErrors] = {}
        texts: dict[str, Evaluated] = {}
        for name, column in self._columns.items():
            result = column.compiled(chunk.columns)
            if name in self.uncoded:
                columns[name] = without_codes(result, chunk.rows)
                texts[name] = result
            elif column.read.is_filter:
                columns[name] = Argument(result.true.astype(np.int8), None)
            else:
                columns[name] = to_argument(result, column.read.expression.type, column.interner)
            if result.errors is not None:
                errors[name] = result.errors
        return Computed(columns, errors, texts)

    def use(self, columns: Mapping[str, Argument], among: Bools | None = None) -> None:
        """The strings of these rows (or of those `among` them) are in use; what else was met is forgotten."""
        for name, interner in self._texts.items():
            interner.use(codes_in_use(columns[name], among))
            interner.sweep()

    def sweep(self) -> None:
        """Forgets the strings of rows that were refused."""
        for interner in self._texts.values():
            interner.sweep()

    def release(self, columns: Mapping[str, Argument], among: Bools | None = None) -> None:
        """Rows are gone for good: the inverse of `use`."""
        for name, interner in self._texts.items():
            interner.release(codes_in_use(columns[name], among))

    def forget_texts(self) -> None:
        """No row has strings any more."""
        for interner in self._texts.values():
            interner.close()

    def snapshot(self) -> dict[str, Any]:
        return {name: interner.snapshot() for name, interner in self._texts.items()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, interner in self._texts.items():
            interner.restore(snapshot[name])


def codes_in_use(column: Argument, among: Bools | None) -> Slots:
    """The codes of rows that have a value."""
    codes: Slots = column.values
    if column.valid is not None:
        among = column.valid if among is None else among & column.valid
    return codes if among is None else codes[among]
