"""From the partial rows of all parts to results: the last stage of an aggregation that was computed in parts.

A call brings complete evaluations: whatever a part has to say of an evaluation comes in the same call. So nothing is
kept from call to call, and partial rows may come in any order. Results come in the order of (window_end, keys), as
those of an aggregation in one place, and are the same to the bit.

Called by runtimes; `partial_rows` says what the rows are and `parts` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.aggregates.factory import create_mergeable
from penstock.aggregates.state import Argument, Emitted, Rows, Schedule
from penstock.arrays import Int64s, Slots
from penstock.errors import BudgetError
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.jit import kernel
from penstock.operators.aggregation import EvaluatedGroups
from penstock.operators.chunk import Chunk
from penstock.operators.columns import to_argument
from penstock.operators.emitted_rows import EmittedRows
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.operators.partial_rows import ROWS, check_version, partial_schema
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode, StateSpec
from penstock.types import SqlType

MERGED_AT_ONCE = 1 << 17
"""About how many partial rows are merged in one go; an evaluation is never cut."""

_NO_SLOTS = np.empty(0, np.int32)
_NO_POSITIONS = np.empty(0, np.int64)


@kernel
def _number(evaluation: Int64s, evaluations: int, rank: Int64s, ranks: int) -> tuple[Slots, Int64s, Int64s]:
    """Numbers the groups by (evaluation, rank of the key): each row's number, how many groups there are up to each
    evaluation, and each group's rank. Sorts by counting, first by rank and then, stably, by evaluation."""
    by_rank, ordered = np.empty(len(rank), np.int64), np.empty(len(rank), np.int64)
    _count_sort(np.arange(len(rank)), rank, ranks, by_rank)
    _count_sort(by_rank, evaluation, evaluations, ordered)
    slots = np.empty(len(rank), np.int32)
    upto = np.empty(evaluations, np.int64)
    places = np.empty(len(rank), np.int64)
    count = 0
    for at in range(len(ordered)):
        row = ordered[at]
        before = ordered[at - 1]
        if at == 0 or rank[row] != rank[before] or evaluation[row] != evaluation[before]:
            places[count] = rank[row]
            count += 1
        slots[row] = count - 1
        upto[evaluation[row]] = count
    return slots, upto, places[:count]


@kernel
def _count_sort(rows: Int64s, keys: Int64s, least_above: int, ordered: Int64s) -> None:
    """The rows in the order of keys[row], which are below `least_above`; equal ones stay as they are."""
    begins = np.zeros(least_above + 1, np.int64)
    for key in keys:
        begins[key + 1] += 1
    for key in range(least_above):
        begins[key + 1] += begins[key]
    for row in rows:
        ordered[begins[keys[row]]] = row
        begins[keys[row]] += 1


