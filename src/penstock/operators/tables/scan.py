"""A table as a whole, at every boundary of a slide: its rows as of then become those of a stream, a microsecond before.

Invariants:
1. Boundary b is evaluated once all changes with times below b have been made; it sees these and no others. Rows that
   are over a microsecond before it are not there.
2. The first boundary is the first one after the first event of the streams that write the table, the last one of a
   bounded run the first one after their last event.
3. A boundary waits until this operator has the watermark of every one of these streams: the watermark of a derived
   stream may arrive before that of the stream it derives from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.components import component
from penstock.operators.chunk import Chunk
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.tables.history import AFTER_ALL, LITTLE
from penstock.operators.tables.index import Asked, ValueIndex
from penstock.operators.tables.table import END
from penstock.plan.tables.nodes import ScanNode

_EVERYTHING = Asked(np.zeros((1, 1), np.int64), None, None)


def _from_the_start(saved: dict[str, Any]) -> dict[str, Any]:
    """In version 1 no row of a table was ever over."""
    return {**saved, "since": START}


@component("Scan", 2, _from_the_start)
class Scan(Operator):
    def __init__(self, name: str, node: ScanNode, resources: Resources) -> None:
        self._table = resources.tables.table(node.table)
        self._reader = self._table.reader()
        resources.at_end(lambda: self._table.forget(self._reader))
        self._slide = node.slide
        self._schema = node.schema
        account = resources.account(f"{name}: order of {node.table}")
        self._rows = ValueIndex(self._table, (), account, account)
        reached = self._table.complete_before(AFTER_ALL)
        self._heard = [START if reached == END else reached] * max(1, len(node.clocks))
        self._next: int | None = None
        self._last = START
        self._outgoing = Outgoing()

    def _after(self, time: int) -> int:
        """The first boundary after a time."""
        micros, offset = self._slide.micros, self._slide.offset
        return ((time - offset) // micros + 1) * micros + offset

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if chunk.rows:
            first = self._after(int(chunk.times[0]))
            # Of several streams the one that begins earlier may be heard later; nothing has been shown before then.
            self._next = first if self._next is None else min(self._next, first)
            self._last = max(self._last, int(chunk.times[-1]))
        self._heard[port] = max(self._heard[port], watermark)
        reached = min(self._table.complete_before(AFTER_ALL), *self._heard)
        return Progress(self._due(reached), reached)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def waits_for(self, port: int, watermark: int) -> bool:
        expiry = self._table.expiry
        if len(self._table.history) > LITTLE or (expiry is not None and expiry.waits):
            return True
        return self._next is not None and self._next <= watermark

    def _due(self, reached: int) -> list[Chunk]:
        while self._next is not None and self._next <= reached:
            shown = self._as_of(self._next)
            self._outgoing.put(shown)
            # A table that is empty and has no changes to come stays so: its boundaries are passed over.
            stays_empty = not shown.rows and not len(self._table.history)
            self._next = self._after(reached) if stays_empty else self._next + self._slide.micros
        self._reader.passed = max(self._reader.passed, reached)
        return self._outgoing.take()

    def _as_of(self, boundary: int) -> Chunk:
        history = self._table.history
        numbers = history.numbers(np.array([boundary]), -1, np.array([0])) if len(history) else None
        with self._table.cold.at_work():
            _, matched, _ = self._rows.look_up(_EVERYTHING, numbers, np.array([max(boundary - 1, self._reader.since)]))
            batch = pa.RecordBatch.from_arrays(matched.arrays(), names=list(self._schema.names))
        return Chunk(np.full(batch.num_rows, boundary - 1, np.int64), batch)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return self._due(self._after(self._last)) if self._next is not None else []

    def snapshot(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "last": self._last,
            "passed": self._reader.passed,
            "heard": self._heard,
            "since": self._reader.since,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._next, self._last, self._reader.passed = snapshot["next"], snapshot["last"], snapshot["passed"]
        self._heard = list(snapshot["heard"])
        self._reader.since = snapshot["since"]
