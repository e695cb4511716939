"""A streaming DataFrame of CSV, JSON lines and Parquet files, read and judged by the same code as embedded.

Spark's own readers mean other things by NULL, times, quotes and broken rows, and take files in the order of their
modification times; so they are not used.
Rows that cannot be read are part of the DataFrame: all columns NULL, the reason and the text in two columns more.
The others have their place in the order of arrival: files by name, rows as they are in the file.
Offsets are the positions of `connect.stretches`: small, and what a micro-batch reads is the same after a restart.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from penstock.connect.files import FileSet
from penstock.connect.parquet_file import ParquetFile
from penstock.connect.source import Position, Reading, Reject
from penstock.connect.stretches import FileStretches, Stretch, read_stretch
from penstock.connect.text_file import TextFile
from penstock.errors import InputError
from penstock.spark.arrival import PLACE
from penstock.spark.packing import REJECT_REASON, REJECT_ROW
from penstock.spark.schema import ddl

BYTES_PER_BATCH = 64 << 20
BYTES_PER_TASK = 64 << 10
_EVERYTHING = 1 << 62

_ROWS_IN_STRETCH = 1 << 40
"""Places of the rows of two stretches are apart by this."""


@dataclass(frozen=True)
class _Share(InputPartition):
    """What one task reads; `first` is the number of its first stretch in the micro-batch. A stray is told once, by a
    share of its own."""

    first: int
    stretches: tuple[Stretch, ...]
    strays: tuple[str, ...] = ()


def file_stream(
    spark: SparkSession,
    reading: Reading,
    *,
    follow: bool,
    tasks: int,
    batch_bytes: int = BYTES_PER_BATCH,
    task_bytes: int = BYTES_PER_TASK,
) -> DataFrame:
    """The files that `reading.uri` names, now and later, `batch_bytes` in a micro-batch, read by up to `tasks` tasks
    with at least `task_bytes` each.

    With `follow` the last line of the last file waits until it has an end; without, what is there is all there is.
    """
    check_first_file(reading, follow)
    # Planner and workers may be started in other directories.
    reading = replace(reading, uri=str(Path(reading.uri).absolute()))

    class Files(DataSource):
        @classmethod
        def name(cls) -> str:
            return registered

        def schema(self) -> str:
            return f"{ddl(reading.fields)}, {REJECT_REASON} string, {REJECT_ROW} string, {PLACE} bigint"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return FileReader(reading, FileStretches(reading, not follow, task_bytes), tasks, batch_bytes)

    registered = f"penstock_files_{uuid.uuid4().hex}"
    spark.dataSource.register(Files)
    return spark.readStream.format(registered).load()


def check_first_file(reading: Reading, follow: bool) -> None:
    """Refuses before the start what the first file shows to be wrong: no file, no such column, not this format."""
    files = FileSet(reading)
    listing = files.list()
    if not listing:
        if follow:
            return
        raise InputError(files.nothing_found())
    kind = files.format_of(listing[0])
    one = replace(reading, batch_rows=1)
    file = ParquetFile(listing[0], one, None) if kind == "parquet" else TextFile(listing[0], kind, one, None)
    try:
        file.read(final=not follow)
    finally:
        file.close()


class FileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process beside the driver; `read` runs in the workers and uses nothing but `reading`."""

    def __init__(self, reading: Reading, stretches: FileStretches, tasks: int, batch_bytes: int) -> None:
        self._reading = reading
        self._stretches = stretches
        self._tasks = tasks
        self._batch_bytes = batch_bytes
        # Spark holds every column of a Python source to be nullable, and wants to be told the same.
        columns = [pa.field(field.name, field.type.arrow) for field in reading.fields]
        others = [(REJECT_REASON, pa.string()), (REJECT_ROW, pa.string()), (PLACE, pa.int64())]
        self._schema = pa.schema([*columns, *others])

    def initialOffset(self) -> Position:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stretches.freeze()

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        most = _EVERYTHING if isinstance(limit, ReadAllAvailable) else self._batch_bytes
        return self._stretches.advance(start, most)

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        if start == end:
            return []
        shares = []
        first = 0
        for share in self._stretches.shares(end, self._tasks):
            shares.append(_Share(first, tuple(share)))
            first += len(share)
        return shares + ([_Share(first, (), tuple(end["strays"]))] if end["strays"] else [])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        for number, stretch in enumerate(partition.stretches, partition.first):
            place = number * _ROWS_IN_STRETCH
            for batch, rejects in read_stretch(stretch, self._reading):
                if batch.num_rows:
                    nothing = pa.nulls(batch.num_rows, pa.string())
                    places = pa.array(np.arange(place, place + batch.num_rows))
                    place += batch.num_rows
                    yield pa.RecordBatch.from_arrays([*batch.columns, nothing, nothing, places], schema=self._schema)
                if rejects:
                    yield self._rejected(rejects)
        if partition.strays:
            late = "came after files with later names were read; names must rise"
            yield self._rejected([Reject(stray, 0, late, "") for stray in partition.strays])

    def _rejected(self, rejects: list[Reject]) -> pa.RecordBatch:
        columns = [pa.nulls(len(rejects), field.type.arrow) for field in self._reading.fields]
        where = [f"{r.source}, {self._unit(r.source)} {r.row}" if r.row else r.source for r in rejects]
        reasons = pa.array([f"{place}: {r.reason}" for place, r in zip(where, rejects, strict=True)], pa.string())
        rows = pa.array([reject.raw for reject in rejects], pa.string())
        places = pa.nulls(len(rejects), pa.int64())
        return pa.RecordBatch.from_arrays([*columns, reasons, rows, places], schema=self._schema)

    def _unit(self, file: str) -> str:
        return "row" if FileSet(self._reading).format_of(Path(file)) == "parquet" else "line"
