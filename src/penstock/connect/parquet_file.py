"""One Parquet file as rows of a stream: only the columns that are read, from any row on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from penstock.connect.conform import check_types, conform, match_names
from penstock.connect.source import Position, Reading, Reject
from penstock.errors import InputError


class ParquetFile:
    """Reads on from a position `{"row": rows}`, or the row groups from one up to another. A Parquet file is complete
    once it has its name: nothing to follow."""

    tailable = False

    def __init__(
        self, path: Path, reading: Reading, position: Position | None, groups: tuple[int, int] | None = None
    ) -> None:
        self.path = path
        self._reading = reading
        self._where = str(path)
        self._row = int((position or {}).get("row", 0))
        try:
            self._file = parquet.ParquetFile(path, memory_map=True)
            found = self._file.schema_arrow
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
        places = match_names(reading.stream.schema, found.names, self._where)
        check_types(reading.stream.schema, {name: found.field(i).type for name, i in places.items()}, self._where)
        self._columns = [found.names[places[name]] for name in reading.fields.names]
        self._bytes = path.stat().st_size
        if groups is None:
            self._batches = self._from(self._row)
        else:
            self._row = sum(self._file.metadata.row_group(group).num_rows for group in range(groups[0]))
            self._batches = self._groups(*groups)

    def group_bytes(self) -> list[int]:
        """What the columns that are read take in each row group."""
        metadata = self._file.metadata
        read = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path in self._columns]
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        return [sum(group.column(i).total_compressed_size for i in read) for group in groups]

    def _groups(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        yield from self._file.iter_batches(
            self._reading.batch_rows, row_groups=list(range(first, stop)), columns=self._columns, use_threads=False
        )

    def _from(self, row: int) -> Iterator[pa.RecordBatch]:
        groups = self._file.metadata.num_row_groups
        first = 0
        while first < groups and row >= self._file.metadata.row_group(first).num_rows:
            row -= self._file.metadata.row_group(first).num_rows
            first += 1
        for batch in self._groups(first, groups):
            if row < batch.num_rows:
                yield batch.slice(row)
            row = max(0, row - batch.num_rows)

    def read(self, final: bool) -> tuple[pa.RecordBatch, list[Reject]] | None:
        try:
            batch = next(self._batches, None)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.path}: cannot be read on after row {self._row}: {error}") from None
        if batch is None:
            return None
        named = pa.record_batch([batch.column(name) for name in self._columns], names=list(self._reading.fields.names))
        numbers = np.arange(self._row + 1, self._row + 1 + batch.num_rows)
        self._row += batch.num_rows
        return conform(named, self._reading, self._where, numbers)

    @property
    def position(self) -> Position:
        return {"row": self._row}

    @property
    def bytes_done(self) -> int:
        rows = self._file.metadata.num_rows
        return self._bytes * self._row // rows if rows else self._bytes

    def close(self) -> None:
        self._file.close()
