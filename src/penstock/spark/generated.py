"""A streaming DataFrame of made-up events, for demonstrations and measurements: no files, the same rows every time."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.spark.arrival import PLACE
from penstock.spark.schema import ddl
from penstock.types import Schema

_ROWS_PER_ARROW_BATCH = 1 << 16


class Rows(Protocol):
    """Makes any stretch of its rows, in any order of asking."""

    def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class _Stretch(InputPartition):
    start: int
    stop: int


def generated_stream(
    spark: SparkSession, make: Callable[[], Rows], schema: Schema, rows: int | None, rows_per_batch: int, tasks: int
) -> DataFrame:
    """The first `rows` rows of what `make()` generates (None: without end), `rows_per_batch` in a micro-batch, made by
    `tasks` tasks. Each has its number for its place in the order of arrival.
    """

    # Spark holds every column of a Python source to be nullable, and wants to be told the same.
    nullable = pa.schema([*(pa.field(field.name, field.type.arrow) for field in schema), (PLACE, pa.int64())])

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def initialOffset(self) -> dict[str, int]:
            return {"row": 0}

        def getDefaultReadLimit(self) -> ReadLimit:
            return ReadMaxRows(rows_per_batch)

        def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
            following = start["row"] + rows_per_batch
            if rows is None:
                return {"row": following}
            return {"row": rows if isinstance(limit, ReadAllAvailable) else min(rows, following)}

        def prepareForTriggerAvailableNow(self) -> None:
            """All rows are there from the beginning."""

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            cuts = [start["row"] + (end["row"] - start["row"]) * i // tasks for i in range(tasks + 1)]
            return [_Stretch(a, b) for a, b in itertools.pairwise(cuts) if b > a]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, _Stretch)
            source = make()
            for at in range(partition.start, partition.stop, _ROWS_PER_ARROW_BATCH):
                batch = source.batch(at, min(_ROWS_PER_ARROW_BATCH, partition.stop - at), schema.names)
                places = pa.array(np.arange(at, at + batch.num_rows))
                yield pa.RecordBatch.from_arrays([*batch.columns, places], schema=nullable)

    class Generated(DataSource):
        @classmethod
        def name(cls) -> str:
            return registered

        def schema(self) -> str:
            return f"{ddl(schema)}, {PLACE} bigint"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return Reader()

    registered = f"penstock_generated_{uuid.uuid4().hex}"
    spark.dataSource.register(Generated)
    return spark.readStream.format(registered).load()
