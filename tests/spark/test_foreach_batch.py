"""What `foreachBatch` may do with a micro-batch: where Spark does not tell which one it is, nobody guesses."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock import spark as on_spark

from .runs import Collected, embedded, read_batches, static_frames, write_batches

PROGRAM = """CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, EVENT TIME t);
    SELECT k, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"""
EVENTS: list[dict[str, Any]] = [{"t": i * 1_000_000, "k": "ab"[i % 2], "v": i} for i in range(40)]


def test_static_queries_inside_and_other_threads(spark: SparkSession, tmp_path: Path) -> None:
    """A static query is static also inside; a thread of its own computes nothing rather than something wrong."""
    inside, told = Collected(), []

    def in_a_thread(frame: DataFrame) -> None:
        try:
            frame.collect()
        except Exception as error:
            told.append(str(error))

    def each(frame: DataFrame, batch: int) -> None:
        inside(on_spark.query(spark, static_frames(spark, PROGRAM, {"s": EVENTS}), PROGRAM), batch)
        thread = threading.Thread(target=in_a_thread, args=(frame,))
        thread.start()
        thread.join()
        frame.collect()

    write_batches(tmp_path / "in", PROGRAM, [EVENTS])
    frames = {"s": read_batches(spark, tmp_path / "in", PROGRAM)}
    results = on_spark.query(spark, frames, PROGRAM, checkpoint=str(tmp_path / "checkpoint"))
    writer = results.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert inside.rows == embedded(PROGRAM, EVENTS)
    assert len(told) == 1
    assert "Spark does not tell which one it is" in told[0]
