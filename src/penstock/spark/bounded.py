"""Bounded runs: process what the sources hold, then say that the stream has ended, so that its last windows close.

Spark itself has no notion of the end: a run with the `availableNow` trigger may be followed by another with more
events, so it must leave the windows open that may still take some. Here the end is an input like any other: a file in
a directory that the query reads as a second stream. It is committed with the checkpoint, its results go to the same
sink, exactly once, and a run that was killed before, while or after it was read just goes on.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Mapping

import pyarrow.fs as pafs
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock import errors
from penstock.spark.query import query

Write = Callable[[DataFrame], DataStreamWriter]
"""Says where results go: `lambda df: df.writeStream.format("parquet").option("path", "out")`."""

_POLL_SECONDS = 0.2


def run(
    spark: SparkSession,
    streams: Mapping[str, DataFrame],
    text: str,
    write: Write,
    checkpoint: str,
    *,
    memory: str | int = "64MB",
    buckets: int | None = None,
    event_time: str | None = None,
    lateness: str | int = 0,
    watch: Callable[[StreamingQuery], None] = lambda query: None,
) -> None:
    """Runs a query over everything that `streams` hold now and closes every window up to the first boundary after
    the last event. `watch` is called a few times per second with the running streaming query.

    The checkpoint's windows are closed then: with more events start again with another checkpoint.
    """
    end_directory = f"{checkpoint.rstrip('/')}/penstock/end"
    _make_directory(end_directory)
    results = query(
        spark,
        streams,
        text,
        memory=memory,
        buckets=buckets,
        event_time=event_time,
        lateness=lateness,
        segments=f"{checkpoint.rstrip('/')}/penstock/segments",
        end_directory=end_directory,
    )
    _run_available(results, write, checkpoint, watch)
    mark_end(end_directory)
    _run_available(results, write, checkpoint, watch)


def mark_end(directory: str) -> None:
    """Says, once and for all, that the stream of a query with this `end_directory` has ended."""
    files, path = _file_system(directory)
    if files.get_file_info(f"{path}/end.json").type is pafs.FileType.File:
        return
    # Spark takes no notice of names that begin with a dot, and must never see half a file.
    draft = f"{path}/.{uuid.uuid4().hex}"
    with files.open_output_stream(draft) as stream:
        stream.write(b'{"ended": true}\n')
    files.move(draft, f"{path}/end.json")


def _run_available(results: DataFrame, write: Write, checkpoint: str, watch: Callable[[StreamingQuery], None]) -> None:
    running = write(results).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        while running.isActive:
            watch(running)
            time.sleep(_POLL_SECONDS)
        watch(running)
        running.awaitTermination()
    except StreamingQueryException as error:
        raise _as_ours(error) from error
    finally:
        running.stop()


def _as_ours(error: StreamingQueryException) -> Exception:
    """The error that one of our workers raised, out of the report that Spark makes of it; else Spark's own."""
    found = re.search(r"penstock\.errors\.(\w+): (.*?)(?:\n *SQLSTATE|\n *at |\n\n|$)", str(error), re.DOTALL)
    kind = getattr(errors, found.group(1), None) if found else None
    if found is None or kind is None or not issubclass(kind, errors.PenstockError):
        return error
    ours: Exception = kind(found.group(2).strip())
    return ours


def _file_system(directory: str) -> tuple[pafs.FileSystem, str]:
    files, path = pafs.FileSystem.from_uri(directory if "://" in directory else os.path.abspath(directory))
    return files, path


def _make_directory(directory: str) -> None:
    files, path = _file_system(directory)
    files.create_dir(path, recursive=True)
