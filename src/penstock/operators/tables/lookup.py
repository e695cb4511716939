"""Events with the rows of tables: what a stream that is joined with tables gives.

An event reads each table as of its own moment in the total order (time, stream position, sequence), with the changes
that it makes itself. Rows that come from no stream but a subquery read as of the end of their time.

Invariants:
1. An event waits until the streams that write the tables, besides its own, can make no change that it sees
   (`Table.complete_before`); the changes of its own stream are made before it is read.
2. Each table's `TableReader` has passed what this operator will never read again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.batch import Batch, Data, Row, Rows
from penstock.expressions.evaluate import UNCERTAIN, compile_expression, compile_row
from penstock.expressions.scalar import Values
from penstock.expressions.tree import Column, walk
from penstock.expressions.vector import Vector
from penstock.lang.bind_expressions import previous
from penstock.operators.chunk import NO_EVENTS, Chunk, computed
from penstock.operators.grouping import Grouping
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.ports import Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.row_selection import RowSelection
from penstock.operators.rows import taken
from penstock.operators.tables.history import AFTER_ALL, LITTLE
from penstock.operators.tables.reading import Piece, TableReading
from penstock.operators.tables.single import SingleReading, renamed
from penstock.operators.tables.table import END
from penstock.plan.reads import GroupingKey
from penstock.plan.tables.lookups import expressions, read_behind
from penstock.plan.tables.nodes import LookupNode
from penstock.types import SqlType

BATCH_ROWS = 1 << 20
"""So many events are looked up together at most: as many as make the most of a large table's partitions."""

_SEQUENCE = "#sequence"

_NOTHING_NEW = Progress([], START)
"""No rows, and a time that has been told."""


def _from_the_start(saved: dict[str, Any]) -> dict[str, Any]:
    """In version 1 no row of a table was ever over."""
    return {**saved, "since": [START for _ in saved["passed"]]}


