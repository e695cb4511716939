"""A table as a whole, as Arrow: what is in memory, and what is on disk alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.arrays import Int64s
from penstock.columns import Argument
from penstock.expressions.batch import Data
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
    for own, columns, texts in table.cold.alone():
        batch = _batch(table, own, columns, texts)
        if expiry is not None:
            kept = np.flatnonzero(columns[expiry.place].values > expiry.now - expiry.ttl)
            own, batch = own[kept], batch.take(pa.array(kept))
        words.append(own)
        batches.append(batch)
    whole = pa.Table.from_batches(batches)
    if len(batches) == 1:
        return whole.take(pa.array(table.ordered(words[0]))).combine_chunks()
    ranks = {name: _ranks(whole.column(name)) for name in table.texts.in_key.values()}
    return whole.take(pa.array(table.ordered_by(np.concatenate(words), ranks))).combine_chunks()


def _ranks(texts: pa.ChunkedArray) -> Int64s:
    """By their bytes; equal texts have equal ranks."""
    ranks: Int64s = pc.rank(texts, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _batch(
    table: Table, words: Int64s, columns: Sequence[Argument], texts: Mapping[str, pa.StringArray]
) -> pa.RecordBatch:
    """Rows that are not in the store; their texts stand apart."""
    keys, others = table.definition.key, zip(table.others, columns, strict=True)
    data: dict[str, Data] = {name: table.key_data(name, words, None) for name in keys if name not in texts}
    data |= {field.name: table.data(field.name, column) for field, column in others if field.name not in texts}
    data |= texts
    arrays = [
        to_arrow(found, field.type, len(words)) if isinstance(found := data[field.name], Vector) else found
        for field in table.definition.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
