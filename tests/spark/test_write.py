"""Tagged DataFrames: each name's rows in its own columns and files, once, also when a micro-batch is run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InputError
from penstock.spark.merging import TAGGED_DDL
from penstock.spark.packing import encode
from penstock.spark.schema import ddl
from penstock.spark.write import Files, names, results, write
from penstock.types import Field, Schema, SqlType

TOTALS = Schema((Field("window_end", SqlType.TIMESTAMP, False), Field("k", SqlType.STRING), Field("n", SqlType.BIGINT)))
LATE = Schema((Field("k", SqlType.STRING), Field("x", SqlType.DOUBLE)))
SCHEMAS = {"totals": TOTALS, "more totals": TOTALS, "late": LATE}
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

Rows = Sequence[dict[str, Any]]
Tagged = Sequence[tuple[str, Rows]]

FIRST: Tagged = [
    ("totals", [{"window_end": NOON, "k": "a,b", "n": 1}, {"window_end": NOON, "k": None, "n": 2}]),
    ("late", [{"k": "", "x": float("nan")}]),
    ("totals", [{"window_end": NOON, "k": "c", "n": 3}]),
    ("more totals", [{"window_end": NOON, "k": "d", "n": 4}]),
]
SECOND: Tagged = [("totals", [{"window_end": NOON, "k": "e", "n": 5}])]


def packed(tagged: Tagged) -> pa.Table:
    batches = [(name, pa.RecordBatch.from_pylist(list(rows), SCHEMAS[name].arrow)) for name, rows in tagged]
    rows = [{"name": name, "rows": batch.num_rows, "packed": encode(batch)} for name, batch in batches]
    return pa.Table.from_pylist(rows, pa.schema([("name", pa.string()), ("rows", pa.int64()), ("packed", pa.binary())]))


def tag(frame: DataFrame) -> DataFrame:
    return frame.withMetadata("packed", {"penstock": {name: ddl(schema) for name, schema in SCHEMAS.items()}})


class Feed:
    """A tagged stream: each call of `add` is one micro-batch of the next run."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        (directory / "in").mkdir(parents=True)

    def add(self, tagged: Tagged) -> None:
        number = len(list((self._directory / "in").iterdir()))
        pa.parquet.write_table(packed(tagged), self._directory / "in" / f"{number}.parquet")

    @property
    def frame(self) -> DataFrame:
        return tag(self._spark.readStream.schema(TAGGED_DDL).parquet(str(self._directory / "in")))

    def run(self, sinks: Any, checkpoint: str = "checkpoint") -> None:
        writer = write(self.frame, sinks).option("checkpointLocation", str(self._directory / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()


def files_under(path: Path) -> dict[str, str]:
    found = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.endswith(".crc"))
    return {str(file.relative_to(path)): file.read_text() for file in found}


def test_results_of_one_name(spark: SparkSession) -> None:
    tagged = tag(spark.createDataFrame(packed(FIRST), TAGGED_DDL))
    assert names(tagged).keys() == SCHEMAS.keys()
    assert [(row.k, row.n) for row in results(tagged, "totals").orderBy("n").collect()] == [
        ("a,b", 1),
        (None, 2),
        ("c", 3),
    ]
    assert results(tagged, "late").columns == ["k", "x"]
    with pytest.raises(InputError, match="no results named 'totl'; there are late, more totals, totals"):
        results(tagged, "totl")
    with pytest.raises(InputError, match="no tagged DataFrame"):
        names(spark.range(1))


def test_every_sink_gets_its_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    """Two names in one CSV directory, JSON lines, a function; then the last micro-batch is run again."""
    feed = Feed(spark, tmp_path)
    csv, late = tmp_path / "out" / "totals.csv", tmp_path / "out" / "late"
    called: list[tuple[int, list[int]]] = []

    def function(frame: DataFrame, number: int) -> None:
        called.append((number, [row.n for row in frame.collect()]))

    sinks = {
        "totals": Files(str(csv), "csv", ";"),
        "more totals": Files(str(csv), "csv", ";"),
        "late": Files(str(late), "jsonl"),
    }
    feed.add(FIRST)
    feed.run(sinks)
    feed.add(SECOND)
    feed.run({**sinks, "totals": function})
    assert called == [(1, [5])]
    # As if the driver had died before it said that micro-batch 1 is done.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    (csv / "batch=1").mkdir()
    (csv / "batch=1" / "totals-00007.csv").write_text("half of what an attempt had written")
    feed.run(sinks)
    header = "window_end;k;n\n"
    assert files_under(csv) == {
        "batch=0/more%20totals-00000.csv": f"{header}2024-01-01T12:00:00.000000Z;d;4\n",
        "batch=0/totals-00000.csv": header
        + "".join(f"2024-01-01T12:00:00.000000Z;{k}\n" for k in ("a,b;1", ";2", "c;3")),
        "batch=1/totals-00000.csv": f"{header}2024-01-01T12:00:00.000000Z;e;5\n",
    }
    assert files_under(late) == {
        "batch=0/late-00000.jsonl": json.dumps({"k": "", "x": "NaN"}, separators=(",", ":")) + "\n"
    }


def test_a_new_query_starts_its_directory_anew(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path)
    out = tmp_path / "out"
    (out / "batch=3").mkdir(parents=True)
    (out / "batch=3" / "old.parquet").write_text("of an earlier query")
    (out / "README").write_text("not ours")
    feed.add(SECOND)
    feed.run({"totals": str(out)})
    assert sorted(str(file.relative_to(out)) for file in out.rglob("*")) == [
        "README",
        "batch=0",
        "batch=0/totals-00000.parquet",
    ]
    assert spark.read.schema(ddl(TOTALS)).parquet(str(out)).collect()[0].n == 5


def test_what_cannot_be_written_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = Feed(spark, tmp_path).frame
    (tmp_path / "out.csv").write_text("a file")
    with pytest.raises(InputError, match=r"out.csv' is a file; on Spark results go to a directory"):
        write(frame, {"totals": str(tmp_path / "out.csv")})
    with pytest.raises(InputError, match="unknown format 'xml'"):
        write(frame, {"totals": Files(str(tmp_path / "x"), "xml")})
    with pytest.raises(InputError, match="no results named 'q1'"):
        write(frame, {"q1": str(tmp_path / "x")})
