"""What windows per partition have in common: when rows enter, and when partitions are evaluated.

Without a slide of time each event may make its partition due. With one all partitions are evaluated at each boundary,
and rows enter in between.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.arrays import Int64s
from penstock.operators.chunk import NO_EVENTS, Chunk
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.partitions import Partitions
from penstock.operators.resources import Resources


class PartitionedOperator(Operator):
    """Results are put into `_outgoing`. `_reject` counts the rows that cannot be computed."""

    _outgoing: Outgoing

    def __init__(
        self, partitions: Partitions, count: Callable[[Int64s, int], int] | None, resources: Resources
    ) -> None:
        """`count` says how many rows may enter together, if that matters."""
        self._partitions = partitions
        self._count = count
        self._reject_to = resources.reject
        self._rejected = 0

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
            for part, _ in chunk.parts(watermark, self._count):
                if part.rows:
                    self._per_event(part)
            return Progress(self._outgoing.take(), watermark - 1)
        for step in self._partitions.walk(chunk, watermark, lambda: self._outgoing.made + self._rejected):
            if isinstance(step, int):
                self._evaluate_all(step)
            else:
                self._only_enter(step)
        return Progress(self._outgoing.take(), watermark)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    @property
    def heeds_time(self) -> bool:
        return self._partitions.by_time

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._partitions.last_boundary(last_time)
        return [] if end is None else self.process(NO_EVENTS, end).chunks

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self._rejected += 1
        self._reject_to(reason, row)
