"""An operator to be checked, made from a query text, with its stores and tables and without an app.

This is the one file of the check suite that knows how operators are made and fed. The checks (`checks.py`) know
`Stage` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.engine.clock import SystemClock
from penstock.engine.pieces import Pieces
from penstock.engine.tables.tables import TableSet
from penstock.lang import parse
from penstock.lang.query import StreamRef
from penstock.operators.chunk import Chunk
from penstock.operators.merging import Merge
from penstock.operators.operator import Operator
from penstock.operators.panes.family import PaneFamily
from penstock.operators.pipeline import Pipeline
from penstock.operators.resources import Resources
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode
from penstock.store import state as state_format
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager

SECOND = 1_000_000
UNLIMITED = 1 << 30

Event = dict[str, Any]


class Stage(Protocol):
    """What the checks ask of an operator, whatever it is made of."""

    watermark: int
    """Nothing comes out any more before this time; `finish` is not bound by it."""

    rejects: list[str]

    def process(self, stream: str, events: list[Event], watermark: int) -> list[str]:
        """Events of one stream in order, with the time `t` in microseconds; gives result rows, readable and in order.
        Without events it is told the watermark alone."""

    def finish(self) -> list[str]: ...

    def snapshot(self) -> bytes: ...

    def close(self) -> int:
        """Gives everything back; returns the bytes that are still held."""


Make = Callable[[int, int, bytes | None], Stage]
"""Makes a stage from a memory budget, a size of blocks and, to go on from there, a snapshot."""


@dataclass(frozen=True)
class Subject:
    """What is checked. `draw` gives the events of each stream by its name, in the order of their times. `form` is
    "window", "panes", or "parts" for partial rows that are merged at once."""

    name: str
    text: str
    draw: Callable[[np.random.Generator], Mapping[str, list[Event]]]
    form: str = "window"

    def make(self, memory: int = UNLIMITED, block_size: int = 65536, saved: bytes | None = None) -> Stage:
        return _PipelineStage(self, memory, block_size, saved)

    def operator_classes(self) -> set[type[Operator]]:
        """The classes that its stage is made of."""
        stage = _PipelineStage(self, UNLIMITED, 65536, None)
        own = list(stage.pipeline._operators)
        inside = [value for operator in own for value in vars(operator).values() if isinstance(value, Operator)]
        stage.close()
        return {type(operator) for operator in own + inside}


class _PipelineStage:
    def __init__(self, subject: Subject, memory: int, block_size: int, saved: bytes | None) -> None:
        program = parse(subject.text)
        query = program.queries[0]
        node = build(query.body)
        self.rejects: list[str] = []
        self.watermark = -(1 << 62)
        self._stores = StoreManager(Budget(memory), None, block_size)
        self._pieces = Pieces(self._stores)
        self._schemas = {stream.name: stream.schema.arrow for stream in program.streams}
        self._tables = TableSet(self._stores, self._reject, SystemClock())
        self._tables.note_streams(self._schemas, ())
        known = {stream.name: StreamRef(stream.name, stream.schema) for stream in program.streams}
        self._tables.declare(program.tables, program.writes, known, {})
        snapshot = None if saved is None else state_format.decode(saved)
        self._family: PaneFamily | None = None
        if subject.form == "panes":
            assert isinstance(node, AggregateNode)
            layout = None if snapshot is None else snapshot["family"]
            self._family = PaneFamily("family", [node], self._resources(), layout)
        shared = () if self._family is None else (self._family,)
        self.pipeline = Pipeline("q", node, self._resources(), shared, in_parts=subject.form == "parts")
        self._merge: Merge | None = None
        if subject.form == "parts":
            assert isinstance(node, AggregateNode)
            self._merge = Merge("merge", node, Resources(StoreManager(Budget(UNLIMITED), None), self._reject))
        if snapshot is not None:
            self._restore(snapshot)

    def _resources(self) -> Resources:
        return Resources(self._stores, self._reject, tables=self._tables)

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self.rejects.append(f"{reason}: {row}")

    def process(self, stream: str, events: list[Event], watermark: int) -> list[str]:
        times = np.array([event["t"] for event in events], np.int64)
        chunk = Chunk(times, pa.RecordBatch.from_pylist(events, self._schemas[stream]))
        found: list[str] = []
        for piece, reached in self._pieces.in_order([chunk], watermark):
            self._tables.process(stream, piece, reached)
            if stream in self.pipeline.streams:
                progress = self.pipeline.push(stream, piece, reached)
                self.watermark = progress.watermark
                found += self._readable(progress.chunks)
            self._tables.collect()
        return found

    def finish(self) -> list[str]:
        self._tables.finish(self._tables.names)
        return self._readable(self.pipeline.finish())

    def snapshot(self) -> bytes:
        saved = {
            "family": None if self._family is None else self._family.snapshot(),
            "tables": self._tables.snapshot(),
            "pipeline": self.pipeline.snapshot(),
        }
        return state_format.encode(saved | {"stores": self._stores.snapshot()})

    def _restore(self, snapshot: dict[str, Any]) -> None:
        self._stores.restore(snapshot["stores"])
        if self._family is not None:
            self._family.restore(snapshot["family"])
        self.pipeline.restore(snapshot["pipeline"])
        if self._family is not None:
            self._family.settle()
        self._tables.restore(snapshot["tables"])

    def close(self) -> int:
        self.pipeline.close()
        self._tables.disconnect()
        self._tables._resources.close()
        self._stores.close()
        return self._stores.budget.used

    def _readable(self, chunks: list[Chunk]) -> list[str]:
        if self._merge is not None:
            chunks = list(self._merge.merge([chunk.arrow for chunk in chunks]))
        rows = [(time, row) for c in chunks for time, row in zip(c.times, c.arrow.to_pylist(), strict=True)]
        return [f"{time}: {row}" for time, row in rows]
