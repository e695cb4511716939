"""An application over Spark Connect: `python connected.py DIRECTORY` prints its results as a line of JSON.

A process of its own, since a process has either a session of Spark's own or one of Spark Connect.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import penstock.spark
from penstock.errors import InputError
from penstock.java import java_home
from penstock.spark.session import REQUIRED

PROGRAM = """
CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, v BIGINT, EVENT TIME t);
CREATE QUERY sums AS SELECT k, SUM(v) AS total FROM s [RANGE 1 MINUTE SLIDE 30 SECONDS] WHERE v > 3 GROUP BY k;
CREATE QUERY counts AS SELECT v % 7 AS rest, COUNT(*) AS c FROM s [RANGE 1 MINUTE SLIDE 30 SECONDS] GROUP BY v % 7;
"""
ROWS = [(datetime(2024, 3, 1, 9) + timedelta(seconds=i), "ab"[i % 2], i) for i in range(100)]


def main() -> None:
    (directory,) = sys.argv[1:]
    os.environ |= {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
    for name, value in REQUIRED.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert not hasattr(spark, "_jvm")

    events = spark.createDataFrame(ROWS, "t timestamp, k string, v bigint")
    tagged = penstock.spark.query(spark, {"s": events}, PROGRAM)
    # Before any streaming query has run.
    static = {name: penstock.spark.results(tagged, name).collect() for name in ("sums", "counts")}
    events.coalesce(1).write.parquet(f"{directory}/in")
    stream = spark.readStream.schema(events.schema).parquet(f"{directory}/in")

    def write(tagged: DataFrame) -> DataStreamWriter:
        sums = penstock.spark.results(tagged, "sums")
        return sums.writeStream.format("parquet").option("path", f"{directory}/sums")

    penstock.spark.run(spark, {"s": stream}, PROGRAM, write, f"{directory}/checkpoint")
    try:
        penstock.spark.write(penstock.spark.query(spark, {"s": stream}, PROGRAM), {"sums": f"{directory}/refused"})
        refused = ""
    except InputError as error:
        refused = str(error)
    found = {
        "static": static,
        "streaming": {"sums": spark.read.parquet(f"{directory}/sums").collect()},
        "refused": refused,
    }
    print("RESULTS", json.dumps(found, default=lambda time: time.isoformat()))
    spark.stop()


if __name__ == "__main__":
    main()
