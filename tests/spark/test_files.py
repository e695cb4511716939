"""Files as a stream on Spark: the rows and rejects of the embedded source, through growth and restarts."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.connect import open_source
from penstock.connect.opening import reading_of
from penstock.errors import InputError
from penstock.lang.query import StreamDef
from penstock.spark.arrival import PLACE
from penstock.spark.files import file_stream
from penstock.spark.packing import REJECT_REASON, REJECT_ROW
from penstock.spark.running import run_to_end
from penstock.types import Field, Schema, SqlType

SCHEMA = Schema(
    (
        Field("t", SqlType.TIMESTAMP, False),
        Field("name", SqlType.STRING),
        Field("n", SqlType.INT),
        Field("x", SqlType.DOUBLE),
    )
)


def stream(directory: Path, **options: str) -> StreamDef:
    return StreamDef("s", SCHEMA, "t", uri=str(directory), options=tuple(options.items()))


def collect(spark: SparkSession, definition: StreamDef, checkpoint: Path, follow: bool = False) -> list[list[Any]]:
    """The rows of each micro-batch that a run over what is there has."""
    batches: list[list[Any]] = []

    def keep(frame: DataFrame, _batch: int) -> None:
        batches.append([row.asDict() for row in frame.collect()])

    frame = file_stream(spark, reading_of(definition), follow=follow, tasks=2)
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return batches


def embedded(definition: StreamDef) -> tuple[list[Any], list[tuple[str, str]]]:
    got = list(open_source(definition))
    rows = pa.Table.from_batches([one.batch for one in got]).to_pylist()
    return rows, [(f"{r.source}, line {r.row}: {r.reason}", r.raw) for one in got for r in one.rejects]


def test_rows_and_rejects_are_those_of_the_embedded_source(spark: SparkSession, tmp_path: Path) -> None:
    files = tmp_path / "in"
    files.mkdir()
    (files / "1.csv").write_text(
        "x,N,name,t,more\n"
        '1.5,1,"a, b",2024-01-01T00:00:00Z,?\n'
        "NaN,2,,2024-01-01T00:00:01.5Z,?\n"
        "1,3.5,c,2024-01-01T00:00:02Z,?\n"
        '2,4,"",2024-01-01 00:00:03,?\n'
        "3,5,d,,?\n"
        "too,few\n"
    )
    (files / "2.jsonl").write_text(
        '{"t": "2024-01-01T00:00:04", "name": "ä", "n": 7, "other": [1]}\n'
        '{"t": "2024-01-01T00:00:05Z", "n": 99999999999}\n'
        "not json\n"
        '{"t": "2024-01-01T00:00:06Z", "x": "Infinity"}'
    )
    table = pa.table({"T": [datetime(2024, 1, 1, 0, 0, s, tzinfo=UTC) for s in (9, 8)], "n": pa.array([None, 8], "i4")})
    table = table.append_column("x", pa.array([1.0, 2.0])).append_column("name", pa.array(["p", "q"]))
    pq.write_table(table, files / "0.parquet", row_group_size=1)
    # Files are taken by their names, whenever they were changed.
    os.utime(files / "0.parquet", (2_000_000_000, 2_000_000_000))
    (batch,) = collect(spark, stream(files), tmp_path / "checkpoint")
    rows, rejects = embedded(stream(files))
    read = [row for row in batch if row[REJECT_REASON] is None]
    assert all(row.pop(REJECT_REASON) is None and row.pop(REJECT_ROW) is None for row in read)
    places = [row.pop(PLACE) for row in read]
    assert len(set(places)) == len(places)
    naive = [{**row, "t": row["t"].replace(tzinfo=None)} for row in rows]
    in_order = [row for _, row in sorted(zip(places, read, strict=True), key=lambda pair: pair[0])]
    assert repr(in_order) == repr(naive)
    refused = [row for row in batch if row not in read]
    assert sorted((row[REJECT_REASON], row[REJECT_ROW]) for row in refused) == sorted(rejects)
    assert len(rejects) == 5
    assert all(row[PLACE] is None for row in refused)
    assert all(row[name] is None for row in refused for name in SCHEMA.names)


def test_a_restart_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Lines are added to the last file and files come; the half line at the end waits for its rest."""
    files = tmp_path / "in"
    files.mkdir()

    def lines(*numbers: int) -> str:
        return "".join(f"2024-01-01T00:00:00Z,{'z' * 40},{n},0\n" for n in numbers)

    (files / "1.csv").write_text("t,name,n,x\n" + lines(1, 2))
    (files / "2.csv").write_text("t,name,n,x\n" + lines(3)[:-8])
    seen = [collect(spark, stream(files), tmp_path / "checkpoint", follow=True)]
    with (files / "2.csv").open("a") as out:
        out.write(lines(3)[-8:] + lines(4))
    (files / "3.csv").write_text("t,name,n,x\n" + lines(5))
    seen.append(collect(spark, stream(files), tmp_path / "checkpoint", follow=True))
    assert [[row["n"] for row in batch] for run in seen for batch in run if batch] == [[1, 2], [3, 4, 5]]


def test_bad_input_is_refused_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    def start(definition: StreamDef) -> None:
        file_stream(spark, reading_of(definition), follow=False, tasks=2)

    with pytest.raises(InputError, match="does not exist"):
        start(stream(tmp_path / "nothing.csv"))
    (tmp_path / "a.csv").write_text("t,name\n")
    with pytest.raises(InputError, match="column 'n' is missing"):
        start(stream(tmp_path / "a.csv"))


@pytest.mark.slow
def test_bad_input_in_the_middle_of_a_run_is_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    """By a worker, for a file that lacks a column, and by the planner, for a file that has become shorter."""
    files = tmp_path / "in"
    files.mkdir()
    (files / "1.csv").write_text("t,name,n,x\n2024-01-01T00:00:00Z,a,1,0\n")

    def run(checkpoint: str) -> None:
        frame = file_stream(spark, reading_of(stream(files)), follow=True, tasks=2)
        writer = frame.writeStream.foreachBatch(lambda batch, _: batch.collect()).trigger(availableNow=True)
        run_to_end(writer, str(tmp_path / checkpoint), lambda query: None)

    run("first")
    (files / "1.csv").write_text("t,name,n,x\n")
    with pytest.raises(InputError, match=r"1.csv: is shorter than at the checkpoint"):
        run("first")
    (files / "2.csv").write_text("t,name,x\n2024-01-01T00:00:00Z,a,0\n")
    with pytest.raises(InputError, match=r"2.csv: column 'n' is missing"):
        run("second")
