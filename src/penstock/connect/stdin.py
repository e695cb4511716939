"""Standard input as a source: JSON lines, or CSV with the option format 'csv'.

Best effort (contract, rule 7): what was read cannot be read again, so a restart goes on with what comes.
"""

from __future__ import annotations

import os
import select
import sys

from penstock.connect.conform import empty_batch
from penstock.connect.lines import LineReader, decode
from penstock.connect.source import POLL_SECONDS, Position, Progress, Reading, Source, SourceBatch
from penstock.connect.text_file import line_format
from penstock.errors import InputError

NAME = "<stdin>"


class StdinSource(Source):
    def __init__(self, reading: Reading, position: Position | None) -> None:
        kind = reading.options.get("format", "jsonl")
        if kind not in ("csv", "jsonl"):
            raise InputError(f"stream {reading.stream.name}: standard input is read as csv or jsonl, not '{kind}'")
        if sys.stdin is None or sys.stdin.closed:
            raise InputError(f"stream {reading.stream.name} reads standard input, which is closed")
        self._reading = reading
        self._descriptor = sys.stdin.fileno()
        self._format = line_format(kind, reading, NAME)
        self._begun = False
        self._ended = False
        saved = position or {}
        self._lines = LineReader(
            self._read, NAME, self._format.multiline, int(saved.get("offset", 0)), int(saved.get("line", 0))
        )

    def __next__(self) -> SourceBatch:
        limit = self._reading.batch_rows if self._begun else 1
        records = self._lines.take(limit, self._ended) or (self._lines.take(limit, True) if self._ended else None)
        if records is None:
            if self._ended:
                raise StopIteration
            return SourceBatch(empty_batch(self._reading), [], self._position())
        if not self._begun:
            self._begun = True
            if self._format.begin(records.data):
                return SourceBatch(empty_batch(self._reading), [], self._position())
        batch, rejects = decode(self._format, records, self._reading, NAME)
        return SourceBatch(batch, rejects, self._position())

    def _read(self, size: int) -> bytes:
        if not select.select([self._descriptor], [], [], POLL_SECONDS)[0]:
            return b""
        piece = os.read(self._descriptor, size)
        self._ended = not piece
        return piece

    def _position(self) -> Position:
        return {"offset": self._lines.offset, "line": self._lines.line}

    @property
    def progress(self) -> Progress:
        return Progress(self._lines.offset, None, "bytes")

    def close(self) -> None:
        """Standard input is not ours to close."""
