"""The way of dicts into a window that has a row lane: few Python calls from `App.push` to the subscribers.

    dict ─▶ values of the declared types ─▶ registers ─▶ one compiled call ─▶ rows of a sheet ─▶ outlet

`push` takes an event if it can, and `push_list` events from the front; the others are for the ordinary path. If the
values of one event are not plainly those declared, or a time goes back, it takes none: the ordinary path decides then
whether the push is refused as a whole.

Invariants:
1. Between calls all counters of the stream and of the app are where the ordinary path has them.
2. The rows of a sheet before `program.row` have gone out as they are. The other rows are filled again.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.engine.outlet import Outlet
from penstock.engine.result_sheet import ResultSheet
from penstock.engine.stream_input import StreamInput
from penstock.expressions.batch import Data, Row
from penstock.expressions.vector import Vector
from penstock.operators.results import ResultShow
from penstock.operators.row_lane import RowLane
from penstock.types import SqlType

_PYTHON = {SqlType.DOUBLE: float, SqlType.STRING: str}
"""The Python type of values; int for all others."""

MOST_ROWS = 256
"""Lists of more events take the ordinary path."""

NoteRows = Callable[[str, int, int], None]
"""Told of a stream, how many of its rows have passed, and the time of the last."""


class PushLane:
    """For a stream whose only reader is the query of the row lane, with results that go to the outlet alone."""

    def __init__(
        self, source: StreamInput, lane: RowLane, show: ResultShow, outlet: Outlet, note_rows: NoteRows
    ) -> None:
        self._source = source
        self._reorder = source.reorder
        self._lane = lane
        self._program = lane.program
        self._show = show
        self._outlet = outlet
        self._note_rows = note_rows
        definition, plan = source.definition, lane.plan
        self._name, self._unit = definition.name, definition.time_unit
        self._codes_of = lane.codes_of
        self._key_type = None if plan.key is None else plan.key.type
        names = [definition.event_time, *([plan.key.name] if plan.key is not None else []), *plan.columns]
        self.columns = frozenset(names)
        if len(names) == 1:
            names *= 2  # of one name alone there would be no tuple
        kinds = {field.name: field.type for field in definition.schema.fields}
        self._get: Callable[[Any], tuple[Any, ...]] = itemgetter(*names)
        self._types = tuple(_PYTHON.get(kinds[name], int) for name in names)
        self._formats = [(form, struct.calcsize(form)) for form in plan.formats]
        self._last = source.ingest.bounds[1] * self._unit
        """The last time there is. The watermark is no earlier than the first one: the lane begins behind other rows."""
        outputs = (SqlType.TIMESTAMP, SqlType.TIMESTAMP, *(kind for _, kind in plan.outputs))
        self._shown = dict(zip(outlet.made_schema.names, outputs, strict=True))
        self._sheet = self._begun_sheet(0)

    def _begun_sheet(self, least_room: int) -> ResultSheet:
        """A new sheet for results, which has room for texts of so many bytes."""
        program = self._program
        self._sheet = ResultSheet(self._outlet.made_schema, self._lane.shown, program.most_rows, least_room)
        program.begin_sheet(self._sheet.cells)
        self._times = program.inputs[0]
        self._others = [(place, cells) for place, cells in enumerate(program.inputs) if place > 0]
        return self._sheet

    def push(self, event: dict[Any, Any]) -> bool:
        """Takes an event, if it can."""
        try:
            values = self._get(event)
        except KeyError:
            return False
        if tuple(map(type, values)) != self._types:
            return False
        time, key, text, program = values[0] * self._unit, values[1], b"", self._program
        if not self._reorder.watermark <= time <= self._last:
            return False
        try:
            if self._codes_of is not None:
                text = key.encode()
                [code] = self._codes_of((key,))
                if code < 0:
                    return False
                values = (time, code, *values[2:])
            row, sheet = program.row, self._sheet
            if row == program.most_rows or sheet.end + len(text) > sheet.most:
                sheet, row = self._begun_sheet(len(text)), 0
            self._times[row] = time
            for place, cells in self._others:
                cells[row] = values[place]
        except ValueError:  # a value that its column cannot hold
            return False
        if not self._lane.enter(1):
            return False
        self._source.pass_rows(1, time)
        self._note_rows(self._name, 1, time)
        if not program.is_plain:
            self._show_ordinarily(1, [key])
        elif self._outlet.is_heard:
            if self._codes_of is not None:
                sheet.put_text(row, text)
            program.row = row + 1
            self._outlet.send(sheet.rows(row, 1))
        else:
            self._outlet.put(self._row(row, key))
        return True

    def _row(self, row: int, key: Any) -> Row:
        """A row of the sheet as Python values."""
        shown: dict[str, Any] = {}
        for (name, kind), register in zip(self._shown.items(), self._lane.shown, strict=True):
            cells = None if register is None else self._program.column(register).view(kind.storage)
            shown[name] = key if cells is None else cells.item(row)
        return Row(self._shown, shown)

    def push_list(self, events: list[Any]) -> int:
        """Takes events from the front of a list; returns how many."""
        rows, program = len(events), self._program
        if not 0 < rows <= MOST_ROWS or list(map(type, events)).count(dict) < rows:
            return 0
        try:
            columns: list[Sequence[Any]] = list(zip(*map(self._get, events), strict=True))
        except KeyError:
            return 0
        for column, kind in zip(columns, self._types, strict=True):
            if list(map(type, column)).count(kind) < rows:
                return 0
        times = list(columns[0]) if self._unit == 1 else [time * self._unit for time in columns[0]]
        if times != sorted(times) or not self._reorder.watermark <= times[0] <= times[-1] <= self._last:
            return 0
        columns[0], keys = times, columns[1]
        try:
            room = 0
            if self._codes_of is not None:
                columns[1] = self._codes_of(keys)
                room = len("".join(keys).encode())
            row, sheet = program.row, self._sheet
            if row + rows > program.most_rows or sheet.end + room > sheet.most:
                sheet, row = self._begun_sheet(room), 0
            for cells, (form, width), column in zip(program.inputs, self._formats, columns, strict=False):
                struct.pack_into(f"{rows}{form}", cells, width * row, *column)
        except (struct.error, UnicodeEncodeError):  # a value that its column cannot hold
            return 0
        done = self._lane.enter(rows)
        if done == 0:
            return 0
        self._source.pass_rows(done, times[done - 1])
        self._note_rows(self._name, done, times[done - 1])
        if program.is_plain:
            if self._codes_of is not None:
                sheet.put_texts(row, keys[:done])
            program.row = row + done
            (self._outlet.send if self._outlet.is_heard else self._outlet.put)(sheet.rows(row, done))
        else:
            self._show_ordinarily(done, keys)
        return done

    def _show_ordinarily(self, done: int, keys: Sequence[Any]) -> None:
        """The select list is computed by the evaluator, which knows what is rejected and why."""
        program = self._program
        shown: list[Data] = []
        if self._codes_of is not None:
            shown.append(list(keys[:done]))
        elif self._key_type is not None:
            shown.append(Vector(np.array(keys[:done], self._key_type.storage), None))
        starts: Int64s = program.register(self._lane.plan.starts).copy()
        ends: Int64s = program.register(0).copy()
        slots: Slots = np.zeros(program.emitted, np.int32)
        self._show.see(shown, self._lane.played(slots), None, starts, ends)
        for chunk in self._show.outgoing.take():
            self._outlet.put(chunk.arrow)
