"""The way of dicts into a window that has a row lane: few Python calls from `App.push` to the subscribers.

    dict ─▶ values of the declared types ─▶ registers ─▶ one compiled call ─▶ columns of results ─▶ outlet

`PushLane.push` takes events from the front of a push and says how many; the others are for the ordinary path. If the
values of one event are not plainly those declared, or a time goes back, it takes none: the ordinary path decides then
whether the push is refused as a whole.

Invariant: between calls all counters of the stream and of the app are where the ordinary path has them.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots
from penstock.engine.one_row import LONGEST, OneRow
from penstock.engine.outlet import Outlet
from penstock.engine.stream_input import StreamInput
from penstock.expressions.batch import Data
from penstock.expressions.vector import Vector, strings
from penstock.lane.row_program import MOST_ROWS
from penstock.operators.results import ResultShow
from penstock.operators.row_lane import RowLane
from penstock.types import SqlType

_TIMESTAMP = SqlType.TIMESTAMP.arrow

_PYTHON = {SqlType.DOUBLE: float, SqlType.STRING: str}
"""The Python type of values; int for all others."""

_DICT = {dict}

_SHORT = LONGEST // 4
"""Texts of so many characters have at most `LONGEST` bytes."""

_MOST_KNOWN = 4096
"""So many keys of lists are remembered."""

NoteRows = Callable[[str, int, int], None]
"""Told of a stream, how many of its rows have passed, and the time of the last."""


class PushLane:
    """For a stream whose only reader is the query of the row lane, with results that go to the outlet alone."""

    def __init__(
        self, source: StreamInput, lane: RowLane, show: ResultShow, outlet: Outlet, note_rows: NoteRows
    ) -> None:
        self.ingest = source.ingest
        self._source = source
        self._lane = lane
        self._show = show
        self._outlet = outlet
        self._note_rows = note_rows
        definition, plan = source.definition, lane.plan
        self._name, self._unit = definition.name, definition.time_unit
        self._codes, self._has_key = lane.codes, plan.key is not None
        names = [definition.event_time, *([plan.key.name] if plan.key is not None else []), *plan.columns]
        self._names = names
        self.columns = frozenset(names)
        kinds = {field.name: field.type for field in definition.schema.fields}
        self._types = tuple(_PYTHON.get(kinds[name], int) for name in names)
        self._get: Callable[[Any], tuple[Any, ...]] = itemgetter(*names, names[0])
        """The values of an event, the time once more at the end: of one name alone there would be no tuple."""
        self._types += (int,)
        self._first, self._last = source.ingest.bounds
        self._known: dict[str, int] = {}
        self._forgotten = -1
        self._cells = lane.program.cells.data.cast("B")
        self._packers: dict[int, struct.Struct] = {}
        self._key_type = SqlType.NULL if plan.key is None else plan.key.type
        self._outputs = [(register, kind.arrow) for register, kind in plan.outputs]
        self._words = struct.Struct(f"<{lane.program.registers}q")
        texts = [] if self._codes is None else [lane.program.registers, lane.program.registers + 1]
        shown = [[r] if r >= 0 else texts or [1] for r, _ in plan.outputs]
        self._row: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(plan.starts, 0, *chain(*shown))
        """What `OneRow` takes, of the registers of one row and, behind them, the length of the key and its bytes."""
        self._one = OneRow(outlet.made_schema) if OneRow.fits(outlet.made_schema) else None

    def push(self, data: dict[Any, Any] | list[Any]) -> int:
        """Takes events from the front of a push; returns how many."""
        if data.__class__ is dict:
            return self._push_one(data)
        if not 0 < len(data) <= MOST_ROWS:
            return 0
        done = taken = self._push_some(data)  # type: ignore[arg-type]
        while taken and done < len(data):  # the block was full, or the next event is unusual
            taken = self._push_some(data[done:])
            done += taken
        return done

    def _push_one(self, event: Any) -> int:
        try:
            values = self._get(event)
        except KeyError:
            return 0
        if tuple(map(type, values)) != self._types:
            return 0
        time = values[0]
        if not self._first <= time <= self._last:
            return 0
        time *= self._unit
        if time < self._source.reorder.watermark:
            return 0
        try:
            if self._codes is not None:
                code = self._codes.get(values[1].encode(), -1)
                self._packer(1).pack_into(self._cells, 0, time, code, *values[2:-1])
            else:
                self._packer(1).pack_into(self._cells, 0, time, *values[1:-1])
        except (struct.error, UnicodeEncodeError):
            return 0
        return self._enter(1, values[1:2] if self._has_key else (), time)

    def _push_some(self, events: list[Any]) -> int:
        rows = len(events)
        if set(map(type, events)) != _DICT:
            return 0
        try:
            columns = list(zip(*map(self._get, events), strict=True))
        except KeyError:
            return 0
        for column, kind in zip(columns, self._types, strict=True):
            if set(map(type, column)) != {kind}:
                return 0
        times, values = columns[0], list[Sequence[Any]](columns[1:-1])
        ordered = sorted(times)
        if not (self._first <= ordered[0] and ordered[-1] <= self._last):
            return 0
        if self._unit != 1:
            times, ordered = tuple([time * self._unit for time in times]), [time * self._unit for time in ordered]
        if ordered[0] < self._source.reorder.watermark or times != tuple(ordered):
            return 0
        keys = values[0] if self._has_key else ()
        try:
            if self._codes is not None:
                values[0] = self._codes_of(keys)
            self._packer(rows).pack_into(self._cells, 0, *chain(times, *values))
        except (struct.error, UnicodeEncodeError):
            return 0
        return self._enter(rows, keys, times)

    def _codes_of(self, keys: Sequence[str]) -> list[int]:
        """The codes of keys, -1 where there is none. Those of a list are remembered while no code is given up."""
        forgotten = self._lane.forgotten
        if forgotten != self._forgotten or len(self._known) > _MOST_KNOWN:
            self._known.clear()
            self._forgotten = forgotten
        codes = list(map(self._known.get, keys))
        if None not in codes:
            return codes  # type: ignore[return-value]
        assert self._codes is not None
        found = [self._codes.get(key.encode(), -1) for key in keys]
        self._known.update((key, code) for key, code in zip(keys, found, strict=True) if code >= 0)
        return found

    def _packer(self, rows: int) -> struct.Struct:
        self._lane.program.shape(rows)
        packer = self._packers.get(rows)
        if packer is None:
            packer = self._packers[rows] = self._lane.packer(rows)
        return packer

    def _enter(self, rows: int, keys: Sequence[Any], times: int | Sequence[int]) -> int:
        """Rows that are packed enter, as far as the row lane takes them, and their results go out."""
        done = self._lane.enter(rows)
        if done == 0:
            return 0
        last = times if isinstance(times, int) else times[done - 1]
        source = self._source
        source.pass_rows(done, last)
        self._note_rows(self._name, done, last)
        if not self._lane.program.is_plain:
            self._show_ordinarily(done, keys)
        elif self._one is not None and rows == 1 and (self._codes is None or len(keys[0]) <= _SHORT):
            self._outlet.put_made(partial(self._read_one, self._one, keys), 1)
        else:
            columns = self._plain(rows, done, keys)
            self._outlet.put_made(lambda schema: pa.RecordBatch.from_arrays(columns, schema=schema), done)
        return done

    def _read_one(self, one: OneRow, keys: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
        """The result of one row."""
        registers = self._words.unpack_from(self._cells)
        if self._codes is None:
            return one.read(self._row(registers), schema)
        key = keys[0].encode()
        return one.read(self._row((*registers, len(key), key)), schema)

    def _plain(self, rows: int, done: int, keys: Sequence[Any]) -> list[pa.Array]:
        """The columns of the results: parts of one copy of the registers."""
        data = pa.py_buffer(bytes(self._cells[: 8 * rows * self._lane.program.registers]))
        make = pa.Array.from_buffers
        columns = [
            make(_TIMESTAMP, done, [None, data], 0, rows * self._lane.plan.starts),
            make(_TIMESTAMP, done, [None, data]),
        ]
        for register, kind in self._outputs:
            if register >= 0:
                columns.append(make(kind, done, [None, data], 0, rows * register))
            elif self._codes is not None:
                columns.append(strings(list(keys[:done])))
            else:
                columns.append(make(kind, done, [None, data], 0, 8 * rows // (kind.bit_width // 8)))
        return columns

    def _show_ordinarily(self, done: int, keys: Sequence[Any]) -> None:
        """The select list is computed by the evaluator, which knows what is rejected and why."""
        program = self._lane.program
        shown: list[Data] = []
        if self._codes is not None:
            shown.append(list(keys[:done]))
        elif self._has_key:
            shown.append(Vector(np.array(keys[:done], self._key_type.storage), None))
        starts: Int64s = program.register(self._lane.plan.starts).copy()
        ends: Int64s = program.register(0).copy()
        slots: Slots = np.zeros(program.emitted, np.int32)
        self._show.see(shown, self._lane.played(slots), None, starts, ends)
        for chunk in self._show.outgoing.take():
            self._outlet.put(chunk.arrow)
