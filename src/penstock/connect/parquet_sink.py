"""Results as a directory of Parquet files, one for each epoch that had results.

A part is written under a hidden temporary name and gets its own name (`epoch-000000007.parquet`) when its epoch is
committed; readers never see half a file. Other files in the directory are left alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from penstock.connect.sink import Sink
from penstock.connect.source import Position
from penstock.errors import CheckpointError, StorageError

_PART = re.compile(r"epoch-(\d{9,})\.parquet")
_TEMPORARY = ".epoch.parquet.tmp"
_ROW_GROUP = 1 << 17


class ParquetSink(Sink):
    """Position: `{"epoch": last epoch, "parts": files up to it}`."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory = directory
        self._schema = schema
        self._writer: parquet.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._parts = 0

    def restore(self, position: Position | None) -> None:
        last = position["epoch"] if position else -1
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            (self._directory / _TEMPORARY).unlink(missing_ok=True)
            found = [(int(m[1]), p) for p in self._directory.iterdir() if (m := _PART.fullmatch(p.name))]
            for epoch, path in found:
                if epoch > last:
                    path.unlink()
            _sync_directory(self._directory)
        except OSError as error:
            raise self._failed(error) from None
        self._parts = sum(epoch <= last for epoch, _ in found)
        if position and self._parts != position["parts"]:
            raise CheckpointError(
                f"{self._directory}: has {self._parts} parts where the checkpoint wrote {position['parts']}; "
                "files were removed or added since. Put them back, or start again with another checkpoint directory"
            )

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._waiting.append(batch)
            if sum(b.num_rows for b in self._waiting) >= _ROW_GROUP:
                self._write_group()

    def flush(self) -> None:
        """A file is there when its epoch is committed."""

    def commit(self, epoch: int) -> Position:
        self._write_group()
        if self._writer is not None:
            temporary = self._directory / _TEMPORARY
            try:
                self._writer.close()
                self._writer = None
                with temporary.open("rb") as part:
                    os.fsync(part.fileno())
                temporary.rename(self._directory / f"epoch-{epoch:09d}.parquet")
                _sync_directory(self._directory)
            except OSError as error:
                raise self._failed(error) from None
            self._parts += 1
        return {"epoch": epoch, "parts": self._parts}

    def close(self) -> None:
        """Rows that were not committed are dropped."""
        self._waiting.clear()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            (self._directory / _TEMPORARY).unlink(missing_ok=True)

    def _write_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting.clear()
        try:
            if self._writer is None:
                self._writer = parquet.ParquetWriter(self._directory / _TEMPORARY, self._schema, compression="zstd")
            self._writer.write_table(table)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self._directory}: cannot be written: {error}; free space or choose another path")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
