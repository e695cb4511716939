"""A task as PySpark's worker gets it over its connection: the first message, which says what to do, is read ahead.

The first message is read without a buffer, exactly to its end: what follows on the connection is for whichever process
runs the task. (Earlier versions of PySpark than 4.3 have no such message; importing this fails there.)

Why: docs/decisions/buckets-stay.md
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from pyspark.messages import SparkSocketMessageReceiver, ZeroCopyByteStream
from pyspark.serializers import SpecialLengths
from pyspark.util import with_faulthandler
from pyspark.worker import invoke_udf
from pyspark.worker_message import WorkerInitInfo

_HEADER = struct.Struct("!ii")
"""What the message is, and its length."""

_OURS = (b"penstock.spark.processor", b"BucketProcessor")
"""What the pickled function of the stateful operator names, and no other."""

_BROADCAST = b"pyspark.core.broadcast"

_QUERY = "sql.streaming.queryId"


class _Raw(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Task(SparkSocketMessageReceiver):
    """One whose first message has been read, here or by another process. Reading may have failed: a connection ends
    between two tasks when Spark gives up an idle worker. PySpark then hears of it where it would read."""

    def __init__(self, infile: BinaryIO, message: bytes | Exception) -> None:
        super().__init__(infile)
        self.message = message

    def _do_get_init_message(self) -> ZeroCopyByteStream:
        if isinstance(self.message, Exception):
            raise self.message
        return _stream(self.message)

    @property
    def bucket(self) -> bytes | None:
        """A name for the buckets that the task runs, the same in every micro-batch; None if the task runs none, or
        belongs to the process that was asked: it has broadcast variables, which Spark sends to a process once."""
        if isinstance(self.message, Exception) or not all(name in self.message for name in _OURS):
            return None
        try:
            told = WorkerInitInfo.from_stream(_stream(self.message))
            query, partition = told.task_context.local_properties.get(_QUERY), told.task_context.partition_id
            has_broadcasts = bool(told.broadcast.variables) or _BROADCAST in self.message
        except (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError):
            return None
        return None if query is None or has_broadcasts else json.dumps([query, partition]).encode()


def read_task(infile: io.BufferedReader) -> Task:
    """Nothing has been read of `infile` but what Spark waits for an answer to."""
    try:
        kind, size = _HEADER.unpack(_read(infile.raw, _HEADER.size))
        if kind != SpecialLengths.START_OF_INIT_MESSAGE or size < 0:
            raise ValueError(f"a task begins with a message {kind} of {size} bytes")
        return Task(infile, _read(infile.raw, size))
    except (EOFError, OSError, ValueError) as error:
        return Task(infile, error)


def _stream(message: bytes) -> ZeroCopyByteStream:
    """Ends with the message: reading on would wait for ever."""
    stream = ZeroCopyByteStream(memoryview(message))
    stream.finish()
    return stream


def _read(raw: _Raw, size: int) -> bytes:
    found = bytearray(size)
    rest = memoryview(found)
    while rest:
        count = raw.readinto(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return bytes(found)


run_task: Callable[[Task, BinaryIO], Any] = with_faulthandler(invoke_udf)
"""Runs a task as PySpark does; what it returns goes to the file. A failed task ends in SystemExit."""


def run_on(connection: int, message: bytes) -> int:
    """Runs a task that another process has begun to read, on the connection, which is closed then; returns the exit
    code of the worker, 0 if the task has not failed."""
    size = int(os.environ.get("SPARK_BUFFER_SIZE", 65536))
    try:
        with os.fdopen(os.dup(connection), "wb", size) as outfile, os.fdopen(connection, "rb", size) as infile:
            run_task(Task(infile, message), outfile)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except OSError:  # Spark has closed the connection
        return 1
    return 0
