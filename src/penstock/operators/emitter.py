"""From the rows of evaluations to results: HAVING, the select list, DISTINCT, ORDER BY, LIMIT, R/I/DSTREAM.

Every result row begins with window_start and window_end. ISTREAM and DSTREAM compare select-list values as multisets
with those of the evaluation before (contract, rule 4); the window columns take no part in that. Rules compare the keys
of groups.

Invariant: `_before` has the rows that the last evaluation of each partition showed, by the partition's number, and no
entry where there were none. A number with an entry belongs to its partition: code that gives a number to another
partition asks `remembers` first.

Why: docs/decisions/sessions-by-key.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.batch import Rows, arrow_of
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.tree import Column
from penstock.expressions.vector import ColumnView, Evaluated, RowErrors
from penstock.lang.query import Emit
from penstock.operators.chunk import Chunk, readable
from penstock.operators.columns import image
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.plan.nodes import Emission
from penstock.rejects import Reject
from penstock.store.budget import Account
from penstock.store.charged import UNLIMITED
from penstock.types import Schema, SqlType

OVERFLOW = "an aggregate could not be computed: integer overflow"

_TIMESTAMP = SqlType.TIMESTAMP.arrow

_ENTRY_BYTES = 400
"""What Python and Arrow take for the columns of one partition, besides their values."""


@dataclass(slots=True)
class Evaluations:
    """The rows of consecutive evaluations, one after the other: evaluation k has rows [upto[k-1], upto[k]). Where
    `upto` is None each has one row.

    `partitions`, for windows per partition, names the partition of each evaluation. `failed` marks rows with an
    aggregate that overflowed.
    """

    rows: Rows
    upto: Int64s | None
    window_start: Int64s
    window_end: Int64s
    partitions: Int64s | None = None
    failed: Bools | None = None


@component("Emitter")
class Emitter:
    """`keys` are the types of the group's keys, columns `#0`, `#1`, ... of the rows. Rows that the next evaluation is
    compared with are on the account `compared`."""

    def __init__(
        self,
        emission: Emission,
        schema: Schema,
        reject: Reject,
        keys: tuple[SqlType, ...] = (),
        compared: Account = UNLIMITED,
    ) -> None:
        self._emission = emission
        self._schema = schema
        self._outputs = [compile_expression(o.expression) for o in emission.outputs]
        is_fallible = [not is_total(o.expression) for o in emission.outputs]
        self._fallible_outputs = list(compress(self._outputs, is_fallible))
        self._having = compile_expression(emission.having) if emission.having is not None else None
        self._orders = [compile_expression(o.expression) for o in emission.order_by]
        self._is_first_rows = emission.limit is not None and not emission.distinct
        self._reject = reject
        self._arrow = schema.arrow
        self._types = tuple(f.type for f in schema.fields[2:])
        self._keys = [Column(f"#{i}", kind) for i, kind in enumerate(keys)]
        self._before: dict[int, list[pa.Array]] = {}
        self._compared = compared

    def emit(self, evaluations: Evaluations) -> Chunk:
        """The results of the evaluations, in order; a result's time is its window_end - 1 µs."""
        return self.emit_each(evaluations)[0]

    def emit_each(self, evaluations: Evaluations) -> tuple[Chunk, Int64s]:
        """The same, and how many rows came of each evaluation."""
        starts, ends = evaluations.window_start, evaluations.window_end
        upto = evaluations.upto
        sizes = np.ones(len(ends), np.int64) if upto is None else np.diff(upto, prepend=0)
        if upto is not None:
            starts, ends = np.repeat(starts, sizes), np.repeat(ends, sizes)
        columns, orders, keep = self._select(evaluations.rows, evaluations.failed)
        if not self._emission.needs_whole_evaluations:
            if keep is not None:
                columns = [c.filter(pa.array(keep)) for c in columns]
                starts, ends = starts[keep], ends[keep]
                sizes = np.diff(np.append(0, np.cumsum(keep))[np.cumsum(sizes)], prepend=0)
            return self.chunk(columns, starts, ends), sizes
        pieces: list[Chunk] = []
        begin = 0
        for k, end in enumerate(np.arange(1, len(ends) + 1).tolist() if upto is None else upto.tolist()):
            partition = 0 if evaluations.partitions is None else int(evaluations.partitions[k])
            chosen = np.arange(begin, end) if keep is None else begin + np.flatnonzero(keep[begin:end])
            begin = end
            if self._orders:
                chosen = chosen[np.lexsort([o[chosen] for o in reversed(orders)])] if len(chosen) else chosen
            relation = [c.take(pa.array(chosen)) for c in columns]
            row_starts = starts[chosen]
            if self._emission.distinct:
                first = self._distinct(relation)
                relation, row_starts = [c.take(pa.array(first)) for c in relation], row_starts[first]
            if self._emission.limit is not None:
                relation = [c.take(pa.array(np.arange(min(self._emission.limit, len(c))))) for c in relation]
                row_starts = row_starts[: self._emission.limit]
            if self._emission.emit is Emit.EDGE:
                keys = self._keys_of(evaluations.rows, chosen[: len(row_starts)])
                new = self._new(keys, len(row_starts), partition)
                relation, row_starts = [c.take(pa.array(new)) for c in relation], row_starts[new]
            elif self._emission.emit.compares:
                relation, row_starts = self._difference(relation, partition, int(evaluations.window_start[k]))
            sizes[k] = len(row_starts)
            if len(row_starts):
                pieces.append(self.chunk(relation, row_starts, np.full(len(row_starts), evaluations.window_end[k])))
        if not pieces:
            return self.chunk([c.slice(0, 0) for c in columns], starts[:0], ends[:0]), sizes
        if len(pieces) == 1:
            return pieces[0], sizes
        table = pa.Table.from_batches([p.columns for p in pieces]).combine_chunks()
        return Chunk(np.concatenate([p.times for p in pieces]), table.to_batches()[0]), sizes

    @property
    def needs_whole_evaluations(self) -> bool:
        return self._emission.needs_whole_evaluations

    @property
    def leaves_rows_out(self) -> bool:
        """Whether there is a HAVING or a LIMIT."""
        return self._having is not None or self._is_first_rows

    def may_show(self, rows: Rows, failed: Bools | None, upto: Int64s | None) -> Bools | None:
        """The rows of evaluations that may have results, those among them on which something fails, which `emit`
        rejects; None for all. With `upto` a LIMIT leaves only the first ones of each evaluation, so that those of parts
        that are in the order of the keys have all that are the first of the whole."""
        found: Bools | None = None
        fails = np.zeros(rows.num_rows, np.bool_) if failed is None else failed.copy()
        if self._having is not None:
            passed = self._having(rows)
            found = passed.true
            _mark(fails, passed.errors)
        if self._is_first_rows and upto is not None:
            for output in self._fallible_outputs:
                _mark(fails, output(rows).errors)
            orders, errors = self._sort_keys_of(rows)
            for error in errors:
                _mark(fails, error)
            found = self._first(orders, ~fails if found is None else found & ~fails, upto)
        return None if found is None else found | fails

    def _first(self, orders: list[Int64s], found: Bools, upto: Int64s) -> Bools:
        """Of the rows `found` of each evaluation the first ones, as many as the LIMIT says."""
        assert self._emission.limit is not None
        evaluation = np.repeat(np.arange(len(upto)), np.diff(upto, prepend=0))
        chosen = np.flatnonzero(found)
        chosen = chosen[np.lexsort([*(order[chosen] for order in reversed(orders)), evaluation[chosen]])]
        own = evaluation[chosen]
        place = np.arange(len(own)) - np.searchsorted(own, own, "left")
        first = np.zeros(len(found), np.bool_)
        first[chosen[place < self._emission.limit]] = True
        return first

    def forget(self, partition: int) -> None:
        """The partition is gone: what its evaluations would be compared with is not needed any more."""
        gone = self._before.pop(partition, None)
        if gone is not None:
            self._compared.release(_bytes_of(gone))

    def close(self) -> None:
        """Gives back what is on the account."""
        for partition in list(self._before):
            self.forget(partition)

    def remembers(self, partitions: int) -> Bools:
        """Which of the first so many partitions have an evaluation that the next one is compared with."""
        remembered = np.zeros(partitions, np.bool_)
        remembered[list(self._before)] = True
        return remembered

    def _replace(self, partition: int, shown: list[pa.Array]) -> list[pa.Array] | None:
        """Keeps what an evaluation shows, and returns what the one before showed; None for nothing."""
        before = self._before.get(partition)
        more = (_bytes_of(shown) if len(shown[0]) else 0) - (0 if before is None else _bytes_of(before))
        if more:
            self._compared.charge(more)
        if len(shown[0]):
            self._before[partition] = shown
        else:
            self._before.pop(partition, None)
        return before

    def _select(self, rows: Rows, failed: Bools | None) -> tuple[list[pa.Array], list[Int64s], Bools | None]:
        """The select list and the sort keys of each row, and which rows remain."""
        keep: Bools | None = None
        if failed is not None and failed.any():
            keep = ~failed
            for row in np.flatnonzero(failed):
                self._reject(OVERFLOW, as_row(rows, int(row)))
        if self._having is not None:
            passed = self._having(rows)
            keep = self._without_errors(rows, keep, passed.errors)
            keep = passed.true if keep is None else passed.true & keep
        columns = []
        for output in self._outputs:
            value = output(rows)
            keep = self._without_errors(rows, keep, value.errors)
            columns.append(value.values)
        orders, errors = self._sort_keys_of(rows)
        for error in errors:
            keep = self._without_errors(rows, keep, error)
        return columns, orders, keep

    def _sort_keys_of(self, rows: Rows) -> tuple[list[Int64s], list[RowErrors | None]]:
        """The sort keys of each row, and where they cannot be computed."""
        keys, errors = [], []
        for order, compiled in zip(self._emission.order_by, self._orders, strict=True):
            value = compiled(rows)
            errors.append(value.errors)
            keys += _sort_keys(value, order.expression.type, order.descending, order.nulls_first)
        return keys, errors

    def _without_errors(self, rows: Rows, keep: Bools | None, errors: RowErrors | None) -> Bools | None:
        if errors is None:
            return keep
        if keep is None:
            keep = np.ones(rows.num_rows, np.bool_)
        for row in np.flatnonzero(errors.mask & keep):
            self._reject(errors.reasons[errors.codes[row] - 1], as_row(rows, int(row)))
        return keep & ~errors.mask

    def _distinct(self, relation: list[pa.Array]) -> Int64s:
        if not relation:
            return np.arange(0)
        slots = GroupTable(self._types).assign(self._views(relation), len(relation[0]), None)
        _, first = np.unique(slots, return_index=True)
        return np.sort(first)

    def _difference(self, relation: list[pa.Array], partition: int, start: int) -> tuple[list[pa.Array], Int64s]:
        """R(k) - R(k-1), or the other way round for DSTREAM, as multisets."""
        before = self._replace(partition, relation)
        if before is None:
            before = [c.slice(0, 0) for c in relation]
        one, other = (relation, before) if self._emission.emit is Emit.ISTREAM else (before, relation)
        groups = GroupTable(self._types)
        mine = groups.assign(self._views(one), len(one[0]), None)
        theirs = np.bincount(groups.assign(self._views(other), len(other[0]), None), minlength=groups.capacity)
        # Of each value's copies, those beyond the other side's number remain: the last ones, in order.
        by_slot = np.argsort(mine, kind="stable")
        copy = np.empty(len(mine), np.int64)
        ordered = mine[by_slot]
        copy[by_slot] = np.arange(len(mine)) - np.searchsorted(ordered, ordered, "left")
        remain = np.flatnonzero(copy >= theirs[mine]) if len(mine) else np.arange(0)
        return [c.take(pa.array(remain)) for c in one], np.full(len(remain), start, np.int64)

    def _keys_of(self, rows: Rows, chosen: Int64s) -> list[pa.Array]:
        """The keys of rows; a group without keys has one that is always the same."""
        if not self._keys:
            return [pa.array(np.zeros(len(chosen), np.int64))]
        return [rows.column(key.name).take(pa.array(chosen)) for key in self._keys]

    def _new(self, keys: list[pa.Array], count: int, partition: int) -> Int64s:
        """Which of the groups were not in the evaluation before."""
        types = tuple(key.type for key in self._keys) or (SqlType.BIGINT,)
        before = self._replace(partition, keys)
        if before is None or count == 0:
            return np.arange(count)
        groups = GroupTable(types)
        known = groups.assign([ColumnView(c, t) for c, t in zip(before, types, strict=True)], len(before[0]), None)
        slots = groups.assign([ColumnView(c, t) for c, t in zip(keys, types, strict=True)], count, None)
        there = np.zeros(groups.capacity, np.bool_)
        there[known] = True
        return np.flatnonzero(~there[slots])

    def _views(self, relation: list[pa.Array]) -> list[Evaluated]:
        return [ColumnView(column, kind) for column, kind in zip(relation, self._types, strict=True)]

    def chunk(self, columns: list[pa.Array], starts: Int64s, ends: Int64s) -> Chunk:
        """Rows of the select list, with their windows."""
        return as_chunk(self._arrow.names, columns, starts, ends)

    @property
    def nbytes(self) -> int:
        return sum(_bytes_of(columns) for columns in self._before.values())

    def snapshot(self) -> dict[str, Any]:
        return {"before": self.kept()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.keep(snapshot["before"])

    def kept(self) -> dict[str, bytes]:
        """The relations that the next ones are compared with, by their partitions."""
        saved = {}
        for partition, columns in self._before.items():
            sink = pa.BufferOutputStream()
            batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            saved[str(partition)] = sink.getvalue().to_pybytes()
        return saved

    def keep(self, saved: dict[str, bytes]) -> None:
        """The inverse of `kept`."""
        self.close()
        for partition, data in saved.items():
            batch = pa.ipc.open_stream(data).read_all().combine_chunks()
            columns = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in batch.columns]
            self._replace(int(partition), columns)


