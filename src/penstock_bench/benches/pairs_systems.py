"""Pairs on the systems that are compared: each takes batches of ticks and hands over Indicators and MarketOrders.

A batch of ticks has the columns of `TICKS`: tickTS in milliseconds of the run, TS in microseconds of the run's clock.
The answers have the thesis' columns, inputTickTS and inputTS in the same units.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.instruments import java_home
from penstock.types import SqlType
from penstock_bench.measure.adapters import maven
from penstock_bench.measure.adapters.engine import Emit
from penstock_bench.measure.adapters.esper import COORDINATES, MISSING, EsperEngine
from penstock_bench.measure.setup.model import Query, Setup, Stream, System
from penstock_bench.workloads.pairs import esper
from penstock_bench.workloads.pairs.application import PairsApp
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER

TICKS: Final = pa.schema(
    [("symbol", pa.string()), ("price", pa.int32()), ("size", pa.int32()), ("tickTS", pa.int64()), ("TS", pa.int64())]
)
_TIMES = [pa.field("inputTickTS", pa.int64()), pa.field("inputTS", pa.int64())]
STREAMS: Final = {
    "Indicator": pa.schema([*list(INDICATOR)[:-1], *_TIMES]),
    "MarketOrder": pa.schema([*list(MARKET_ORDER)[:-1], *_TIMES]),
}
"""The streams of answers."""


class PairsSystem(Protocol):
    def start(self, strategies: Sequence[Strategy], emit: Emit) -> None:
        """Is ready for ticks when it returns."""

    def push(self, ticks: pa.RecordBatch) -> None:
        """Has emitted what these ticks lead to when it returns."""

    def end(self, tick_ts: int, ts: int) -> None:
        """The run has ended with a tick of these times: all strategies become flat."""

    def close(self) -> None:
        """Gives everything back."""


class PenstockSystem:
    """Penstock as a library."""

    def __init__(self) -> None:
        self._app: PairsApp | None = None

    def start(self, strategies: Sequence[Strategy], emit: Emit) -> None:
        # The table of the strategies has been read when the app is there.
        with tempfile.TemporaryDirectory(prefix="penstock-pairs-") as directory:
            self._app = PairsApp(strategies, Path(directory))
        self._app.subscribe(indicator=partial(emit, "Indicator"), market_order=partial(emit, "MarketOrder"))

    def push(self, ticks: pa.RecordBatch) -> None:
        assert self._app is not None
        self._app.push(ticks)

    def end(self, tick_ts: int, ts: int) -> None:
        assert self._app is not None
        self._app.end()

    def close(self) -> None:
        if self._app is not None:
            self._app.close()
            self._app = None


class EsperSystem:
    """Esper through its adapter. The end of the run is an event of its own, RunEnd."""

    _TYPES: Final = {
        pa.string(): SqlType.STRING,
        pa.int32(): SqlType.INT,
        pa.int64(): SqlType.BIGINT,
        pa.float64(): SqlType.DOUBLE,
    }

    @staticmethod
    def check() -> None:
        """Says what is missing, before anything is started."""
        if find_spec("jpype") is None:
            raise InputError(MISSING)
        java_home()
        maven.jars(COORDINATES)

    def __init__(self, heap: str = "4g") -> None:
        self._heap = heap
        self._engine: Any = None

    def start(self, strategies: Sequence[Strategy], emit: Emit) -> None:
        made = esper.translated(strategies)
        end = pa.schema([TICKS.field("tickTS"), TICKS.field("TS")])
        schemas = {"StockTick": TICKS, "RunEnd": end, **{name: rows.schema for name, rows in made.rows.items()}}
        setup = Setup(
            name="pairs",
            streams={name: self._stream(schema) for name, schema in schemas.items()},
            drivers=(),
            queries={name: Query(text={"esper": text}) for name, text in made.queries.items()},
            system=System(adapter="esper"),
        )
        self._emit = emit
        self._engine = EsperEngine(self._heap, arrays=True)
        self._engine.start(setup, {}, self._answered)
        for name, rows in made.rows.items():
            at_once = pa.array([0] * rows.num_rows, pa.int64())
            self._engine.push(name, _in_microseconds(rows.append_column("tickTS", at_once)))

    def _stream(self, schema: pa.Schema) -> Stream:
        columns = {field.name: self._TYPES[field.type] for field in schema}
        return Stream(columns={**columns, "tickTS": SqlType.TIMESTAMP}, time="tickTS")

    def push(self, ticks: pa.RecordBatch) -> None:
        self._engine.push("StockTick", _in_microseconds(ticks))

    def end(self, tick_ts: int, ts: int) -> None:
        last = pa.record_batch({"tickTS": pa.array([tick_ts], pa.int64()), "TS": pa.array([ts], pa.int64())})
        self._engine.push("RunEnd", _in_microseconds(last))

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _answered(self, stream: str, answers: pa.RecordBatch) -> None:
        place = answers.schema.get_field_index("inputTickTS")
        milliseconds = pc.divide(answers.column(place), 1000)
        self._emit(stream, answers.set_column(place, "inputTickTS", milliseconds))


def _in_microseconds(ticks: pa.RecordBatch) -> pa.RecordBatch:
    place = ticks.schema.get_field_index("tickTS")
    times = pc.multiply(ticks.column(place), 1000).view(pa.timestamp("us"))
    return ticks.set_column(place, "tickTS", times)


SYSTEMS: Final[dict[str, Callable[[], PairsSystem]]] = {"penstock": PenstockSystem, "esper": EsperSystem}
