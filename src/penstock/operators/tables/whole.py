"""A table as a whole, as Arrow: what is in memory, and what is on disk alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.columns import Argument
from penstock.expressions.vector import Vector, to_arrow
from penstock.operators.tables.matched import Matched, these

if TYPE_CHECKING:
    from penstock.operators.tables.table import Table


def whole_table(table: Table) -> pa.Table:
    """All rows as they are now, in the order of their keys."""
    found, expiry = table.all_rows(), table.expiry
    if expiry is not None:
        there = table.alive(Matched(table, found, None), np.full(found.keys, expiry.now)).there
        found = these(found.rows[there])
    words, batches = [table.store.key_words(found)], [table.batch(found)]
    for own, columns in table.cold.alone():
        if expiry is not None:
            kept = np.flatnonzero(columns[expiry.place].values > expiry.now - expiry.ttl)
            own, columns = own[kept], tuple(column.at(kept) for column in columns)
        words.append(own)
        batches.append(_batch(table, own, columns))
    order = table.ordered(np.concatenate(words))
    return pa.Table.from_batches(batches).take(pa.array(order)).combine_chunks()


def _batch(table: Table, words: Int64s, columns: Sequence[Argument]) -> pa.RecordBatch:
    """Rows that are not in the store."""
    data = {name: table.key_data(name, words, None) for name in table.definition.key}
    data |= {f.name: table.data(f.name, column) for f, column in zip(table.others, columns, strict=True)}
    arrays = [
        to_arrow(found, field.type, len(words)) if isinstance(found := data[field.name], Vector) else found
        for field in table.definition.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
