"""A rehearsal before a run: the same queries work off a few made events, in an engine that is then forgotten.

The first events of a process load compiled loops and classes, which takes up to a second and says nothing about the
system. A run of a few seconds would be judged by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock_bench.measure.adapters.engine import Emit, Engine
from penstock_bench.measure.load.fields import Fields
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Setup, Stream

OPTION = {"warm_up": "whether the queries first work off some made events, and forget them; true by default"}

_EVENTS = 1_000
_EVERY = timedelta(milliseconds=1)
"""Enough for slides of a second, small windows that fill, and a few matches."""


class Rehearsed:
    """An engine that has had its rehearsal when it is ready."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine = make()

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        rehearsing = self._make()
        try:
            rehearsing.start(setup, tables, lambda query, batch: None)
            now = datetime.now(UTC)
            for name in setup.streams:
                rehearsing.push(name, made_events(setup, name, now))
            rehearsing.finish()
        finally:
            rehearsing.close()
        self._engine.start(setup, tables, emit)

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        self._engine.push(stream, batch)

    def finish(self) -> None:
        self._engine.finish()

    def status(self) -> dict[str, Any]:
        return self._engine.status()

    def close(self) -> None:
        self._engine.close()


def made_events(setup: Setup, name: str, now: datetime) -> pa.RecordBatch:
    """Events of a stream as a driver of the setup makes them; where it replays a file, one of which only the time is
    known."""
    stream = setup.streams[name]
    driver = next((driver for driver in setup.drivers if name in driver.fields), None)
    if driver is None:
        return only_time(stream, now)
    made = {column: kind for column, kind in stream.columns.items() if column != stream.time}
    columns = Fields(made, driver.fields[name], Share(), 0, f"drivers.{driver.name}.fields.{name}").take(_EVENTS)
    columns[stream.time] = pa.array(now + number * _EVERY for number in range(_EVENTS))
    return _batch(stream, columns)


def only_time(stream: Stream, moment: datetime) -> pa.RecordBatch:
    """One event of which only the time is known."""
    return _batch(stream, {stream.time: pa.array([moment])})


def _batch(stream: Stream, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    schema = stream.schema_.arrow
    rows = len(columns[stream.time])
    arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
