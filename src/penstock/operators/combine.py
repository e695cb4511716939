"""Aggregates over windows of several lengths, put together: a row for each group of the longest window.

    longest   10:00 a, 10:00 b, 10:10 a ...      every evaluation, every group
    shorter   10:00 a,          10:10 a ...      10:00 b: nothing of b in it, so NULL, or 0 for a COUNT

Invariants:
1. An evaluation is shown once all inputs have passed it.
2. `_last` is the last evaluation with rows. The one after it is made even if no group is left, for ISTREAM and DSTREAM
   compare with it; further ones without rows are not, as everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.operators.chunk import Chunk, concat
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.operator import Operator, Progress
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.plan.nodes import CombineNode
from penstock.types import SqlType


@component("Combine")
class Combine(Operator):
    def __init__(self, name: str, node: CombineNode, resources: Resources) -> None:
        longest = node.inputs[0]
        length, slide = longest.window.extent.length, longest.window.time_slide
        assert length is not None, "the binder refuses all others"
        assert slide is not None, "the binder refuses all others"
        self._range, self._slide = length, slide.micros
        self._schemas = [part.schema.arrow for part in node.inputs]
        self._key_types = tuple(key.type for key in longest.group_by)
        self._looked = node.looked
        self._witnesses = node.witnesses
        compared = resources.account(f"{name}: rows that the next are compared with")
        self._emitter = Emitter(node.emission, node.schema, resources.reject, self._key_types, compared)
        account = resources.account(f"{name}: rows that wait for the other windows")
        self._ports = Ports(len(node.inputs), account)
        self._last: int | None = None

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        reached = self._ports.put(port, chunk, watermark)
        return Progress(self._release(reached), reached)

    def waits_for(self, port: int, watermark: int) -> bool:
        return bool(self._ports.heads) or (self._last is not None and self._last + self._slide <= watermark)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        """The inputs have ended; `last_time` is the last boundary of the longest window."""
        results = self._release(-START)
        if self._last is not None and last_time is not None and self._last + self._slide <= last_time:
            results += self._show_empty()
        return results

    def _release(self, before: int) -> list[Chunk]:
        """The evaluations with boundaries up to `before`; a row's time is its boundary - 1."""
        due = self._ports.take(before)
        results = self._show_due(due) if 0 in due else []
        if before < -START and self._last is not None and self._last + self._slide <= before:
            results += self._show_empty()
        return results

    def _show_due(self, due: Due) -> list[Chunk]:
        """The evaluations in which the longest window has rows: without those there is no result."""
        parts = [concat(due.get(port, []), schema) for port, schema in enumerate(self._schemas)]
        results: list[Chunk] = []
        ends = parts[0].times + 1
        begin = 0
        # Evaluations that follow each other without a gap are shown together.
        gaps = np.flatnonzero(np.diff(ends, prepend=self._last if self._last is not None else ends[:1]) > self._slide)
        for gap in gaps.tolist():
            results += self._show(parts, ends, begin, gap)
            if self._last is not None:
                results += self._show_empty()
            begin = gap
        return results + self._show(parts, ends, begin, len(ends))

    def _show(self, parts: list[Chunk], ends: Int64s, begin: int, end: int) -> list[Chunk]:
        """The rows [begin, end) of the longest window with what the others have of their groups."""
        if begin == end:
            return []
        shown = parts[0].slice(begin, end)
        upto = np.append(np.flatnonzero(np.diff(ends[begin:end])) + 1, end - begin)
        bounds = ends[begin:end][upto - 1]
        self._last = int(bounds[-1])
        rows, failed = self._rows([shown, *parts[1:]])
        if failed.any():
            rows, upto = rows.filter(pa.array(~failed)), upto - np.cumsum(failed)[upto - 1]
        chunk = self._emitter.emit(Evaluations(rows, upto, bounds - self._range, bounds))
        return [chunk] if chunk.rows else []

    def _show_empty(self) -> list[Chunk]:
        """The evaluation after the last one with rows has none."""
        assert self._last is not None
        bounds = np.array([self._last + self._slide])
        self._last = None
        rows, _ = self._rows([concat([], schema) for schema in self._schemas])
        chunk = self._emitter.emit(Evaluations(rows, np.zeros(1, np.int64), bounds - self._range, bounds))
        return [chunk] if chunk.rows else []

    def _rows(self, parts: list[Chunk]) -> tuple[pa.RecordBatch, Bools]:
        """Keys and aggregates of the first part's rows, in the columns that the select list reads, and which rows have
        an aggregate that could not be computed: that has been said where it was tried."""
        places = self._places(parts)
        failed = np.zeros(parts[0].rows, np.bool_)
        for place, witness in zip(places, self._witnesses, strict=True):
            failed |= (place < 0) & (places[witness] >= 0)
        names = [f"#{i}" for i in range(len(self._key_types))]
        columns = [parts[0].arrow.column(name) for name in names]
        for number, looked in enumerate(self._looked):
            column = parts[looked.input].arrow.column(f"${looked.column}")
            if looked.input:
                place = places[looked.input]
                column = column.take(pa.array(place, mask=place < 0))
                if looked.empty is not None:
                    column = pc.fill_null(column, pa.scalar(looked.empty, column.type))
            names.append(f"${number}")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=names), failed

    def _places(self, parts: list[Chunk]) -> list[Int64s]:
        """Where each row of the first part is in every part; -1 where it is not."""
        groups = GroupTable((SqlType.TIMESTAMP, *self._key_types))
        slots = groups.assign(self._group(parts[0]), parts[0].rows, None)
        places = []
        for part in parts:
            theirs = groups.assign(self._group(part), part.rows, None)
            row = np.full(groups.capacity, -1, np.int64)
            row[theirs] = np.arange(part.rows)
            places.append(row[slots])
        return places

    def _group(self, part: Chunk) -> list[Evaluated]:
        """What names a row: its evaluation and its keys."""
        keys = [ColumnView(part.arrow.column(f"#{i}"), kind) for i, kind in enumerate(self._key_types)]
        return [ColumnView(part.arrow.column("window_end"), SqlType.TIMESTAMP), *keys]

    def snapshot(self) -> dict[str, Any]:
        return {"ports": self._ports.snapshot(), "emitter": self._emitter.snapshot(), "last": self._last}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._ports.restore(snapshot["ports"])
        self._emitter.restore(snapshot["emitter"])
        self._last = snapshot["last"]