class Merge:
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._node = node
        self._key_types = tuple(key.type for key in node.group_by)
        self._shown = EmittedRows(node)
        self._emitter = Emitter(node.emission, node.schema, resources.reject)
        self._account = resources.account(f"{name}: partial rows")
        self._state_accounts = [
            resources.account(f"{name}: {spec.kind} state {i}") for i, spec in enumerate(node.states)
        ]
        self._texts = [pa.types.is_string(partial_schema(node).field(f"${i}").type) for i in range(len(node.states))]

    def merge(self, partials: Sequence[pa.RecordBatch]) -> Iterator[Chunk]:
        """The results of the evaluations that these partial rows belong to, made as they are asked for."""
        for batch in partials:
            check_version(batch.schema)
        for pieces in _portions([b for b in partials if b.num_rows]):
            yield from self._fitting(pieces)

    def _fitting(self, pieces: list[pa.RecordBatch]) -> Iterator[Chunk]:
        """The results of some evaluations: of all together, or of each half by itself where memory is short. Nothing
        is rejected before all of it has found room."""
        parts: Sequence[list[pa.RecordBatch]] = ()
        try:
            chunk = self._merge(self._joined(pieces))
        except BudgetError:
            parts = _halves(pieces)
            if not parts:
                raise
        finally:
            for account in (self._account, *self._state_accounts):
                account.resize(0)
        for part in parts:
            yield from self._fitting(part)
        if not parts and chunk.rows:
            yield chunk

    def _joined(self, pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
        self._account.resize(sum(piece.nbytes for piece in pieces))
        if len(pieces) == 1:
            return pieces[0]
        whole = pa.Table.from_batches(pieces).combine_chunks().to_batches()
        if len(whole) > 1:
            raise BudgetError(
                f"the partial aggregates of one evaluation, {sum(piece.num_rows for piece in pieces):,} rows, "
                "take more than 2 GB; use fewer groups or place the query by its key"
            )
        return whole[0]

    def _merge(self, batch: pa.RecordBatch) -> Chunk:
        rows = batch.num_rows
        keys = GroupTable(self._key_types)
        views: list[Evaluated] = [ColumnView(batch.column(2 + i), kind) for i, kind in enumerate(self._key_types)]
        key_slots = keys.assign(views, rows, None)
        order = keys.order()
        rank = np.empty(keys.capacity, np.int64)
        rank[order] = np.arange(len(order))
        ends, first, evaluation = _distinct(_micros(batch, 1))
        slots, upto, places = _number(evaluation, len(ends), rank[key_slots], len(order))
        counts = np.zeros(len(places), np.int64)
        np.add.at(counts, slots, batch.column(ROWS).to_numpy())
        nothing = np.zeros(len(ends), np.int64)
        schedule = Schedule(nothing, nothing, upto, np.arange(len(places), dtype=np.int32))
        interners, emitted = self._absorb(batch, slots, schedule)
        played = EvaluatedGroups(schedule.emit_slots, schedule.emit_upto, counts, emitted, interners)
        shown = self._shown.rows(keys.keys(order[places]), played)
        starts = _micros(batch, 0)[first]
        return self._emitter.emit(Evaluations(shown, upto, starts, ends, failed=played.failed(self._node.answers)))

    def _absorb(
        self, batch: pa.RecordBatch, slots: Slots, schedule: Schedule
    ) -> tuple[list[Interner | None], list[tuple[Emitted, ...]]]:
        """Each state in turn: takes in its partials, answers, and gives its memory back."""
        interners: list[Interner | None] = []
        emitted = []
        for i, (spec, account) in enumerate(zip(self._node.states, self._state_accounts, strict=True)):
            partials = batch.column(f"${i}")
            interner = Interner() if self._texts[i] else None
            if interner is not None:
                codes, valid = to_argument(ColumnView(partials, SqlType.STRING), SqlType.STRING, interner)
                partials = pa.array(codes, mask=None if valid is None else ~valid)
            types = tuple(arg.type for arg in spec.args)
            ranks = None if interner is None else interner.ranks
            state = create_mergeable(spec.kind, types, spec.wants, account=account, ranks=ranks)
            state.ensure(len(schedule.emit_slots))
            state.absorb(slots, partials)
            none = _no_rows(spec)
            emitted.append(state.advance(none, none, schedule))
            interners.append(interner)
            account.resize(0)
        return interners, emitted


def _portions(batches: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The rows of some evaluations at a time, upwards, about `MERGED_AT_ONCE` of them."""
    if not batches:
        return
    batches = [_by_window(batch) for batch in batches]
    ends = [_micros(batch, 1) for batch in batches]
    windows, _, evaluation = _distinct(np.concatenate(ends))
    upto = np.cumsum(np.bincount(evaluation))
    begin = done = 0
    while begin < len(windows):
        stop = max(int(np.searchsorted(upto, done + MERGED_AT_ONCE, "right")), begin + 1)
        pieces = []
        for batch, own in zip(batches, ends, strict=True):
            first = int(np.searchsorted(own, windows[begin]))
            count = int(np.searchsorted(own, windows[stop - 1], "right")) - first
            if count:
                pieces.append(batch.slice(first, count))
        yield pieces
        begin, done = stop, int(upto[stop - 1])


def _halves(pieces: list[pa.RecordBatch]) -> Sequence[list[pa.RecordBatch]]:
    """The rows of the first and of the second half of the evaluations; nothing if there is only one evaluation."""
    ends = [_micros(piece, 1) for piece in pieces]
    windows = np.unique(np.concatenate(ends))
    if len(windows) == 1:
        return ()
    middle = [int(np.searchsorted(own, windows[len(windows) // 2])) for own in ends]
    first = [piece.slice(0, at) for piece, at in zip(pieces, middle, strict=True) if at]
    return first, [piece.slice(at) for piece, at in zip(pieces, middle, strict=True) if at < piece.num_rows]


def _by_window(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows by window_end, as parts send them."""
    ends = _micros(batch, 1)
    if (ends[1:] >= ends[:-1]).all():
        return batch
    return batch.take(pa.array(np.argsort(ends, kind="stable")))


def _distinct(values: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The distinct values upwards, a row of each, and which of them each row has. Fast where runs of rows are equal."""
    begins = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    distinct, first, which = np.unique(values[begins], return_index=True, return_inverse=True)
    return distinct, begins[first], np.repeat(which, np.diff(begins, append=len(values)))


def _micros(batch: pa.RecordBatch, column: int) -> Int64s:
    micros: Int64s = batch.column(column).view(pa.int64()).to_numpy()
    return micros


def _no_rows(spec: StateSpec) -> Rows:
    arguments = tuple(Argument(np.empty(0, arg.type.storage), None) for arg in spec.args)
    return Rows(_NO_POSITIONS, _NO_SLOTS, arguments)
