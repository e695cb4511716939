"""The two engines on Spark: Penstock's operators inside a streaming query, and Spark's own streaming SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import InputError
from penstock.instruments import STATE_STORE, decode_results, result_schemas
from penstock.spark import mark_end, query, session
from penstock_bench.measure.adapters.embedded import literal, program
from penstock_bench.measure.adapters.engine import Emit
from penstock_bench.measure.adapters.rehearsal import made_events, only_time
from penstock_bench.measure.adapters.spark import HEAP, MICRO_BATCH
from penstock_bench.measure.adapters.spark_feeding import Feeding, told
from penstock_bench.measure.adapters.spark_streaming import STATES
from penstock_bench.measure.setup.model import Setup

DIALECT = "spark"

SETTINGS = {"spark.sql.streaming.stopTimeout": "10000", "spark.sql.streaming.numRecentProgressUpdates": "2"}

MASTER = "local[*]"
MEMORY = "64MB"

_FAR = timedelta(days=366)
"""No window is open any more when so much time has passed."""


class _OnSpark(ABC):
    """What both have in common. The session runs in the host; its processes are the host's children.

    Before the run the same queries work off some made events, elsewhere, and are forgotten: Spark loads its classes and
    starts its Python workers with the first micro-batch, which takes seconds.
    """

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._found = SparkSession.getActiveSession()
        """A session that runs already is left as it was, and running."""
        self._before: dict[str, str | None] = {}
        self._feeding: Feeding | None = None

    def settings(self, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Of the session, beyond those that both share."""
        return {}

    @abstractmethod
    def queries(self, feeding: Feeding, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> list[StreamingQuery]:
        """Starts the queries of the setup over the frames of `feeding`."""

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        for name, table in setup.tables.items():
            if table.where != "memory":
                raise InputError(f"tables.{name}.where = '{table.where}': on Spark tables are read from files alone")
        options = setup.system.options
        conf = {**SETTINGS, **self.settings(options)}
        if self._found is not None:
            self._before = {name: self._found.conf.get(name, None) for name in conf}
        memory = {"spark.driver.memory": str(options.get("heap", HEAP))}
        self._spark = session("penstock bench", str(options.get("master", MASTER)), {**conf, **memory})
        if options.get("warm_up", True):
            now = datetime.now(UTC)
            warming = Feeding(setup, self._spark, MICRO_BATCH)
            try:
                warming.begin(self.queries(warming, setup, tables, lambda query, batch: None))
                warming.hand_over({name: [made_events(setup, name, now)] for name in setup.streams})
                warming.settle()
            finally:
                warming.close()
        self._feeding = Feeding(setup, self._spark, int(options.get("micro_batch", MICRO_BATCH)))
        self._feeding.begin(self.queries(self._feeding, setup, tables, emit))

    @property
    def feeding(self) -> Feeding:
        assert self._feeding is not None
        return self._feeding

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        self.feeding.push(stream, batch)

    def status(self) -> dict[str, Any]:
        return {} if self._feeding is None else self._feeding.status()

    def close(self) -> None:
        if self._feeding is not None:
            self._feeding.close()
        if self._spark is None:
            return
        if self._found is None:
            self._spark.stop()
        for name, value in self._before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


class PenstockEngine(_OnSpark):
    """All queries of a setup in one streaming query, as an application has it."""

    def queries(self, feeding: Feeding, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> list[StreamingQuery]:
        options = setup.system.options
        self._checkpoint = str(feeding.place / "checkpoint")
        buckets = options.get("buckets")
        tagged = query(
            feeding.spark,
            feeding.frames,
            program(setup, {name: f"FROM {literal(str(file))}" for name, file in tables.items()}),
            memory=str(options.get("memory", MEMORY)),
            buckets=None if buckets is None else int(buckets),
            spread=str(options.get("spread", "keys")),  # type: ignore[arg-type]
            checkpoint=self._checkpoint,
            bounded=True,
            tagged=True,
        )
        known = {name.lower(): schema.arrow for name, schema in result_schemas(tagged).items()}
        wanted = {name.lower(): name for name in setup.queries}
        for name, given in wanted.items():
            if name not in known:
                raise InputError(f"queries.{given}.text.penstock: makes no query of the name '{given}'")

        def take(batch: DataFrame, number: int) -> None:
            # One job brings the results of all queries.
            rows = batch.select("name", "packed").toArrow()
            for name, packed in zip(rows.column("name").to_pylist(), rows.column("packed"), strict=True):
                if name.lower() in wanted:
                    emit(wanted[name.lower()], decode_results(packed.as_py(), known[name.lower()]))

        return [_start(tagged, take, self._checkpoint)]

    def finish(self) -> None:
        self.feeding.finish()
        mark_end(self._checkpoint)
        self.feeding.settle()


class StreamingEngine(_OnSpark):
    """A streaming query of Spark's own for each query of a setup, over the streams as views."""

    _end: datetime | None = None
    """The time of the event that marks the end, once there is one."""

    def settings(self, options: Mapping[str, Any]) -> Mapping[str, str]:
        return {STATE_STORE: STATES[str(options.get("state", "memory"))]}

    def queries(self, feeding: Feeding, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> list[StreamingQuery]:
        mode = str(setup.system.options.get("output_mode", "append"))
        self._streams = setup.streams
        self._last = datetime.fromtimestamp(0, UTC)
        for name, stream in setup.streams.items():
            events = feeding.frames[name].withWatermark(stream.time, f"{stream.lateness} microseconds")
            events.createOrReplaceTempView(name)
        for name, file in tables.items():
            feeding.spark.read.parquet(str(file)).createOrReplaceTempView(name)
        running: list[StreamingQuery] = []
        try:
            for number, (name, asked) in enumerate(setup.queries.items()):
                results = _sql(feeding, name, asked.text)
                checkpoint = str(feeding.place / f"checkpoint-{number}")
                running.append(_start(results, self._taking(name, emit), checkpoint, mode))
        except BaseException:
            for begun in running:
                begun.stop()
            raise
        return running

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._last = max(self._last, pc.max(batch.column(self._streams[stream].time)).as_py())
        super().push(stream, batch)

    def finish(self) -> None:
        """Spark has no end of a stream: a last event, far in the future and otherwise NULL, closes the windows."""
        self.feeding.finish()
        self._end = end = self._last + _FAR
        self.feeding.hand_over({name: [only_time(stream, end)] for name, stream in self._streams.items()})
        self.feeding.settle()

    def _taking(self, name: str, emit: Emit) -> Callable[[DataFrame, int], None]:
        def take(batch: DataFrame, number: int) -> None:
            for rows in batch.toArrow().to_batches():
                emit(name, rows if self._end is None else _without(rows, self._end))

        return take


def _sql(feeding: Feeding, name: str, texts: Mapping[str, str]) -> DataFrame:
    text = texts.get(DIALECT)
    if text is None:
        raise InputError(f"queries.{name}.text.{DIALECT}: is missing; the adapter 'spark-streaming' runs this one")
    try:
        return feeding.spark.sql(text)
    except PySparkException as error:
        raise InputError(f"queries.{name}.text.{DIALECT}: {str(told(error)).removeprefix('Spark: ')}") from None


def _start(
    results: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: str, mode: str = "append"
) -> StreamingQuery:
    writer = results.writeStream.foreachBatch(take).outputMode(mode).option("checkpointLocation", checkpoint)
    try:
        return writer.start()
    except (PySparkException, Py4JError) as error:
        raise told(error) from None


def _without(rows: pa.RecordBatch, moment: datetime) -> pa.RecordBatch:
    """What the event that marks the end has made itself, in queries that show every event."""
    keep = pa.array([True] * rows.num_rows)
    for column in rows.columns:
        if pa.types.is_timestamp(column.type):
            keep = pc.and_(keep, pc.fill_null(pc.not_equal(column, pa.scalar(moment, column.type)), True))
    return rows.filter(keep)
