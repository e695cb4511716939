"""Text input, cut into records and decoded: the common ground of CSV and JSON lines.

`LineReader` cuts a stream of bytes at line ends and knows the offset and line number of each cut. `decode` turns a
run of records into columns at full speed with one call of the format's vectorised parser; where that refuses, it
cuts the run until the records that are to blame stand alone, so that good rows are always read by the same parser.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.connect.conform import conform, empty_batch
from penstock.connect.source import Reading, Reject
from penstock.errors import InputError

CHUNK_BYTES = 4 << 20
MAX_RECORD_BYTES = 64 << 20

_NEWLINE, _QUOTE = ord("\n"), ord('"')


class Unparsable(Exception):
    """A format's parser refuses a run of records, because of `record` if it knows; never leaves this package."""

    def __init__(self, reason: str, record: int | None = None) -> None:
        super().__init__(reason)
        self.record = record


@dataclass(frozen=True)
class Parsed:
    """The good records of a run, `kept[i]` being the record that row i came from, and the others with reasons."""

    table: pa.Table
    kept: NDArray[np.int64]
    refused: list[tuple[int, str]]


class LineFormat(ABC):
    """How records become columns. One object per file: the columns of files may be ordered differently."""

    multiline = False

    @abstractmethod
    def begin(self, first: bytes) -> bool:
        """Looks at the first line of a file; True if it is a header and no record."""

    @abstractmethod
    def parse(self, data: bytes, records: int) -> Parsed:
        """Columns, named as declared, of a run of records; raises `Unparsable` if the run has to be cut."""


@dataclass(frozen=True)
class Records:
    """A run of whole records: `data[ends[i-1]:ends[i]]` is record i; `line` is the number of lines before the run."""

    data: bytes
    ends: NDArray[np.int64]
    line: int

    def text(self, i: int) -> str:
        return self.data[self.start(i) : int(self.ends[i])].decode("utf-8", "replace").rstrip("\r\n")

    def start(self, i: int) -> int:
        return int(self.ends[i - 1]) if i else 0

    def line_numbers(self, multiline: bool) -> NDArray[np.int64]:
        """The number of the line on which each record starts, counted from 1."""
        if not multiline:
            return np.arange(self.line + 1, self.line + 1 + len(self.ends))
        newlines = np.flatnonzero(np.frombuffer(self.data, np.uint8) == _NEWLINE)
        starts = np.concatenate((np.zeros(1, np.int64), self.ends[:-1]))
        return np.searchsorted(newlines, starts) + self.line + 1


class LineReader:
    """Cuts what `read` gives into records. `offset` and `line` tell how much was taken, as a position to go on from."""

    def __init__(
        self, read: Callable[[int], bytes], where: str, multiline: bool = False, offset: int = 0, line: int = 0
    ) -> None:
        self.offset = offset
        self.line = line
        self._multiline = multiline
        self._read = read
        self._where = where
        self._data = b""
        self._ends: NDArray[np.int64] = np.zeros(0, np.int64)
        self._taken = 0

    def take(self, limit: int, final: bool) -> Records | None:
        """At most `limit` records. None when no whole record is there (yet, unless `final`)."""
        while self._taken == len(self._ends):
            if not self._refill(final):
                return None
        stop = min(self._taken + limit, len(self._ends))
        start = int(self._ends[self._taken - 1]) if self._taken else 0
        end = int(self._ends[stop - 1])
        records = Records(self._data[start:end], self._ends[self._taken : stop] - start, self.line)
        self._taken = stop
        self.offset += end - start
        self.line += records.data.count(b"\n") if self._multiline else len(records.ends)
        return records

    def _refill(self, final: bool) -> bool:
        """Reads on; False at the end. A last record without a line end counts only when the input is final."""
        piece = self._read(CHUNK_BYTES)
        rest = self._data[int(self._ends[-1]) if len(self._ends) else 0 :]
        self._data = rest + piece
        self._taken = 0
        self._ends = self._cut(self._data)
        if not piece and final and rest:
            self._ends = np.append(self._ends, len(rest))
            return True
        if not len(self._ends) and len(self._data) > MAX_RECORD_BYTES:
            raise InputError(
                f"{self._where}: line {self.line + 1} has no end within {MAX_RECORD_BYTES >> 20} MB; "
                "is this a text file with one row a line?"
            )
        return bool(piece)

    def _cut(self, data: bytes) -> NDArray[np.int64]:
        raw = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(raw == _NEWLINE)
        if self._multiline and b'"' in data:
            quotes = np.flatnonzero(raw == _QUOTE)
            newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        return newlines.astype(np.int64) + 1


def decode(
    line_format: LineFormat, records: Records, reading: Reading, where: str
) -> tuple[pa.RecordBatch, list[Reject]]:
    """The rows of a run of records that fit the stream, and the rest with reasons, both in the order of the text."""
    tables: list[pa.Table] = []
    kept: list[NDArray[np.int64]] = []
    refused: list[tuple[int, str]] = []
    runs = [(0, len(records.ends))]
    while runs:
        low, high = runs.pop()
        data = records.data[records.start(low) : int(records.ends[high - 1])]
        try:
            parsed = line_format.parse(data, high - low)
        except Unparsable as error:
            if high - low == 1:
                refused.append((low, str(error)))
            elif error.record is None or error.record >= high - low:  # a line may hold several objects
                middle = (low + high) // 2
                runs += [(middle, high), (low, middle)]
            else:
                guilty = low + error.record
                parts = [(guilty + 1, high), (guilty, guilty + 1), (low, guilty)]
                runs += [(start, stop) for start, stop in parts if start < stop]
            continue
        tables.append(parsed.table)
        kept.append(parsed.kept + low)
        refused += [(low + i, reason) for i, reason in parsed.refused]

    lines = records.line_numbers(line_format.multiline)
    rejects = [Reject(where, int(lines[i]), why, records.text(i)) for i, why in refused if records.text(i).strip()]
    if not tables:
        return empty_batch(reading), rejects
    from_record = np.concatenate(kept)
    batch, misfits = conform(
        pa.concat_tables(tables), reading, where, lines[from_record], lambda i: records.text(int(from_record[i]))
    )
    return batch, sorted(rejects + misfits, key=lambda reject: reject.row)
