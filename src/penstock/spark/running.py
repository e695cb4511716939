"""A streaming query from its start to its end: looked after while it runs, with errors that say what our code said."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

import pyarrow.fs as pafs
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.errors import CheckpointError
from penstock.spark.failures import as_ours
from penstock.spark.file_system import make_own_directory

Watch = Callable[[StreamingQuery], None]
"""Called a few times per second. What it raises stops the query, whose next run goes on from the checkpoint."""

_POLL_SECONDS = 0.2


def run_to_end(writer: DataStreamWriter, checkpoint: str, watch: Watch) -> None:
    """Starts the query and waits until it has ended, as its trigger has it."""
    with _alone(checkpoint):
        try:
            running = writer.option("checkpointLocation", checkpoint).start()
        except Py4JJavaError as error:
            raise as_ours(error) from error
        try:
            while running.isActive:
                watch(running)
                time.sleep(_POLL_SECONDS)
            watch(running)
            running.awaitTermination()
        except StreamingQueryException as error:
            raise as_ours(error) from error
        finally:
            running.stop()


@contextlib.contextmanager
def _alone(checkpoint: str) -> Iterator[None]:
    """Only one run at a time uses a checkpoint. Where the file system has no locks, Spark notices it: one of the two
    runs fails when both want to write the same file of the checkpoint's log."""
    files, path = make_own_directory(checkpoint)
    if not isinstance(files, pafs.LocalFileSystem):
        yield
        return
    lock = os.open(f"{path}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"{checkpoint} is in use by another run; stop that one or choose another checkpoint directory"
            ) from None
        yield
    finally:
        os.close(lock)
