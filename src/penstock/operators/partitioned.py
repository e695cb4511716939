"""Aggregation over the last n rows of each partition, as if each partition had a stream of its own.

Evaluations show the whole partition or the arriving event's group; where ISTREAM and DSTREAM need the groups alone that
have changed, `partitioned_changes` takes the place of this module. The rows are kept by `partitioned_rows`.

LAST of a row per event is the event's own value (`_arriving`): it needs no state, and its argument is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.tree import Expression
from penstock.expressions.vector import Evaluated, Vector
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.chunk import Chunk
from penstock.operators.emitted_rows import EmittedRows
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.outgoing import Outgoing
from penstock.operators.paged.held import keys_or_null
from penstock.operators.paged.partition_columns import PartitionColumns
from penstock.operators.paged.partition_reading import ReadRows
from penstock.operators.paged.partition_shards import Show
from penstock.operators.partitioned_operator import PartitionedOperator, in_memory
from penstock.operators.partitioned_rows import PartitionedRows
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode, Answer, StateSpec
from penstock.types import SqlType


@component("PartitionedAggregate", 2, in_memory)
class PartitionedAggregate(PartitionedOperator):
    """With `show` it plays a shard, and makes no results of what it evaluates."""

    pages = True

    def __init__(self, name: str, node: AggregateNode, resources: Resources, show: Show | None = None) -> None:
        states, answers, arriving = _arriving(node)
        self._arriving = [(answer, compile_expression(expression)) for answer, expression in arriving]
        self._in_memory = held = self._for_partitions(resources, show)
        self._rows = PartitionedRows(name, node, states, held)
        super().__init__(name, node, self._rows.partitions, self._rows.count, resources, show)
        self._groups = self._rows.intake.groups
        self._aggregation = Aggregation(name, self._rows.intake, states, held, pages=show is None)
        self._plan = node
        self._read_rows: ReadRows | None = None
        if show is None:
            compared = resources.account(f"{name}: rows that the next are compared with")
            self._emitter = Emitter(node.emission, node.schema, self._reject, node.key_types, compared)
            self._outgoing = Outgoing()
        self._event_group = node.emission.emit is Emit.EVENT_GROUP
        self._shown = EmittedRows(node, answers)

    def _per_event(self, chunk: Chunk) -> None:
        partitions, due, added, removed, gone_upto, starts, keys = self._rows.enter(chunk)
        gone = removed
        add_upto = np.arange(1, chunk.rows + 1)
        at = entered = left = 0
        while at < chunk.rows:
            part = slice(at, None)
            events = ranges = None
            if self._event_group:
                events = np.where(due[part], added.slots, np.int32(-1))
            else:
                begins, ends = self._ranges()
                ranges = (begins[partitions[part]], ends[partitions[part]])
            done, played = self._aggregation.play(
                added, removed, add_upto[part] - entered, gone_upto[part] - left, due[part], events, ranges
            )
            shown = at + np.flatnonzero(due[at : at + done])
            own: list[Data] | None = None
            if events is not None:
                rows = at + np.flatnonzero(events >= 0)
                own = [_some(key, rows) for key in keys]
                for answer, value in self._arriving:
                    played.give(answer, _some(value(chunk.columns), rows))
            upto = played.upto[shown - at]
            owners = partitions[shown].astype(np.int64)
            if len(shown):
                self._emit(played, upto, starts[shown], chunk.times[shown], owners, own, shown)
            at += done
            added = added.part(done, len(added.slots))
            removed = removed.part(int(gone_upto[at - 1]) - left, len(removed.slots))
            entered, left = at, int(gone_upto[at - 1])
        self._rows.forget(gone)

    def _only_enter(self, chunk: Chunk) -> None:
        entered = self._rows.enter(chunk)
        everything = np.full(1, chunk.rows, np.int64)
        self._aggregation.play(
            entered.added, entered.removed, everything, entered.gone_upto[-1:], np.zeros(1, np.bool_)
        )
        self._rows.forget(entered.removed)

    def _evaluate_all(self, boundary: int) -> None:
        due = self._partitions.due_at_boundary()
        place = np.full(self._partitions.table.capacity, -1, np.int64)
        place[due] = np.arange(len(due))
        order = self._groups.order()
        places = place[self._rows.owners[order]]
        chosen = (places >= 0) & (self._groups.counts[order] > 0)
        slots = order[chosen]
        upto = np.cumsum(np.bincount(places[chosen], minlength=len(due)))
        played = self._aggregation.evaluate(slots, upto)
        starts = self._partitions.queues.oldest[due]
        bounds = np.full(len(due), boundary, np.int64)
        self._emit(played, upto, starts, bounds, due.astype(np.int64), None, None)

    def _emit(
        self,
        played: EvaluatedGroups,
        upto: Int64s,
        starts: Int64s,
        ends: Int64s,
        partitions: Int64s,
        own: list[Data] | None,
        events: Int64s | None,
    ) -> None:
        keys = self._groups.keys(played.slots) if own is None else own
        rows = self._shown.rows([keys[place] for place in self._rows.shown_keys], played)
        failed = played.failed(self._shown.answers)
        self._see(Evaluations(rows, upto, starts, ends, partitions, failed), events)

    def _ranges(self) -> tuple[Int64s, Int64s]:
        """Where in `groups.order()` each partition's groups begin and end."""
        order = self._groups.order()
        owners = self._rows.owners[order]
        capacity = self._partitions.table.capacity
        begins, ends = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        begins[owners[first]] = first
        ends[owners[first]] = np.append(first[1:], len(owners))
        return begins, ends

    # Partitions page

    @property
    def _kept_bytes(self) -> int:
        aggregation = self._aggregation
        return super()._kept_bytes + aggregation.nbytes - aggregation.pageable_nbytes

    @property
    def _reading(self) -> ReadRows:
        """What is read of rows that are logged."""
        if self._read_rows is None:
            self._read_rows = ReadRows(self._plan, self._reject_to)
        return self._read_rows

    def _held(self, columns: PartitionColumns) -> Iterator[tuple[Int64s, list[pa.Array]]]:
        first = len(columns.hashed_types)
        for _, numbers, keys, (times, _, slots, *values) in self._partitions.held():
            keep = slots.values >= 0
            own = keys_or_null(self._groups, slots.values, columns.key_types)[first:]
            read = self._reading.of_held(self._rows.intake.own, values, keep)
            yield times.values, columns.logged([*keys, *own], read, keep, times.values, numbers)

    def _logged(self, columns: PartitionColumns, chunk: Chunk) -> list[pa.Array]:
        keys, read, keep = self._reading.of(chunk)
        return columns.logged(keys, read, keep, chunk.times, None)

    def _forget_partitions(self) -> None:
        self._partitions.close()
        self._in_memory.close()
        del self._rows, self._groups, self._aggregation

    def snapshot(self) -> dict[str, Any]:
        paged = self._paged
        return {
            "aggregation": self._aggregation.snapshot() if paged is None else None,
            "emitter": self._emitter.snapshot(),
            "rows": self._rows.snapshot() if paged is None else None,
            "paged": self._saved_paged(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._emitter.restore(snapshot["emitter"])
        if snapshot["paged"] is not None:
            self._restore_paged(snapshot["paged"])
            return
        self._aggregation.restore(snapshot["aggregation"])
        self._rows.restore(snapshot["rows"])


def _arriving(
    node: AggregateNode,
) -> tuple[tuple[StateSpec, ...], tuple[Answer, ...], list[tuple[Answer, Expression]]]:
    """The states that a node needs, where its answers then are, and those answers that are values of the event that a
    row is for: LAST, where nothing can fail."""
    if node.emission.emit is not Emit.EVENT_GROUP:
        return node.states, node.answers, []
    own = [s.traits.answers_newest and s.filter is None and is_total(s.args[0]) for s in node.states]
    places = np.cumsum(~np.array(own, np.bool_)) - 1
    answers, found = [], []
    for answer in node.answers:
        if answer.state < 0 or not own[answer.state]:
            answers.append(answer if answer.state < 0 else replace(answer, state=int(places[answer.state])))
        else:
            given = replace(answer, state=-2 - answer.state)
            answers.append(given)
            found.append((given, node.states[answer.state].args[0]))
    return tuple(s for s, is_own in zip(node.states, own, strict=True) if not is_own), tuple(answers), found


def _some(column: Evaluated, rows: Int64s) -> Data:
    """Some rows of a column."""
    if column.type is SqlType.STRING:
        return column.values.take(pa.array(rows))
    values, valid = column.columns
    return Vector(values[rows], None if valid is None else valid[rows])
