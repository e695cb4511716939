"""What an aggregation reads of each event: its slot, and the columns its states take.

A row that fails WHERE, or on which a key or an argument cannot be computed, gets slot -1: it belongs to no group.
(The latter goes to the rejects, with the reason.) The columns are those that the window keeps, so that a row that
leaves needs no second evaluation: one per distinct argument and one per distinct FILTER.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Bools, Slots
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.tree import Expression
from penstock.expressions.vector import ColumnView, Evaluated, RowErrors
from penstock.operators.chunk import Chunk
from penstock.operators.columns import to_argument
from penstock.operators.emitter import Reject
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.plan.nodes import StateSpec
from penstock.plan.nullability import can_be_null
from penstock.store.fifo import ColumnSpec
from penstock.types import Schema, SqlType


class Taken(NamedTuple):
    """`keys` are the evaluated key columns, for results that show the arriving event's own group."""

    slots: Slots
    columns: tuple[Argument, ...]
    keys: list[Evaluated]


class StateColumns(NamedTuple):
    """Where a state finds its arguments and its filter among the columns; filter -1 is none."""

    arguments: tuple[int, ...]
    filter: int


class Intake:
    def __init__(
        self,
        where: Expression | None,
        keys: tuple[Expression, ...],
        states: tuple[StateSpec, ...],
        schema: Schema,
        reject: Reject,
        *,
        with_instances: bool = False,
    ) -> None:
        self._where = compile_expression(where) if where is not None else None
        self._keys = [compile_expression(key) for key in keys]
        self._reject = reject
        instance = (SqlType.BIGINT,) if with_instances else ()
        self.groups = GroupTable(instance + tuple(key.type for key in keys))
        distinct: dict[tuple[str, Expression], int] = {}
        for state in states:
            for role, expression in _reads(state):
                distinct.setdefault((role, expression), len(distinct))
        self._filters = [role == "filter" for role, _ in distinct]
        self._types = [expression.type for _, expression in distinct]
        self._compiled = [compile_expression(expression) for _, expression in distinct]
        self.interners = [
            Interner() if kind is SqlType.STRING and not is_filter else None
            for kind, is_filter in zip(self._types, self._filters, strict=True)
        ]
        self.state_columns = tuple(
            StateColumns(
                tuple(distinct["argument", arg] for arg in state.args),
                -1 if state.filter is None else distinct["filter", state.filter],
            )
            for state in states
        )
        self._has_strings = any(interner is not None for interner in self.interners)
        self._guards = _guards(states, distinct)
        self.one_group = not keys and not with_instances and all(is_total(expression) for _, expression in distinct)
        """Whether every row that passes WHERE is in the one group there is."""
        self.column_specs = tuple(
            ColumnSpec(f"c{i}", np.dtype(np.int8), False)
            if role == "filter"
            else ColumnSpec(f"c{i}", expression.type.storage, can_be_null(expression, schema))
            for i, (role, expression) in enumerate(distinct)
        )

    def passes(self, chunk: Chunk) -> Bools | None:
        """Which rows pass WHERE; None for all of them."""
        if self._where is None or chunk.rows == 0:
            return None
        result = self._where(chunk.columns)
        self.without(chunk, None, result.errors)
        return result.true

    def take(self, chunk: Chunk, keep: Bools | None, instances: pa.Array | None = None) -> Taken:
        """Evaluates a chunk; `instances` is a key that comes before the others: the window a row belongs to."""
        if chunk.rows == 0:
            return Taken(np.empty(0, np.int32), self.no_columns(), [])
        keys: list[Evaluated] = [] if instances is None else [ColumnView(instances, SqlType.BIGINT)]
        for compiled in self._keys:
            result = compiled(chunk.columns)
            if result.errors is not None:
                keep = self.without(chunk, keep, result.errors)
            keys.append(result)
        columns: list[Argument] = []
        for i, compiled in enumerate(self._compiled):
            result = compiled(chunk.columns)
            if self._filters[i]:
                columns.append(Argument(result.true.astype(np.int8), None))
            else:
                columns.append(to_argument(result, self._types[i], self.interners[i]))
            if result.errors is not None:
                keep = self.without(chunk, keep, result.errors, self._guarded(i, columns))
        slots = self.groups.assign(keys, chunk.rows, keep)
        for column, interner in zip(columns, self.interners, strict=True):
            if interner is not None:
                interner.use(_in_use(column, slots))
                interner.sweep()
        return Taken(slots, tuple(columns), keys)

    def leave(self, slots: Slots, columns: tuple[Argument, ...]) -> None:
        """Rows leave for good: what only they used is forgotten."""
        if not self._has_strings:
            return
        for column, interner in zip(columns, self.interners, strict=True):
            if interner is not None:
                interner.release(_in_use(column, slots))

    def no_columns(self) -> tuple[Argument, ...]:
        """The columns of no rows."""
        return tuple(
            Argument(np.empty(0, spec.dtype), np.empty(0, np.bool_) if spec.nullable else None)
            for spec in self.column_specs
        )

    def _guarded(self, column: int, columns: list[Argument]) -> Bools | None:
        """The rows that some state reads this argument of: an argument behind a false FILTER cannot fail."""
        guards = self._guards[column]
        if -1 in guards or any(g >= len(columns) for g in guards):
            return None
        guarded: Bools = np.logical_or.reduce([columns[g].values.astype(np.bool_) for g in guards])
        return guarded

    def without(
        self, chunk: Chunk, keep: Bools | None, errors: RowErrors | None, reads: Bools | None = None
    ) -> Bools | None:
        if errors is None:
            return keep
        failed = errors.mask if reads is None else errors.mask & reads
        if keep is None:
            keep = np.ones(chunk.rows, np.bool_)
        for row in np.flatnonzero(failed & keep):
            self._reject(errors.reasons[errors.codes[row] - 1], chunk.row(int(row)))
        return keep & ~failed

    @property
    def nbytes(self) -> int:
        return self.groups.nbytes + sum(i.nbytes for i in self.interners if i is not None)

    def snapshot(self) -> dict[str, Any]:
        return {
            "groups": self.groups.snapshot(),
            "interners": [None if i is None else i.snapshot() for i in self.interners],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.groups.restore(snapshot["groups"])
        for interner, saved in zip(self.interners, snapshot["interners"], strict=True):
            if interner is not None:
                interner.restore(saved)


def _reads(state: StateSpec) -> list[tuple[str, Expression]]:
    """Filters come first, so that they are known when an argument fails."""
    filters = [] if state.filter is None else [("filter", state.filter)]
    return filters + [("argument", arg) for arg in state.args]


def _guards(states: tuple[StateSpec, ...], distinct: dict[tuple[str, Expression], int]) -> list[set[int]]:
    """For each column the filters under which it is read; -1 when some state reads it for every row."""
    guards: list[set[int]] = [set() for _ in distinct]
    for state in states:
        behind = -1 if state.filter is None else distinct["filter", state.filter]
        for arg in state.args:
            guards[distinct["argument", arg]].add(behind)
        if behind >= 0:
            guards[behind].add(-1)
    return guards


def _in_use(column: Argument, slots: Slots) -> Slots:
    """The codes of rows that belong to a group and have a value."""
    used = slots >= 0 if column.valid is None else (slots >= 0) & column.valid
    codes: Slots = column.values[used]
    return codes
