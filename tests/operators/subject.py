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
from penstock.operators.joins.core import JoinCore
from penstock.operators.merging import Merge
from penstock.operators.operator import Operator
from penstock.operators.panes.family import PaneFamily
from penstock.operators.parts import PartialEvaluation
from penstock.operators.pipeline import Pipeline, _Operated
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.sliding import make_results
from penstock.plan.build import build
from penstock.plan.joins.sharing import joins
from penstock.plan.nodes import AggregateNode
from penstock.plan.physical.lower import lower
from penstock.plan.sharing import shareable
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
        own = [part.operator for part in stage.pipeline._parts if isinstance(part, _Operated)]
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
        plan = lower([(query, node)])
        known = {"shared": None, "cores": None} if snapshot is None else snapshot
        self._shared = [
            self._make_shared(f"shared-{number}", window, subject.form, known["shared"])
            for number, window in enumerate(shareable(node))
        ]
        self._cores = [
            JoinCore(f"join-{number}", [join], self._resources(), known["cores"] and known["cores"][number])
            for number, join in enumerate(joins(node))
        ]
        self._came: list[Chunk] = []
        self.pipeline = Pipeline(
            "q",
            plan,
            plan.queries[0],
            self._resources(),
            self._shared,
            self._cores,
            self._take,
            in_parts=subject.form == "parts",
        )
        self._merge: Merge | None = None
        if subject.form == "parts":
            assert isinstance(node, AggregateNode)
            self._merge = Merge("merge", node, Resources(StoreManager(Budget(UNLIMITED), None), self._reject))
        if snapshot is not None:
            self._restore(snapshot)

    def _make_shared(
        self, name: str, node: AggregateNode, form: str, saved: list[Any] | None
    ) -> SharedAggregation | PaneFamily:
        if form == "panes":
            return PaneFamily(name, [node], self._resources(), None if saved is None else saved[0])
        evaluation = PartialEvaluation if form == "parts" else make_results
        return SharedAggregation(name, [node], self._resources(), evaluation)

    def _take(self, chunks: list[Chunk], reached: int) -> None:
        self._came += chunks
        self.watermark = max(self.watermark, reached)

    def _taken(self) -> list[Chunk]:
        came, self._came = self._came, []
        return came

    def _resources(self) -> Resources:
        return Resources(self._stores, self._reject, tables=self._tables)

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self.rejects.append(f"{reason}: {row}")

    def process(self, stream: str, events: list[Event], watermark: int) -> list[str]:
        times = np.array([event["t"] for event in events], np.int64)
        chunk = Chunk(times, pa.RecordBatch.from_pylist(events, self._schemas[stream]))
        found: list[str] = []
        for piece, reached in self._pieces.in_order([chunk], watermark):
            for writer in self._tables.writers(stream):
                writer.process(stream, piece, reached)
            for stage, port in self.pipeline.stages(stream):
                stage.take(piece, reached, port)
            for take in self.pipeline.entries.get(stream, ()):
                take(piece, reached)
            found += self._readable(self._taken())
            self._tables.collect()
        return found

    def finish(self) -> list[str]:
        self._tables.finish(self._tables.names)
        for shared in self._shared:
            shared.stage.finish(None)
        for core in self._cores:
            if core.joins_streams:
                core.finish(None)
        watermark = self.watermark
        self.pipeline.finish()
        self.watermark = watermark
        return self._readable(self._taken())

    def snapshot(self) -> bytes:
        saved = {
            "shared": [shared.snapshot() for shared in self._shared],
            "cores": [core.snapshot() for core in self._cores],
            "tables": self._tables.snapshot(),
            "pipeline": self.pipeline.snapshot(),
        }
        return state_format.encode(saved | {"stores": self._stores.snapshot()})

    def _restore(self, snapshot: dict[str, Any]) -> None:
        self._stores.restore(snapshot["stores"])
        for part, saved in zip((*self._shared, *self._cores), (*snapshot["shared"], *snapshot["cores"]), strict=True):
            part.restore(saved)
        self.pipeline.restore(snapshot["pipeline"])
        for shared in self._shared:
            if isinstance(shared, PaneFamily):
                shared.settle()
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
