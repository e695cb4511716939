"""Bounded runs: process what the sources hold, then say that the stream has ended, so that its last windows close.

Spark itself has no notion of the end: a run with the `availableNow` trigger may be followed by another with more
events, so it must leave the windows open that may still take some. Here the end is an input like any other: a file in
a directory that the query reads as a second stream. It is committed with the checkpoint, its results go to the same
sink, exactly once, and a run that was killed before, while or after it was read just goes on.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.spark.query import query
from penstock.spark.running import Watch, run_to_end

Write = Callable[[DataFrame], DataStreamWriter]
"""Says where results go: `lambda df: df.writeStream.format("parquet").option("path", "out")`."""


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
    watch: Watch = lambda query: None,
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
    run_to_end(write(results).trigger(availableNow=True), checkpoint, watch)
    mark_end(end_directory)
    run_to_end(write(results).trigger(availableNow=True), checkpoint, watch)


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


def _file_system(directory: str) -> tuple[pafs.FileSystem, str]:
    files, path = pafs.FileSystem.from_uri(directory if "://" in directory else os.path.abspath(directory))
    return files, path


def _make_directory(directory: str) -> None:
    files, path = _file_system(directory)
    files.create_dir(path, recursive=True)
