"""The batches that wait for the engine in the host: bounded by their rows and their number, handed over together.

Invariants:
1. A put waits while the most rows or batches allowed are waiting: a system that is behind makes its drivers wait. A
   slow system gets small batches; the limit on their number keeps its queue short.
2. Batches are taken in the order they were put; what is taken at once is of one stream.
"""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa

WAITING_ROWS = 65_536
WAITING_BATCHES = 8
TAKEN_ROWS = 65_536
"""Batches that wait are pushed together until there are so many rows: a system that is behind gets larger batches."""


class Intake:
    """Any thread may put; one takes."""

    def __init__(self) -> None:
        self._batches: deque[tuple[str, pa.RecordBatch]] = deque()
        self._rows = 0
        self._ended = False
        self._changed = threading.Condition()

    def put(self, stream: str, batch: pa.RecordBatch) -> None:
        """After the end what comes is dropped."""
        with self._changed:
            while not self._ended and (self._rows >= WAITING_ROWS or len(self._batches) >= WAITING_BATCHES):
                self._changed.wait()
            if not self._ended:
                self._batches.append((stream, batch))
                self._rows += batch.num_rows
                self._changed.notify_all()

    def take(self, timeout: float) -> tuple[str, list[pa.RecordBatch]] | None:
        """The batches of one stream that come next; None if none came within so many seconds."""
        with self._changed:
            if not self._batches and not self._ended:
                self._changed.wait(timeout)
            if not self._batches:
                return None
            stream = self._batches[0][0]
            taken: list[pa.RecordBatch] = []
            rows = 0
            while self._batches and self._batches[0][0] == stream and rows < TAKEN_ROWS:
                taken.append(self._batches.popleft()[1])
                rows += taken[-1].num_rows
            self._rows -= rows
            self._changed.notify_all()
            return stream, taken

    def end(self) -> None:
        """Nothing more is put; what waits can be taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Ended, and empty."""
        with self._changed:
            return self._ended and not self._batches
