"""One text file, plain or gzip-compressed, as rows of a stream."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from penstock.connect.csv_format import CsvFormat
from penstock.connect.json_format import JsonFormat
from penstock.connect.lines import LineFormat, LineReader, decode
from penstock.connect.source import Position, Reading, Reject
from penstock.errors import InputError


def line_format(kind: str, reading: Reading, where: str) -> LineFormat:
    return CsvFormat(reading, where) if kind == "csv" else JsonFormat(reading, where)


class TextFile:
    """Reads on from a position `{"offset": bytes, "line": lines}` of the text (not of the compressed file).

    `stop` is the offset, at the end of a record, up to which to read; None is the end of the file.
    """

    def __init__(
        self, path: Path, kind: str, reading: Reading, position: Position | None, stop: int | None = None
    ) -> None:
        self.path = path
        self._reading = reading
        self._where = str(path)
        try:
            self._raw: BinaryIO = path.open("rb")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        self.tailable = path.suffix != ".gz"
        self._text = self._raw if self.tailable else cast(BinaryIO, gzip.GzipFile(fileobj=self._raw))
        self._format = line_format(kind, reading, self._where)
        self._lines = self._reader(0, 0)
        self._begun = False
        self._restart = position
        self._stop = stop

    def read(self, final: bool) -> tuple[pa.RecordBatch, list[Reject]] | None:
        """The next rows; None at the end of what is there. Unless `final`, a line without its end has to wait."""
        final = final or not self.tailable
        if not self._begun and not self._begin(final):
            return None
        records = self._lines.take(self._reading.batch_rows, final)
        if records is None:
            return None
        return decode(self._format, records, self._reading, self._where)

    def _begin(self, final: bool) -> bool:
        """Shows the first line to the format and goes to where reading starts."""
        first = self._lines.take(1, final)
        if first is None:
            return False
        is_header = self._format.begin(first.data)
        start = {"offset": self._lines.offset, "line": self._lines.line} if is_header else {"offset": 0, "line": 0}
        start = max(self._restart or start, start, key=lambda place: int(place["offset"]))
        try:
            size = self._text.seek(0, 2) if self.tailable else start["offset"]
            if start["offset"] > size:
                raise InputError(f"{self.path}: is shorter than at the checkpoint; it must not change while it is read")
            self._text.seek(start["offset"])
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self.path}: cannot be read: {error}") from None
        self._lines = self._reader(start["offset"], start["line"])
        self._begun = True
        return True

    def _reader(self, offset: int, line: int) -> LineReader:
        return LineReader(self._read, self._where, self._format.multiline, offset, line)

    def _read(self, size: int) -> bytes:
        try:
            return self._text.read(size if self._stop is None else min(size, max(0, self._stop - self._text.tell())))
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self.path}: cannot be read on after line {self._lines.line}: {error}") from None

    @property
    def position(self) -> Position:
        if not self._begun and self._restart:
            return self._restart
        return {"offset": self._lines.offset, "line": self._lines.line}

    @property
    def bytes_done(self) -> int:
        return self._lines.offset if self.tailable else self._raw.tell()

    def close(self) -> None:
        self._text.close()
        self._raw.close()
