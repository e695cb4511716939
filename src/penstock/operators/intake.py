"""What one aggregation reads of each event: its slot, and the columns its states take.

The columns are those that a window keeps, so that a row that leaves needs no second evaluation. Stored windows, which
several queries may share, put the same parts together in `shared_window`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.tree import Expression
from penstock.expressions.vector import Evaluated
from penstock.operators.arguments import ArgumentColumns
from penstock.operators.chunk import Chunk
from penstock.operators.grouping import Grouping
from penstock.operators.window_texts import WindowTexts
from penstock.plan.nodes import StateSpec
from penstock.plan.reads import GroupingKey, fallible_reads
from penstock.rejects import Reject
from penstock.store.budget import Account
from penstock.types import Schema


class ReadRows(NamedTuple):
    """What is read of rows before they have slots: their keys, the columns by name, and which rows are in a group; None
    for all."""

    keys: list[Evaluated]
    columns: dict[str, Argument]
    keep: Bools | None


class Taken(NamedTuple):
    """`keys` are the evaluated key columns, for results that show the arriving event's own group."""

    slots: Slots
    columns: tuple[Argument, ...]
    keys: list[Evaluated]


@component("Intake")
class Intake:
    """Groups and strings are on the `account`."""

    def __init__(
        self,
        where: Expression | None,
        keys: tuple[Expression, ...],
        states: tuple[StateSpec, ...],
        schema: Schema,
        reject: Reject,
        account: Account,
        *,
        with_instances: bool = False,
    ) -> None:
        key = GroupingKey(where, keys, fallible_reads(states))
        self._grouping = Grouping(key, [reject], account, with_instances=with_instances)
        self._columns = ArgumentColumns(schema, account)
        self.groups = self._grouping.groups
        self.passes = self._grouping.passes
        self.own = self._columns.read(states)
        self.column_specs = self.own.specs
        self.interners = self.own.interners
        self.state_columns = self.own.state_columns
        self.no_columns = self.own.nothing
        self._window_texts = (
            {name: WindowTexts(text, account) for name, text in self._columns.texts.items()} if with_instances else {}
        )

    @property
    def counts(self) -> Int64s:
        return self.groups.counts

    def take(self, chunk: Chunk, keep: Bools | None, instances: pa.Array | None = None) -> Taken:
        """Evaluates a chunk; `instances` is a key that comes before the others: the window a row belongs to."""
        if chunk.rows == 0:
            return Taken(np.empty(0, np.int32), self.no_columns(), [])
        return self.enter(self.read(chunk, keep, instances), chunk.rows, instances)

    def read(self, chunk: Chunk, keep: Bools | None, instances: pa.Array | None = None) -> ReadRows:
        """What is read of rows; those that fail are rejected. They are in no group yet."""
        computed = self._columns.compute(chunk)
        keys, keep = self._grouping.keys_of(chunk, keep, computed, instances)
        return ReadRows(keys, computed.columns, keep)

    def enter(self, read: ReadRows, rows: int, instances: pa.Array | None = None) -> Taken:
        """Rows that have been read get slots. If there is no room for them, this may be left out."""
        slots = self.groups.assign(read.keys, rows, read.keep)
        if instances is not None:
            for name, texts in self._window_texts.items():
                texts.enter(instances.to_numpy(), read.columns[name], slots >= 0)
        elif self._columns.has_texts:
            self._columns.use(read.columns, slots >= 0)
        return Taken(slots, self.own_columns(read), read.keys)

    def own_columns(self, read: ReadRows) -> tuple[Argument, ...]:
        """What the states read, in their order."""
        return tuple([read.columns[name] for name in self.own.names])

    def page(self) -> None:
        """The groups are elsewhere from now on."""
        self._grouping.page()
        self.groups = self._grouping.groups

    def leave(self, slots: Slots, columns: tuple[Argument, ...]) -> None:
        """Rows leave for good: what only they used is forgotten."""
        if self._columns.has_texts:
            self._columns.release(dict(zip(self.own.names, columns, strict=True)), slots >= 0)

    def close_windows(self, instances: Int64s) -> None:
        """The windows of these instances are over: strings that only they had are forgotten."""
        for texts in self._window_texts.values():
            texts.close(instances)

    def snapshot(self) -> dict[str, Any]:
        return {
            "groups": self.groups.snapshot(),
            "texts": self._columns.snapshot(),
            "window_texts": {name: texts.snapshot() for name, texts in self._window_texts.items()},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.groups.restore(snapshot["groups"])
        self._columns.restore(snapshot["texts"])
        for name, saved in snapshot.get("window_texts", {}).items():
            self._window_texts[name].restore(saved)
