"""Windows per partition, and sessions, without aggregation: the relation is the partition's or the session's rows.

Each partition's (or session's) rows are a queue of a store that pages (`store.queues`); an evaluation reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.vector import ColumnView
from penstock.lang.query import Emit
from penstock.operators.aggregation import EMITTED_AT_ONCE
from penstock.operators.chunk import Chunk, joined
from penstock.operators.cutting import Cuts, cuts_of
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.kept_rows import KeptRows
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.paged.partition_columns import PartitionColumns
from penstock.operators.paged.partition_shards import Show
from penstock.operators.partitioned_operator import PartitionedOperator, in_memory
from penstock.operators.partitions import Partitions
from penstock.operators.resources import Resources
from penstock.operators.selection import Selection
from penstock.operators.session_windows import SessionWindows
from penstock.plan.nodes import RelationNode
from penstock.types import SqlType
from penstock.windows.spec import Session


class _Evaluation(NamedTuple):
    rows: pa.RecordBatch
    start: int
    end: int
    partition: int


def _emit(emitter: Emitter, evaluations: Iterable[_Evaluation], outgoing: Outgoing) -> None:
    """Emits evaluations together, as many as have about `EMITTED_AT_ONCE` rows."""
    waiting: list[_Evaluation] = []
    rows = 0
    for evaluation in evaluations:
        waiting.append(evaluation)
        rows += evaluation.rows.num_rows
        if rows >= EMITTED_AT_ONCE:
            _emit_all(emitter, waiting, outgoing)
            waiting, rows = [], 0
    if waiting:
        _emit_all(emitter, waiting, outgoing)


def _emit_all(emitter: Emitter, evaluations: list[_Evaluation], outgoing: Outgoing) -> None:
    upto = np.cumsum([e.rows.num_rows for e in evaluations], dtype=np.int64)
    starts, ends, partitions = (np.array([e[i] for e in evaluations], np.int64) for i in (1, 2, 3))
    outgoing.put(emitter.emit(Evaluations(joined([e.rows for e in evaluations]), upto, starts, ends, partitions)))


@component("PartitionedRelation", 2, in_memory)
class PartitionedRelation(PartitionedOperator):
    """[PARTITION BY k ROWS n ...]: the last n rows of each partition. With `show` it plays a shard, and makes no
    results of what it evaluates."""

    pages = True

    def __init__(self, name: str, node: RelationNode, resources: Resources, show: Show | None = None) -> None:
        self._selection = Selection(name, node, resources)
        self._emitter = self._selection.emitter
        self._in_memory = held = self._for_partitions(resources, show)
        self._kept = KeptRows(name, node, self._selection, held)
        partitions = Partitions(name, node, self._kept.specs, held)
        cuts = cuts_of(node, self._kept.account)
        super().__init__(name, node, partitions, None if cuts is None else cuts.count, resources, show)
        self._event_row = node.emission.emit is Emit.EVENT_GROUP
        self._outgoing = Outgoing()

    def _per_event(self, chunk: Chunk) -> None:
        partitions, due, columns = self._take(chunk)
        if self._event_row:
            self._show_events(chunk.times, partitions, due, columns)
            return
        edges = np.append(np.flatnonzero(due) + 1, chunk.rows).tolist()
        begin = 0
        for end in edges:
            self._enter(partitions[begin:end], [column.at(slice(begin, end)) for column in columns])
            if due[end - 1] and begin < end:
                self._evaluate(partitions[end - 1 : end], int(chunk.times[end - 1]), np.array([end - 1]))
            begin = end

    def _show_events(self, times: Int64s, partitions: Slots, due: Bools, columns: list[Argument]) -> None:
        """The default of windows at every event: the arriving row, none if it fails WHERE."""
        moved = self._partitions.enter(partitions, columns)
        shown = due & (columns[1].values != 0)
        rows = self._kept.batch([columns[0], Argument(shown.astype(np.int8), None), *columns[2:]])
        owners = partitions[shown].astype(np.int64)
        evaluations = Evaluations(rows, None, moved.oldest[shown], times[shown], owners)
        self._see(evaluations, np.flatnonzero(shown))
        self._kept.leave(moved.left)

    def _take(self, chunk: Chunk) -> tuple[Slots, Bools, list[Argument]]:
        partitions, due = self._partitions.assign(chunk)
        selected = self._selection.select(chunk)
        assert selected.chunk.rows == chunk.rows, "these windows count rows before WHERE"
        return partitions, due, self._kept.take(selected)

    def _only_enter(self, chunk: Chunk) -> None:
        partitions, _, columns = self._take(chunk)
        self._enter(partitions, columns)

    def _evaluate_all(self, boundary: int) -> None:
        self._evaluate(self._partitions.due_at_boundary(), boundary, None)

    def _enter(self, partitions: Slots, columns: Sequence[Argument]) -> None:
        self._kept.leave(self._partitions.enter(partitions, columns).left)

    def _evaluate(self, partitions: Slots, end: int, events: Int64s | None) -> None:
        """Partitions are looked at at a time; as many together as have about `EMITTED_AT_ONCE` rows. Only one is, if
        that is for one of the `events`."""
        queues = self._partitions.queues
        go = np.cumsum(queues.lengths[partitions]) // EMITTED_AT_ONCE
        for own in np.split(partitions, np.flatnonzero(np.diff(go)) + 1) if len(partitions) else []:
            columns, upto = queues.read(own)
            shown = np.append(0, np.cumsum(columns[1].values))[upto]
            starts, ends = queues.oldest[own], np.full(len(own), end, np.int64)
            rows = Evaluations(self._kept.batch(columns), shown, starts, ends, own.astype(np.int64))
            self._see(rows, events)

    # Partitions page

    def _held(self, columns: PartitionColumns) -> Iterator[tuple[Int64s, list[pa.Array]]]:
        for _, numbers, keys, rows in self._partitions.held():
            times, shown = rows[0].values, rows[1].values != 0
            yield times, columns.logged(keys, self._kept.data(rows), shown, times, numbers)

    def _logged(self, columns: PartitionColumns, chunk: Chunk) -> list[pa.Array]:
        selected = self._selection.select(chunk)
        assert selected.chunk.rows == chunk.rows, "these windows count rows before WHERE"
        values = [value.values for value in selected.values]
        return columns.logged(self._partitions.keys_of(chunk), values, selected.keep, chunk.times, None)

    def _forget_partitions(self) -> None:
        self._partitions.close()
        self._in_memory.close()
        del self._kept

    def snapshot(self) -> dict[str, Any]:
        paged = self._paged
        return {
            "emitter": self._emitter.snapshot(),
            "kept": self._kept.snapshot() if paged is None else None,
            "partitions": self._partitions.snapshot() if paged is None else None,
            "paged": self._saved_paged(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._emitter.restore(snapshot["emitter"])
        if snapshot["paged"] is not None:
            self._restore_paged(snapshot["paged"])
            return
        self._kept.restore(snapshot["kept"])
        self._partitions.restore(snapshot["partitions"])


@component("SessionRelation")
class SessionRelation(Operator):
    """[SESSION gap]: the rows of each session, when it closes. `_queue_of` gives an open session its queue."""

    def __init__(self, name: str, node: RelationNode, resources: Resources) -> None:
        assert isinstance(node.window.extent, Session)
        self._selection = Selection(name, node, resources)
        self._kept = KeptRows(name, node, self._selection, resources)
        account = resources.account(f"{name}: sessions")
        self._sessions = SessionWindows(node.window.extent.gap, node.partition_by, account)
        self._sessions.hold(self._selection.emitter.remembers)
        self._queues = resources.queues(name, self._kept.specs, node)
        self._queue_of = GroupTable((SqlType.BIGINT,), account)
        self._cuts = Cuts(account, self._sessions.next_close)
        self._outgoing = Outgoing()

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        for part, reached in chunk.parts(watermark, self._cuts.count):
            if part.rows:
                queues = self._find(self._sessions.assign(part))
                self._queues.enter(queues, self._kept.take(self._selection.select(part)))
                self._queue_of.counts[queues] = 1
            self._close(reached)
        return Progress(self._outgoing.take(), watermark)

    def _find(self, instances: Int64s) -> Slots:
        return self._queue_of.assign([ColumnView(pa.array(instances), SqlType.BIGINT)], len(instances), None)

    def _close(self, watermark: int) -> None:
        closed = self._sessions.close(watermark)
        if len(closed.instances):
            queues = self._find(closed.instances)
            extents = zip(queues.tolist(), *(numbers.tolist() for numbers in closed[1:]), strict=True)
            _emit(self._selection.emitter, (self._evaluation(*extent) for extent in extents), self._outgoing)
            self._queue_of.counts[queues] = 0
            self._queue_of.collect(len(queues))

    def _evaluation(self, queue: int, start: int, end: int, partition: int) -> _Evaluation:
        columns = self._queues.take(queue)
        rows = self._kept.batch(columns)
        self._kept.leave(columns)
        return _Evaluation(rows, start, end, partition)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._sessions.end(last_time)
        if end is not None:
            self._close(end)
        return self._outgoing.take()

    def snapshot(self) -> dict[str, Any]:
        return {
            "emitter": self._selection.emitter.snapshot(),
            "kept": self._kept.snapshot(),
            "sessions": self._sessions.snapshot(),
            "queues": self._queue_of.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._selection.emitter.restore(snapshot["emitter"])
        self._kept.restore(snapshot["kept"])
        self._sessions.restore(snapshot["sessions"])
        self._queue_of.restore(snapshot["queues"])
