"""What windows per partition have in common: when rows enter, when partitions are evaluated, and where they are.

Without a slide of time each event may make its partition due. With one all partitions are evaluated at each boundary,
and rows enter in between.

    rows ─▶ partitions in memory ─────────────────────────▶ evaluations ─▶ results
        └─▶ partitions in shards, once memory is short ──────┘ (paged.partitions)

Invariants:
1. Partitions are in memory or in shards, all of them. From shards none comes back.
2. Evaluations and their order do not depend on where partitions are.
3. Where a shard is played, an operator in memory gives its evaluations to `show`, and makes no results.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.lang.query import Emit
from penstock.operators.chunk import CHUNK_ROWS, NO_EVENTS, Chunk
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.paged.held import keys_of
from penstock.operators.paged.partition_columns import PartitionColumns, Windowed
from penstock.operators.paged.partition_shards import Show
from penstock.operators.paged.partitions import PagedPartitions
from penstock.operators.partitions import Partitions
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.stage import Consumer
from penstock.plan.nodes import AggregateNode

_LEAST_FREE, _MANY_PARTITIONS = 3, 8
"""Partitions go to shards when less than the one part of the memory is free, or would be if they were twice as many,
and what is kept of them besides the values of their rows takes more than the other."""

_AMPLE = 2
"""If more than such a part of the memory is free, nothing is looked at."""

_LEAST_BYTES = 1 << 17
"""Partitions that take fewer bytes stay in memory: what is known of shards would take as much."""

_NEW_BYTES, _LEAST_ROWS = 2048, 16
"""Rows enter together if so many bytes are free for each: all may have partitions of their own. So many may always."""


def in_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """What operators that page saved before they did: all partitions were in memory."""
    return saved | {"paged": None}


def may_page(node: Windowed) -> bool:
    """Partitions page where nothing is compared with the evaluation before. What a user's aggregate answers may depend
    on rows that have left."""
    users = isinstance(node, AggregateNode) and any(state.user is not None for state in node.states)
    return node.emission.emit in (Emit.EVENT_GROUP, Emit.RSTREAM) and not users


class PartitionedOperator(Operator):
    """Results are put into `_outgoing`. `_reject` counts the rows that cannot be computed."""

    _outgoing: Outgoing
    _emitter: Emitter
    pages: ClassVar[bool] = False
    """Whether partitions may be in shards."""

    def __init__(
        self,
        name: str,
        node: Windowed,
        partitions: Partitions,
        count: Callable[[Int64s, int], int] | None,
        resources: Resources,
        show: Show | None = None,
    ) -> None:
        """`count` says how many rows may enter together, if that matters."""
        self._name, self._resources = name, resources
        self._node: Windowed = node
        self._partitions = partitions
        self._count = count
        self._account = resources.account(f"{name}: partitions")
        self._see = show or self._show_results
        self._may_page = self.pages and show is None and may_page(node)
        self._paged: PagedPartitions | None = None
        """The partitions, once they are in shards."""
        self._reached = START
        self._send_later: Consumer | None = None
        self._reject_to = resources.reject
        self._rejected = 0

    @staticmethod
    def _for_partitions(resources: Resources, show: Show | None) -> Resources:
        """For what partitions in memory take: it goes back when they go to shards. A shard is gone as a whole."""
        if show is not None:
            return resources
        held = resources.apart()
        resources.at_end(held.close)
        return held

    @abstractmethod
    def _per_event(self, chunk: Chunk) -> None:
        """Rows enter, each of which may make its partition due."""

    @abstractmethod
    def _only_enter(self, chunk: Chunk) -> None:
        """Rows enter between two boundaries of time."""

    @abstractmethod
    def _evaluate_all(self, boundary: int) -> None:
        """The partitions that are due at a boundary of time are evaluated, in the order of their keys."""

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        chunk = self._partitions.admitted(chunk)
        if not self._partitions.by_time:
            for part, _ in chunk.parts(watermark, self._rows_at_once if self._may_page else self._count):
                if part.rows:
                    self._take_events(part)
            return self._progress(watermark - 1)
        for step in self._partitions.walk(chunk, watermark, lambda: self._outgoing.made + self._rejected):
            self._take_step(step)
        return Progress(self._outgoing.take(), watermark)

    def _take_step(self, step: Chunk | int) -> None:
        """Rows enter, or partitions are looked at at a boundary of time."""
        if isinstance(step, int):
            if self._paged is None:
                self._evaluate_all(step)
            else:
                self._paged.evaluate(step, self._show_evaluations)
            return
        for part, _ in step.parts(0, self._rows_at_once if self._may_page else None):
            if self._paged is None:
                self._only_enter(part)
                if self._may_page:
                    self._page()
            else:
                self._paged.add(part.times, self._logged(self._paged.columns, part))
                if self._paged.has_many:
                    self._paged.pass_over()

    def _take_events(self, chunk: Chunk) -> None:
        if self._paged is None:
            self._per_event(chunk)
            if self._may_page:
                self._page()
        else:
            self._paged.add(chunk.times, self._logged(self._paged.columns, chunk))
            if self._paged.has_many:
                self._paged.play(self._show_evaluations)

    def _rows_at_once(self, times: Int64s, start: int) -> int:
        """How many rows are taken together."""
        if self._paged is not None:
            return CHUNK_ROWS
        count = CHUNK_ROWS
        if self._count is not None and not self._partitions.by_time:
            count = self._count(times, start)
        return min(count, max(self._account.free // _NEW_BYTES, _LEAST_ROWS))

    def _progress(self, reached: int) -> Progress:
        """What has come of a call, and how far time has come: events that wait are yet to be played."""
        self._reached = reached
        paged = self._paged
        if paged is not None and paged.waits_since is not None:
            if self._send_later is None:
                paged.play(self._show_evaluations)
            else:
                reached = min(reached, paged.waits_since - 1)
                if self._play_waiting not in self._resources.later:
                    self._resources.later.append(self._play_waiting)
        return Progress(self._outgoing.take(), reached)

    def _play_waiting(self) -> None:
        if self._paged is not None and self._send_later is not None:
            self._paged.play(self._show_evaluations)
            self._send_later(self._outgoing.take(), self._reached)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def send_later_to(self, send: Consumer) -> None:
        self._send_later = send

    @property
    def heeds_time(self) -> bool:
        return self._partitions.by_time

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        if self._paged is not None and not self._partitions.by_time:
            self._paged.play(self._show_evaluations)
            return self._outgoing.take()
        end = self._partitions.last_boundary(last_time)
        return [] if end is None else self.process(NO_EVENTS, end).chunks

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self._rejected += 1
        self._reject_to(reason, row)

    # Results

    def _show_results(self, evaluations: Evaluations, events: Int64s | None) -> None:
        self._show_evaluations(evaluations)

    def _show_evaluations(self, evaluations: Evaluations) -> None:
        self._outgoing.put(self._emitter.emit(evaluations))

    # A shard is played by an operator in memory

    def hold(self, chunk: Chunk, numbers: Int64s | None) -> None:
        for part in self.pieces(chunk):
            if numbers is not None:
                own, numbers = numbers[: part.rows], numbers[part.rows :]
                self._partitions.begin(part, own)
            self._only_enter(part)

    def pieces(self, chunk: Chunk) -> Iterator[Chunk]:
        for part, _ in chunk.parts(0, self._count):
            yield part

    def play(self, chunk: Chunk) -> None:
        self._per_event(chunk)

    def evaluate(self, boundary: int) -> None:
        self._evaluate_all(boundary)

    def keys(self, partitions: Int64s) -> list[pa.Array]:
        table = self._partitions.table
        return keys_of(table, partitions.astype(np.int32), table.types)

    # Partitions page

    def _page(self) -> None:
        """Partitions that leave too little memory for others go to shards."""
        free, total = self._account.free, self._account.total
        if _AMPLE * free > total:
            return
        nbytes = self._kept_bytes
        if (_LEAST_FREE * free <= total or free < nbytes) and nbytes >= max(total // _MANY_PARTITIONS, _LEAST_BYTES):
            paged = self._begin_paging()
            paged.fill(self._held(paged.columns))
            self._forget_partitions()

    def _begin_paging(self) -> PagedPartitions:
        kind: Any = type(self)
        self._paged = PagedPartitions(self._name, self._node, kind, self._resources)
        return self._paged

    def _saved_paged(self) -> dict[str, Any] | None:
        if self._paged is None:
            return None
        return {"partitions": self._paged.snapshot(), "boundaries": self._partitions.boundaries()}

    def _restore_paged(self, snapshot: dict[str, Any]) -> None:
        self._begin_paging().restore(snapshot["partitions"])
        self._partitions.go_on(snapshot["boundaries"])
        self._forget_partitions()

    @property
    def _kept_bytes(self) -> int:
        """What is kept of partitions in memory besides the values of their rows."""
        return self._partitions.nbytes

    def _held(self, columns: PartitionColumns) -> Iterator[tuple[Int64s, list[pa.Array]]]:
        """The rows of partitions in memory, as they are logged, with their times."""
        raise AssertionError("only what pages is asked")

    def _logged(self, columns: PartitionColumns, chunk: Chunk) -> list[pa.Array]:
        """Rows as they are logged. Those that fail are rejected."""
        raise AssertionError("only what pages is asked")

    def _forget_partitions(self) -> None:
        """The partitions are in shards: none is kept here."""
        raise AssertionError("only what pages is asked")
