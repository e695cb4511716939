"""A streaming DataFrame of CSV files and JSON lines, read and judged by the same parsers as embedded.

Spark's own readers of these formats mean other things by NULL, times, quotes and broken rows, so they are not used.
Rows that cannot be read are part of the DataFrame: all columns NULL, the reason and the text in two columns more.
Offsets are the positions of `connect.stretches`: small, and what a micro-batch reads is the same after a restart.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from penstock.connect.files import FileSet
from penstock.connect.source import Position, Reading, Reject
from penstock.connect.stretches import FileStretches, Stretch, read_stretch
from penstock.connect.text_file import TextFile
from penstock.errors import InputError
from penstock.spark.packing import REJECT_REASON, REJECT_ROW
from penstock.spark.schema import ddl

BYTES_PER_BATCH = 64 << 20
_EVERYTHING = 1 << 62


@dataclass(frozen=True)
class _Share(InputPartition):
    """What one task reads. A stray is told once, by a share of its own."""

    stretches: tuple[Stretch, ...]
    strays: tuple[str, ...] = ()


def text_stream(spark: SparkSession, reading: Reading, *, follow: bool, tasks: int) -> DataFrame:
    """The files that `reading.uri` names, now and later, `BYTES_PER_BATCH` in a micro-batch, read by `tasks` tasks.

    With `follow` the last line of the last file waits until it has an end; without, what is there is all there is.
    """
    check_first_file(reading, follow)
    # Planner and workers may be started in other directories.
    reading = replace(reading, uri=str(Path(reading.uri).absolute()))

    class TextFiles(DataSource):
        @classmethod
        def name(cls) -> str:
            return registered

        def schema(self) -> str:
            return f"{ddl(reading.fields)}, {REJECT_REASON} string, {REJECT_ROW} string"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return TextReader(reading, follow, tasks)

    registered = f"penstock_text_{uuid.uuid4().hex}"
    spark.dataSource.register(TextFiles)
    return spark.readStream.format(registered).load()


def check_first_file(reading: Reading, follow: bool) -> None:
    """Refuses before the start what the first file shows to be wrong: no file, no such column, not this format."""
    files = FileSet(reading)
    listing = files.list()
    if not listing:
        if follow:
            return
        raise InputError(files.nothing_found())
    file = TextFile(listing[0], files.format_of(listing[0]), replace(reading, batch_rows=1), None)
    try:
        file.read(final=not follow)
    finally:
        file.close()


class TextReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process beside the driver; `read` runs in the workers and uses nothing but `reading`."""

    def __init__(self, reading: Reading, follow: bool, tasks: int) -> None:
        self._reading = reading
        self._stretches = FileStretches(reading, final=not follow)
        self._tasks = tasks
        # Spark holds every column of a Python source to be nullable, and wants to be told the same.
        columns = [pa.field(field.name, field.type.arrow) for field in reading.fields]
        self._schema = pa.schema([*columns, (REJECT_REASON, pa.string()), (REJECT_ROW, pa.string())])

    def initialOffset(self) -> Position:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(BYTES_PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stretches.freeze()

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        return self._stretches.advance(start, _EVERYTHING if isinstance(limit, ReadAllAvailable) else BYTES_PER_BATCH)

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        if start == end:
            return []
        shares = [_Share(tuple(share)) for share in self._stretches.shares(end, self._tasks)]
        return shares + ([_Share((), tuple(end["strays"]))] if end["strays"] else [])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        for stretch in partition.stretches:
            for batch, rejects in read_stretch(stretch, self._reading):
                if batch.num_rows:
                    nothing = pa.nulls(batch.num_rows, pa.string())
                    yield pa.RecordBatch.from_arrays([*batch.columns, nothing, nothing], schema=self._schema)
                if rejects:
                    yield self._rejected(rejects)
        if partition.strays:
            late = "came after files with later names were read; names must rise"
            yield self._rejected([Reject(stray, 0, late, "") for stray in partition.strays])

    def _rejected(self, rejects: list[Reject]) -> pa.RecordBatch:
        columns = [pa.nulls(len(rejects), field.type.arrow) for field in self._reading.fields]
        where = [f"{reject.source}, line {reject.row}" if reject.row else reject.source for reject in rejects]
        reasons = pa.array([f"{place}: {r.reason}" for place, r in zip(where, rejects, strict=True)], pa.string())
        rows = pa.array([reject.raw for reject in rejects], pa.string())
        return pa.RecordBatch.from_arrays([*columns, reasons, rows], schema=self._schema)
