"""The values of events that may match, of one input: rows of a paged store, found again by their numbers.

Strings are interned for as long as some row has them, as everywhere in stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column
from penstock.operators.chunk import Chunk
from penstock.operators.column_texts import interners_for, release_texts, restore_texts, saved_texts, use_texts
from penstock.operators.columns import to_argument, to_data
from penstock.operators.resources import Resources
from penstock.store.fifo import ColumnSpec
from penstock.types import Schema


@component("PatternRows")
class PatternRows:
    """`columns` are those that are kept, at least one."""

    def __init__(self, name: str, schema: Schema, columns: Sequence[str], resources: Resources) -> None:
        fields = [field for field in schema if field.name in columns]
        self._types = [field.type for field in fields]
        self._compiled = [compile_expression(Column(field.name, field.type)) for field in fields]
        account = resources.account(f"{name}: strings")
        self._interners = interners_for(self._types, account)
        self._places = {field.name: place for place, field in enumerate(fields)}
        self._store = resources.rows(
            name, [ColumnSpec(field.name, field.type.storage, field.nullable) for field in fields]
        )

    def append(self, chunk: Chunk, keep: Bools) -> Int64s:
        """Stores those rows of a chunk; the number of each row of the chunk, valid for those."""
        stored = chunk if keep.all() else chunk.filter(keep)
        columns = [
            to_argument(compiled(stored.columns), kind, interner)
            for compiled, kind, interner in zip(self._compiled, self._types, self._interners, strict=True)
        ]
        use_texts(self._interners, columns)
        first = self._store.append(columns)
        return first - 1 + np.cumsum(keep)

    def release(self, before: int) -> None:
        """Rows before that number have left."""
        if before <= self._store.tail:
            return
        if any(self._interners):
            for view in self._store.scan(self._store.tail, before):
                release_texts(self._interners, view.columns)
        self._store.release(before)

    def gather(self, rows: Int64s, names: Sequence[str]) -> list[Data]:
        """The values of these rows in any order, each as often as it is asked for."""
        places = [self._places[name] for name in names]
        columns = self._store.gather(rows, places)
        return [
            to_data(values, valid, self._types[place], self._interners[place])
            for place, (values, valid) in zip(places, columns, strict=True)
        ]

    def snapshot(self) -> dict[str, Any]:
        return {"interners": saved_texts(self._interners)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        restore_texts(self._interners, snapshot["interners"])