@component("LookUp", 2, _from_the_start)
class LookUp(Operator):
    def __init__(self, name: str, node: LookupNode, resources: Resources) -> None:
        prefix = f"{node.alias}." if node.alias else ""
        self._names = {f"{prefix}{field.name}": field.name for field in node.input.schema}
        read = {c.name: c.type for e in expressions(node) for c in walk(e) if isinstance(c, Column)}
        self._stream_columns = [column for column in read if column in self._names]
        self._first = Grouping(GroupingKey(node.first, (), ()), [resources.reject])
        self._where = Grouping(GroupingKey(node.where, (), ()), [resources.reject])
        self._outputs = [compile_expression(output.expression) for output in node.outputs]
        self._output_names = node.schema.arrow.names
        self._kinds: dict[str, SqlType] = dict(read)
        self._tables = [
            TableReading(f"{name}-{i}", lookup, _wanted(read, lookup.alias), behind, resources)
            for i, (lookup, behind) in enumerate(zip(node.lookups, read_behind(node), strict=True))
        ]
        self.row_filter = None if node.first is None else compile_row(renamed(node.first, self._names))
        self._single: SingleReading | None = None
        self._waits = bool(node.clocks)
        if not self._waits and len(node.lookups) == 1 and SingleReading.fits(self._tables[0].table, node.lookups[0]):
            (lookup,) = node.lookups
            self._single = SingleReading(
                self._tables[0].reader, self._tables[0].table, lookup, _wanted(read, lookup.alias), self._names
            )
        outputs = [renamed(output.expression, self._names) for output in node.outputs]
        where = None if node.where is None else renamed(node.where, self._names)
        self._of_one_row = RowSelection(where, self._output_names, outputs)
        stream = node.input.stream_name
        self._position = AFTER_ALL if stream is None else resources.tables.position(stream)
        self._next = resources.rows_before(node.input)
        has_place = not self._waits and self._position != AFTER_ALL
        self._placed = [reading.reader for reading in self._tables if has_place]
        self._behind = node.behind
        self._ports = Ports(1, resources.account(f"{name}: events that wait for what writes the tables"))
        self._watermark = START
        self._outgoing = Outgoing()

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if port == 0:
            if self.left_out:
                self._next, self.left_out = self._next + self.left_out, 0
            is_new = watermark > self._watermark
            if is_new:
                self._watermark = watermark
            row = chunk.columns
            if isinstance(row, Row) and (done := self._look_up_one(chunk, row.values)) is not None:
                self._next += 1
                if not is_new and not self._ports.heads:
                    self._note_place()
                    return Progress(done, watermark) if done else _NOTHING_NEW
                if not self._waits:
                    self._note_place()
                    return Progress(done, self._passed(watermark))
                chunk = NO_EVENTS
            if not self._waits:
                if chunk.rows:
                    self._look_up(chunk, np.arange(self._next, self._next + chunk.rows))
                    self._next += chunk.rows
                self._note_place()
                return Progress(self._outgoing.take(), self._passed(watermark))
            self._put(chunk)
        complete = min(reading.table.complete_before(self._position) for reading in self._tables) - self._behind
        return Progress(self._released(complete), self._passed(min(self._watermark, complete)))

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def waits_for(self, port: int, watermark: int) -> bool:
        """Rows wait for the streams that write the tables. What a table keeps of the past waits for this operator's own
        stream; a little may wait longer. So do rows whose time is over."""
        if port:
            return bool(self._ports.heads)
        for reading in self._tables:
            table = reading.table
            if len(table.history) > LITTLE or (table.expiry is not None and table.expiry.waits):
                return True
        return False

    def _look_up_one(self, chunk: Chunk, values: Values) -> list[Chunk] | None:
        """What comes of a single event at once; None if the ordinary path says it."""
        first = self.row_filter
        try:
            if first is not None and first(values) is not True:
                return []
            if self._single is None or self._tables[0].table.cold.is_on:
                return None
            moment = (chunk.times.item(0) + self._behind, self._position, self._next)
            joined = self._single.join(values, moment)
            shown = None if joined is None else self._of_one_row.shown(joined)
        except UNCERTAIN:
            return None
        return [] if shown is None else [Chunk(chunk.times, shown)]

    def _note_place(self) -> None:
        """Where in its own stream the next event is that reads the tables."""
        if self._placed:
            place = self._position, self._next
            for reader in self._placed:
                reader.place = place

    def _put(self, chunk: Chunk) -> None:
        if chunk.rows:
            sequences = np.arange(self._next, self._next + chunk.rows)
            self._next += chunk.rows
            self._ports.put(0, Chunk(chunk.times, _numbered(chunk.columns, sequences)), self._watermark)

    def _released(self, before: int) -> list[Chunk]:
        for chunk in self._ports.take(before).get(0, []):
            self._look_up(chunk, _numbers_of(chunk.columns))
        return self._outgoing.take()

    def _passed(self, reached: int) -> int:
        passed = reached + self._behind
        for reading in self._tables:
            if passed > reading.reader.passed:
                reading.reader.passed = passed
        return reached

    def _look_up(self, chunk: Chunk, sequences: Int64s) -> None:
        for start in range(0, chunk.rows, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, chunk.rows)
            part = chunk if stop - start == chunk.rows else chunk.slice(start, stop)
            self._show(part, sequences[start:stop])

    def _show(self, chunk: Chunk, sequences: Int64s) -> None:
        batch = chunk.columns
        data: dict[str, Data] = {}
        for column in self._stream_columns:
            name = self._names[column]
            data[column] = batch.data(name) if isinstance(batch, Batch) else batch.column(name)
        rows = Chunk(chunk.times, Batch(self._kinds, data, chunk.rows))
        keep = self._first.passes(rows)
        if keep is not None and not keep.all():
            if not keep.any():
                return
            rows, sequences = taken(rows, np.flatnonzero(keep)), sequences[keep]
        pieces = [Piece(rows, sequences)]
        for reading in self._tables:
            pieces = [done for piece in pieces for done in reading.join(piece, self._position, self._behind)]
        for piece in pieces:
            if piece.rows.rows:
                self._show_rows(piece.rows)

    def _show_rows(self, rows: Chunk) -> None:
        keep = self._where.passes(rows)
        if keep is not None and not keep.all():
            if not keep.any():
                return
            rows = taken(rows, np.flatnonzero(keep))
        kept: Bools | None = None
        columns = []
        for output in self._outputs:
            result = output(rows.columns)
            kept = self._where.without(rows, kept, result.errors)
            columns.append(result)
        shown = computed(rows.times, self._output_names, columns)
        self._outgoing.put(shown if kept is None else shown.filter(kept))

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return self._released(END)

    def snapshot(self) -> dict[str, Any]:
        return {
            "waiting": self._ports.snapshot(),
            "next": self._next + self.left_out,
            "watermark": self._watermark,
            "passed": [reading.reader.passed for reading in self._tables],
            "since": [reading.reader.since for reading in self._tables],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._ports.restore(snapshot["waiting"])
        self._next, self._watermark, self.left_out = snapshot["next"], snapshot["watermark"], 0
        for reading, passed, begun in zip(self._tables, snapshot["passed"], snapshot["since"], strict=True):
            reading.reader.passed, reading.reader.since = passed, begun


def _numbered(rows: Rows, sequences: Int64s) -> Rows:
    """The rows with their places in the stream as one more column."""
    if isinstance(rows, Batch):
        return rows.with_columns({_SEQUENCE: Vector(sequences, None)}, {_SEQUENCE: SqlType.BIGINT})
    return rows.append_column(_SEQUENCE, pa.array(sequences))


def _numbers_of(rows: Rows) -> Int64s:
    numbers: Int64s
    if isinstance(rows, Batch):
        numbers = rows.vector(_SEQUENCE, SqlType.BIGINT).values
    else:
        numbers = rows.column(_SEQUENCE).to_numpy()
    return numbers


def _wanted(read: dict[str, SqlType], alias: str) -> dict[str, tuple[str, bool]]:
    """The columns of a table that are read: for each its own name, and whether it is that of before the event."""
    prefix = f"{alias}."
    found: dict[str, tuple[str, bool]] = {}
    for name in read:
        if name.startswith(prefix):
            found[name] = name.removeprefix(prefix), False
        elif name.startswith(previous(prefix)[:-1]):
            found[name] = name[len(previous(prefix)) - 1 : -1], True
    return found
