"""Declared streams on Spark: what is read by whom, what is refused before the start, and events from the future."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InputError
from penstock.lang.query import StreamDef
from penstock.spark.arrival import PLACE
from penstock.spark.packing import REJECT_REASON, REJECT_ROW
from penstock.spark.sources import open_stream
from penstock.types import Field, Schema, SqlType

SCHEMA = Schema((Field("t", SqlType.BIGINT, False), Field("k", SqlType.STRING), Field("n", SqlType.INT)))
TABLE = pa.table(
    {"n": pa.array([1, 2], pa.int32()), "T": pa.array([10, 20], pa.int64()), "k": ["a", "b"], "other": [0, 0]}
)
GOOD = {REJECT_REASON: None, REJECT_ROW: None}


def declared(uri: object, schema: Schema = SCHEMA, **options: str) -> StreamDef:
    return StreamDef("s", schema, schema.fields[0].name, 1_000_000, uri=str(uri), options=tuple(options.items()))


def collect(frame: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(row.asDict() for row in batch.collect()))
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return rows


@pytest.mark.slow
def test_only_the_columns_that_are_needed_are_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(TABLE, tmp_path / "in" / "a.parquet")
    (tmp_path / "in" / "b.parquet.tmp").write_text("in the making")
    rows = [{"t": 10, "n": 1, **GOOD, PLACE: 0}, {"t": 20, "n": 2, **GOOD, PLACE: 1}]
    for number, uri in enumerate((tmp_path / "in", tmp_path / "in" / "a.parquet", tmp_path / "in" / "*.parquet")):
        frame = open_stream(spark, declared(uri), ["n"], follow=False)
        assert collect(frame, tmp_path / f"checkpoint {number}") == rows


def test_events_from_the_future_of_a_live_stream_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    """CSV and Parquet; times in seconds and as TIMESTAMP."""
    now = int(time.time())
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text(f"t,k,n\n{now + 600},soon,1\n{now + 10_000},never,2\nx,bad,3\n")
    frame = open_stream(spark, declared(tmp_path / "csv"), SCHEMA.names, follow=True, max_ahead=3600.0)
    rows = {row["n"]: row for row in collect(frame, tmp_path / "checkpoint csv")}
    assert rows[1][REJECT_REASON] is None
    assert rows[1]["k"] == "soon"
    assert rows[2][REJECT_REASON] == "stream s: event time is too far ahead of the clock"
    assert rows[2][REJECT_ROW] == f'{{"t":{now + 10_000},"k":"never","n":2}}'
    assert rows[None][REJECT_ROW] == "x,bad,3"

    schema = Schema((Field("t", SqlType.TIMESTAMP), Field("n", SqlType.INT)))
    (tmp_path / "parquet").mkdir()
    times = pa.array([(now + 600) * 1_000_000, (now + 10_000) * 1_000_000], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"t": times, "n": pa.array([1, 2], pa.int32())}), tmp_path / "parquet" / "1.parquet")
    stream = StreamDef("s", schema, "t", uri=str(tmp_path / "parquet"))
    frame = open_stream(spark, stream, schema.names, follow=True, max_ahead=3600.0)
    rows = {row["n"]: row for row in collect(frame, tmp_path / "checkpoint parquet")}
    assert [rows[n][REJECT_REASON] is None for n in (1, 2)] == [True, False]


def test_what_cannot_be_read_is_refused_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    def refused(stream: StreamDef, message: str) -> None:
        with pytest.raises(InputError, match=message):
            open_stream(spark, stream, ["n"], follow=False)

    refused(declared("-"), "reads standard input.*run it with --engine embedded")
    refused(declared("generate:stock"), "unknown generator 'stock'|column 't' is missing")
    refused(declared(tmp_path / "nowhere.parquet"), "file .* does not exist")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(declared(empty), "has no file ending in")

    file = tmp_path / "a.parquet"
    pq.write_table(TABLE.set_column(0, "n", pa.array(["1", "2"])), file)
    refused(declared(file), "column 'n' is string there and INT in CREATE STREAM; declare it as it is")
    pq.write_table(TABLE.drop_columns(["n"]), file)
    refused(declared(file), "column 'n' is missing")
    file.write_text("no Parquet")
    refused(declared(file), "cannot be read as Parquet")