def as_chunk(names: Sequence[str], columns: list[pa.Array], starts: Int64s, ends: Int64s) -> Chunk:
    """Results with the windows that they are of."""
    arrays = [timestamps(starts), timestamps(ends), *columns]
    return Chunk(ends - 1, pa.RecordBatch.from_arrays(arrays, names=names))


def as_row(rows: Rows, row: int) -> dict[str, Any]:
    return readable(arrow_of(rows).slice(row, 1))[0]


def _mark(fails: Bools, errors: RowErrors | None) -> None:
    if errors is not None:
        fails |= errors.mask


def _bytes_of(columns: list[pa.Array]) -> int:
    nbytes = _ENTRY_BYTES
    for column in columns:
        nbytes += column.nbytes
    return nbytes


def timestamps(micros: Int64s) -> pa.Array:
    return pa.Array.from_buffers(_TIMESTAMP, len(micros), [None, pa.py_buffer(np.ascontiguousarray(micros))])


def _sort_keys(column: Evaluated, kind: SqlType, descending: bool, nulls_first: bool) -> list[Int64s]:
    """Two sort keys, NULLs and then values, in Spark's order: NaN is greatest, strings go by bytes."""
    interner = Interner() if kind is SqlType.STRING else None
    values, valid = image(column, kind, interner)
    if interner is not None:
        values = interner.ranks()[values]
    elif kind.is_floating:
        values = np.where(values < 0, np.int64(-(2**63)) - values, values)
    if descending:
        values = ~values
    null = np.zeros(len(values), np.int64) if valid is None else (~valid).astype(np.int64)
    if valid is not None:
        values = np.where(valid, values, 0)
    return [-null if nulls_first else null, values]
