"""An application to be killed: a query on Spark over a directory of Parquet files, one per micro-batch, to its end.

    python interrupted.py DIRECTORY

DIRECTORY holds `in/`, `settings.json` (see `Settings`) and, when the run has come to its end, `results.parquet` and
`named.json`, the names of the files that the state names then.
Started again after a kill it goes on from its checkpoint. Its window is several times as large as its memory.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.spark import run, session
from penstock.spark import write as to_sinks
from penstock.spark.bucket_state import parts_of
from penstock.spark.directory import Directory
from penstock.spark.session import SHORT_RUN
from penstock.spark.state_files import StateFiles

PROGRAM = """
    CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t LATENESS 2 SECONDS);
    SELECT k, COUNT(*) AS events, SUM(v) AS total, MAX(n) AS most, LAST(v) AS latest
    FROM s [RANGE 4 MINUTES SLIDE 10 SECONDS] GROUP BY k"""
COLUMNS = "t timestamp, k string, v double, n bigint"
MEMORY = "1500KB"
RETAINED_BATCHES = 3


@dataclass
class Settings:
    """`sink` is "files" for Spark's own file sink, "batches" for `foreachBatch`, "paths" for `penstock.spark.write`.
    `conf` goes to Spark."""

    sink: str
    master: str | None = "local[2, 8]"
    conf: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        (directory / "settings.json").write_text(json.dumps(vars(self)))

    @classmethod
    def read(cls, directory: Path) -> Settings:
        return cls(**json.loads((directory / "settings.json").read_text()))


def main(directory: Path) -> None:
    settings = Settings.read(directory)
    conf = {"spark.sql.streaming.minBatchesToRetain": str(RETAINED_BATCHES), "spark.sql.shuffle.partitions": "2"}
    spark = session("interrupted", settings.master, SHORT_RUN | conf | settings.conf)
    events = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(directory / "in"))
    (directory / "ready").touch()
    write, read = SINKS[settings.sink](spark, directory / "out")
    tagged = settings.sink == "paths"
    run(spark, {"s": events}, PROGRAM, write, str(directory / "checkpoint"), memory=MEMORY, tagged=tagged)
    (directory / "named.json").write_text(json.dumps(named_files(spark, directory / "checkpoint")))
    pq.write_table(read(), directory / "results.parquet")
    spark.stop()


def named_files(spark: SparkSession, checkpoint: Path) -> list[str]:
    """The files that the last committed state names, live or retired: of the state itself, and segments."""
    store = spark.read.format("statestore").option("stateVarName", "directory")
    names: list[str] = []
    for row in store.load(str(checkpoint)).collect():
        directory = Directory.decoded(bytes(row.value.directory))
        chains = [chain for chain, _ in directory.retired]
        (place,) = checkpoint.glob(f"penstock/segments/*/{row.key.bucket}")
        names += [file.name for file in place.glob("*.state") if file.name.split("-")[1] in chains]
        names += [file.name for file in directory.files]
        parts = parts_of(directory, StateFiles(str(place), retain=RETAINED_BATCHES))
        names += [name.decode() for name in re.findall(rb"\d+-[0-9a-f]{32}\.segment", bytes(parts[-1]))]
    return names


def to_files(spark: SparkSession, out: Path) -> tuple[Callable[[DataFrame], Any], Callable[[], pa.Table]]:
    """Spark's file sink; its log says which files count, and Spark reads by it."""
    return (
        lambda results: results.writeStream.format("parquet").option("path", str(out)),
        lambda: spark.read.parquet(str(out)).toArrow(),
    )


def to_batches(_: SparkSession, out: Path) -> tuple[Callable[[DataFrame], Any], Callable[[], pa.Table]]:
    """A file per micro-batch. One that is run again must give the same rows."""
    out.mkdir(exist_ok=True)

    def keep(results: DataFrame, batch: int) -> None:
        table = results.toArrow()
        table = table.sort_by([(name, "ascending") for name in table.column_names])
        file = out / f"{batch:04}.parquet"
        if file.exists() and not pq.read_table(file).equals(table):
            (out / f"{batch:04}.differs").touch()
        draft = file.with_suffix(".draft")
        pq.write_table(table, draft)
        os.replace(draft, file)

    return (
        lambda results: results.writeStream.foreachBatch(keep),
        lambda: pa.concat_tables([pq.read_table(file) for file in sorted(out.glob("*.parquet"))]),
    )


def to_paths(_: SparkSession, out: Path) -> tuple[Callable[[DataFrame], Any], Callable[[], pa.Table]]:
    """The sink of the library: a directory per micro-batch."""
    return (
        lambda results: to_sinks(results, {"q1": str(out)}),
        lambda: pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(out.glob("batch=*/*.parquet"))]),
    )


SINKS = {"files": to_files, "batches": to_batches, "paths": to_paths}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
