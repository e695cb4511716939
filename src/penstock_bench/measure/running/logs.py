"""Logs of a run as Parquet, in parts: a kill loses the last seconds at most.

A part is written under another name and renamed when it is whole, by a thread of its own. So the logging thread, whose
times are measured, does not wait for the disk.

Invariant: parts `part-00001.parquet`, `part-00002.parquet`, … of a directory, in the order of their numbers, are what
has been appended, in that order, but for what is not yet written.

Why: docs/decisions/logs-in-parts.md
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

PART_ROWS = 1_000_000
PART_SECONDS = 2.0


class RollingLog:
    """Appends batches of one schema; a new part every `seconds` or `rows`. Used by one thread.

    `name` tells the parts of several writers in one directory apart.
    """

    def __init__(
        self,
        directory: Path,
        schema: pa.Schema,
        *,
        rows: int = PART_ROWS,
        seconds: float = PART_SECONDS,
        name: str = "",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._schema = schema
        self._limit = rows
        self._seconds = seconds
        self._name = name and f"-{name}"
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._parts = 0
        self._since = 0.0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="log")
        self._writing: Future[None] | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self.roll()

    def roll(self) -> None:
        """Begins a new part if it is time; called now and then by a thread that has nothing to append."""
        if self._rows and (self._rows >= self._limit or time.monotonic() - self._since >= self._seconds):
            self._hand_over()

    def _hand_over(self) -> None:
        # One part is written while the next one fills: a disk that is slower than that holds the logger up.
        if self._writing is not None:
            self._writing.result()
        self._parts += 1
        part = self._directory / f"part-{self._parts:05}{self._name}.parquet"
        self._writing = self._writer.submit(_write, part, self._schema, self._waiting)
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        if self._rows:
            self._hand_over()
        self._writer.shutdown(wait=True)
        if self._writing is not None:
            self._writing.result()

    def __enter__(self) -> RollingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RowLog:
    """A rolling log whose rows come one by one, as with batches sent: a few thousand a second at most."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._log = RollingLog(directory, schema)
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []
        self._since = time.monotonic()

    def append(self, *row: object) -> None:
        """Values in the order of the schema's columns."""
        self._rows.append(row)
        if len(self._rows) >= 4096 or time.monotonic() - self._since >= PART_SECONDS:
            self._move()

    def roll(self) -> None:
        if self._rows and time.monotonic() - self._since >= PART_SECONDS:
            self._move()
        self._log.roll()

    def _move(self) -> None:
        columns = [pa.array(values, field.type) for values, field in zip(zip(*self._rows), self._schema)]  # noqa: B905
        self._log.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows = []
        self._since = time.monotonic()

    def close(self) -> None:
        if self._rows:
            self._move()
        self._log.close()


def _write(part: Path, schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
    unfinished = part.with_suffix(".new")
    pq.write_table(pa.Table.from_batches(batches, schema), unfinished, compression="lz4")
    os.replace(unfinished, part)


def read_log(directory: Path) -> pa.Table | None:
    """All parts in order; None where nothing was logged."""
    parts = sorted(directory.glob("part-*.parquet"))
    return pa.concat_tables([pq.read_table(part) for part in parts]) if parts else None
