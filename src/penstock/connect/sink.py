"""Sinks: where results go, and how a restart leaves none lost and none twice.

Invariants of every sink on files:
1. `restore` is called once, before the first write; None starts the output anew.
2. `commit(epoch)` returns after every row written so far is durable; the position it returns belongs into the
   checkpoint of that epoch. Epochs rise.
3. After a crash at any point, `restore` with the last position that a checkpoint holds leaves exactly the rows that
   were committed with it. Readers may see rows of a later, unfinished epoch before that; they come again, the same.
4. After `flush` readers see every row written so far, where a sink can show a row before its epoch ends. A text file
   can; a Parquet file is there with the end of its epoch.

Standard output is best effort: what was printed stays printed.
Callers: `connect.runner`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import pyarrow as pa

from penstock.connect.append_file import AppendFile
from penstock.connect.encode import csv_header, csv_lines, json_lines
from penstock.connect.source import Position


class Sink(ABC):
    @abstractmethod
    def restore(self, position: Position | None) -> None: ...

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def flush(self) -> None: ...

    @abstractmethod
    def commit(self, epoch: int) -> Position: ...

    @abstractmethod
    def close(self) -> None: ...


class TextSink(Sink):
    """One file of JSON lines, or of CSV when a delimiter is given. Position: `{"bytes": length}`."""

    def __init__(self, path: Path, schema: pa.Schema, delimiter: str | None, header: bool = True) -> None:
        self._file = AppendFile(path)
        self._delimiter = delimiter
        self._header = csv_header(schema, delimiter) if delimiter is not None and header else b""

    def restore(self, position: Position | None) -> None:
        self._file.restore(position["bytes"] if position else 0)
        if position is None:
            self._file.write(self._header)

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(json_lines(batch) if self._delimiter is None else csv_lines(batch, self._delimiter))

    def flush(self) -> None:
        self._file.flush()

    def commit(self, epoch: int) -> Position:
        return {"bytes": self._file.commit()}

    def close(self) -> None:
        self._file.close()


class DiscardSink(Sink):
    """Counts rows and forgets them: for measuring."""

    def __init__(self) -> None:
        self.rows = 0

    def restore(self, position: Position | None) -> None:
        self.rows = position["rows"] if position else 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def flush(self) -> None:
        """There is nothing to see."""

    def commit(self, epoch: int) -> Position:
        return {"rows": self.rows}

    def close(self) -> None:
        """Nothing is held."""
