"""Rows of windows without aggregation as stores keep them: the time, whether WHERE lets the row be shown, the values.

Stores know fixed widths only, so strings are interned for as long as some row has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.components import component
from penstock.expressions.batch import Batch, Data
from penstock.operators.column_texts import interners_for, release_texts, restore_texts, saved_texts, use_texts
from penstock.operators.columns import to_argument, to_data
from penstock.operators.resources import Resources
from penstock.operators.selection import Selected, Selection
from penstock.plan.nodes import RelationNode
from penstock.plan.nullability import can_be_null
from penstock.store.fifo import ColumnSpec

_TIME, _SHOWN = ColumnSpec("time", np.dtype(np.int64), False), ColumnSpec("kept", np.dtype(np.int8), False)


@component("KeptRows")
class KeptRows:
    """`specs` are the columns of a store for them."""

    def __init__(self, name: str, node: RelationNode, selection: Selection, resources: Resources) -> None:
        self._names, self._types = selection.names, selection.types
        self._kinds = dict(zip(self._names, self._types, strict=True))
        self.account = resources.account(f"{name}: strings")
        self._interners = interners_for(self._types, self.account)
        self.specs = [_TIME, _SHOWN] + [
            ColumnSpec(n, e.type.storage, can_be_null(e, node.input.schema))
            for n, e in zip(self._names, selection.expressions, strict=True)
        ]

    def take(self, selected: Selected) -> list[Argument]:
        """The columns of rows that enter a window."""
        chunk, values, keep = selected
        shown = np.ones(chunk.rows, np.int8) if keep is None else keep.astype(np.int8)
        columns = [to_argument(v, t, i) for v, t, i in zip(values, self._types, self._interners, strict=True)]
        use_texts(self._interners, columns)
        return [Argument(chunk.times, None), Argument(shown, None), *columns]

    def leave(self, columns: Sequence[Argument]) -> None:
        """Rows leave for good: strings that only they had are forgotten."""
        release_texts(self._interners, columns[2:])

    def data(self, columns: Sequence[Argument]) -> list[Data]:
        """The values of rows, also of those that are not shown."""
        own = zip(columns[2:], self._types, self._interners, strict=True)
        return [to_data(column.values, column.valid, kind, interner) for column, kind, interner in own]

    def batch(self, columns: Sequence[Argument]) -> pa.RecordBatch:
        """The values of those rows that are shown."""
        shown = columns[1].values != 0
        data = {
            n: to_data(c.values[shown], None if c.valid is None else c.valid[shown], t, i)
            for n, c, t, i in zip(self._names, columns[2:], self._types, self._interners, strict=True)
        }
        return Batch(self._kinds, data, int(shown.sum())).to_arrow()

    def no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(0, t.arrow) for t in self._types], names=self._names)

    def snapshot(self) -> dict[str, Any]:
        return {"interners": saved_texts(self._interners)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        restore_texts(self._interners, snapshot["interners"])
