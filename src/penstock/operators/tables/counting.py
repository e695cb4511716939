"""How many rows of a table meet a condition beside each of some others: what conditions of a change count.

The table is counted as it is, after all changes before. Rows are found by the equalities of the condition, as those of
a look-up are (`operators.tables.reading`). Texts that are asked for stay in the table's interners until the run of
changes ends: other statements of the run may hold their codes.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from penstock.arrays import Int64s
from penstock.expressions.batch import Batch
from penstock.expressions.conjuncts import conjunction, conjuncts
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import columns
from penstock.lang.table_defs import RowCount
from penstock.operators.chunk import Chunk
from penstock.operators.resources import Resources
from penstock.operators.rows import taken
from penstock.operators.stretches import stretches
from penstock.operators.tables.index import ValueIndex
from penstock.operators.tables.matched import Matched
from penstock.operators.tables.reading import PAIRS
from penstock.operators.tables.table import Table
from penstock.plan.tables.matches import matched


class Counting:
    """One count of a statement. `known` are the sides around it: the stream's alias and the table."""

    def __init__(self, table: Table, count: RowCount, known: Set[str], resources: Resources) -> None:
        self.name = count.name
        self._table = table
        by, keys, rest = [], [], []
        for condition in conjuncts(count.condition):
            found = matched(condition, count.name, known)
            if found is None or found.own in by:
                rest.append(condition)
            else:
                by.append(found.own)
                keys.append(found.other)
        self._keys = [compile_expression(key) for key in keys]
        self._kinds = [key.type for key in keys]
        on = conjunction(rest)
        self._on = None if on is None else compile_expression(on)
        prefix = f"{count.name}."
        read = set() if on is None else columns(on)
        self._wanted = {name: name.removeprefix(prefix) for name in read if name.startswith(prefix)}
        self._types = {f"{prefix}{field.name}": field.type for field in table.definition.schema}
        account = resources.account(f"table {table.definition.name}: index of rows that are counted")
        self._index = ValueIndex(table, tuple(by), account, account)
        self._is_whole = not by

    def of(self, rows: Chunk) -> Int64s:
        """For each of the rows, how many rows of the table there are as of its time."""
        counts = np.zeros(rows.rows, np.int64)
        compared = max(1, self._table.store.rows) if self._is_whole else 1
        for start, stop in stretches(np.full(rows.rows, compared), PAIRS):
            some = taken(rows, np.arange(start, stop))
            counts[start:stop] = np.bincount(self._met(some), minlength=stop - start)
        self._index.settle()
        return counts

    def _met(self, rows: Chunk) -> Int64s:
        """Which of the rows it is that meets a row of the table, once for each of these."""
        keys = [key(rows.columns) for key in self._keys]
        asked = self._index.asked(keys, self._kinds, rows.rows)
        origins, found, _ = self._index.look_up(asked, None, rows.times)
        return origins if self._on is None else origins[self._on(self._pairs(rows, origins, found)).true]

    def _pairs(self, rows: Chunk, origins: Int64s, found: Matched) -> Batch:
        batch = taken(rows, origins).columns
        assert isinstance(batch, Batch)
        return batch.with_columns({name: found.column(own) for name, own in self._wanted.items()}, self._types)
