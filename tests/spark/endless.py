"""An application that runs until it is stopped: 20,000 events per micro-batch, which is a second of the stream.

    python endless.py DIRECTORY

Keys come and go all the time. The window holds 20 seconds, several times its memory, so that every micro-batch writes
blocks and reads others. `DIRECTORY/windows` gets a line per evaluation: the end of the window, and the events in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark import query, session

EVENTS_PER_SECOND = 20_000
WINDOW_SECONDS = 20
START = 1_700_000_000
"""The second at which the stream begins."""

TEXT = f"""
    SELECT k, COUNT(*) AS events, SUM(v) AS total, MAX(v) AS most
    FROM s [RANGE {WINDOW_SECONDS} SECONDS SLIDE 1 SECOND] GROUP BY k"""
MEMORY = "4MB"
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.shuffle.partitions": "2",
    # Spark deletes what it no longer needs so often.
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    # With a small heap a leak shows within minutes.
    "spark.driver.memory": "512m",
}


def main(directory: Path) -> None:
    spark = session("endless", "local[2]", CONF)
    second = F.timestamp_seconds(START + F.floor(F.col("value") / EVENTS_PER_SECOND))
    events = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", EVENTS_PER_SECOND)
        .option("numPartitions", 2)
        .load()
        .select(
            second.alias("t"),
            F.concat_ws("/", F.col("value") % 8, F.floor(F.col("value") / 100_000)).alias("k"),
            F.sin("value").alias("v"),
        )
    )
    checkpoint = str(directory / "checkpoint")
    results = query(spark, {"s": events}, TEXT, memory=MEMORY, checkpoint=checkpoint)

    def note(rows: DataFrame, _: int) -> None:
        counted = rows.groupBy("window_end").agg(F.sum("events")).collect()
        with open(directory / "windows", "a") as windows:
            windows.writelines(f"{end.timestamp():.0f} {events}\n" for end, events in sorted(counted))

    results.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
