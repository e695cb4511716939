"""Batches into streaming queries of Spark, through directories of Parquet files, one micro-batch after the other.

Events that are pushed wait here until the micro-batch before is done; then all that have come are written as a few
files for each stream, and the next begins. So a micro-batch is as large as the load makes it, up to a limit, and Spark
lists few files. What waits is bounded: a push that finds no room waits for Spark.

Invariants:
1. The files of a hand-over appear together, by the renaming of a directory: Spark never takes half of them.
2. Only the feeding thread speaks to running queries, until it has ended.
3. A failure of a query is raised by the next push, and by `finish`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError
from penstock.instruments import as_ours, ddl
from penstock_bench.measure.setup.model import Setup

_ROW_GROUPS_SMALLEST = 20_000
"""Fewer events than these are not worth a second task."""


_REASON = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
_WRAPPERS = ("[STREAM_FAILED]", "[FOREACH_BATCH_USER_FUNCTION_ERROR]")


class Feeding:
    """A directory on its own, and the way of events through it to the queries of a session."""

    def __init__(self, setup: Setup, spark: SparkSession, most: int) -> None:
        """A micro-batch has at most `most` events, and so many may wait for the next one."""
        self.place = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
        self.spark = spark
        self._files = int(self.spark.sparkContext.defaultParallelism)
        for name in setup.streams:
            self._inbox(name).mkdir(parents=True)
        self.frames = {name: self._read(name, ddl(stream.schema_)) for name, stream in setup.streams.items()}
        self._most = most
        self._waiting: dict[str, list[pa.RecordBatch]] = {name: [] for name in setup.streams}
        self._rows = 0
        self._ended = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._queries: Sequence[StreamingQuery] = ()
        self._thread: threading.Thread | None = None
        self._number = 0
        self._handed_over: list[Path] = []
        self._last_seconds = 0.0

    def begin(self, queries: Sequence[StreamingQuery]) -> None:
        """From now on events are handed to these."""
        self._queries = queries
        self._thread = threading.Thread(target=self._feed, name="feeding", daemon=True)
        self._thread.start()

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        pushed = 0
        while pushed < batch.num_rows:
            with self._changed:
                self._changed.wait_for(lambda: self._rows < self._most or self._ended or self._failure is not None)
                self._raise_failure()
                if self._ended:
                    raise PenstockError("Spark has been told the end: it takes no more events")
                piece = batch.slice(pushed, self._most - self._rows)
                self._waiting[stream].append(piece)
                self._rows += piece.num_rows
                pushed += piece.num_rows
                self._changed.notify_all()

    def finish(self) -> None:
        """Returns when everything that was pushed has been worked off."""
        assert self._thread is not None
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()
        self._raise_failure()

    def settle(self) -> None:
        """Waits until the queries have worked off all that is in the directories; after `finish`."""
        for query in self._queries:
            try:
                query.processAllAvailable()
            except (PySparkException, Py4JError) as error:
                raise told(error) from None

    def hand_over(self, waiting: Mapping[str, Sequence[pa.RecordBatch]]) -> None:
        """Writes one hand-over of each stream that has events."""
        self._number += 1
        for stream, batches in waiting.items():
            if batches:
                draft = self.place / "draft"
                draft.mkdir()
                rows = pa.Table.from_batches(batches)
                files = min(self._files, 1 + rows.num_rows // _ROW_GROUPS_SMALLEST)
                cuts = [rows.num_rows * part // files for part in range(files + 1)]
                for part in range(files):
                    piece = rows.slice(cuts[part], cuts[part + 1] - cuts[part])
                    pa.parquet.write_table(piece, draft / f"{part}.parquet", compression="none")
                final = self._inbox(stream) / f"{self._number:08d}"
                draft.rename(final)
                self._handed_over.append(final)

    def status(self) -> dict[str, Any]:
        with self._changed:
            return {
                "micro_batches": self._number,
                "waiting_events": self._rows,
                "last_micro_batch_ms": round(self._last_seconds * 1e3),
            }

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._waiting = {name: [] for name in self._waiting}
            self._rows = 0
            self._changed.notify_all()
        for query in self._queries:
            try:
                query.stop()
            except (PySparkException, Py4JError):
                continue  # it does not end in time, or has died; the session goes with the process
        if self._thread is not None:
            self._thread.join(10.0)
        shutil.rmtree(self.place, ignore_errors=True)

    def _feed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rows or self._ended)
                waiting, self._waiting = self._waiting, {name: [] for name in self._waiting}
                rows, self._rows = self._rows, 0
                self._changed.notify_all()
            if not rows:
                return
            began = time.perf_counter()
            try:
                self.hand_over(waiting)
                self.settle()
                self._remove()
            except Exception as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            self._last_seconds = time.perf_counter() - began

    def _remove(self) -> None:
        """The files that have been read. Their directories stay: one that goes while Spark looks into it is an error,
        a file that goes is not."""
        for directory in self._handed_over:
            for file in directory.iterdir():
                file.unlink()
        self._handed_over.clear()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _read(self, stream: str, columns: str) -> DataFrame:
        reader = self.spark.readStream.schema(columns).option("recursiveFileLookup", "true")
        return reader.parquet(str(self._inbox(stream)))

    def _inbox(self, stream: str) -> Path:
        return self.place / "input" / stream


def told(error: Exception) -> Exception:
    """What Spark says, in one of our errors: what our own code said in its workers, else the innermost of the reasons
    that Spark wraps into each other."""
    ours = as_ours(error)
    if isinstance(ours, PenstockError):
        return ours
    reasons = [found for found in _REASON.findall(str(error)) if not found.startswith(_WRAPPERS)]
    return PenstockError(f"Spark: {reasons[0] if reasons else str(error).partition(chr(10))[0]}")
