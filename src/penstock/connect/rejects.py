"""The reject file: every input row that did not fit, as JSON lines (source, row, reason, raw), counted.

Rows are committed and cut back with the checkpoints, like results: a restart neither loses nor repeats one.
The file comes into being with the first reject.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from penstock.connect.append_file import AppendFile
from penstock.connect.source import Position, Reject


class RejectWriter:
    """Counts with or without a file. Position: `{"count": rejects, "bytes": length}`."""

    def __init__(self, path: Path | None) -> None:
        self.count = 0
        self._file = AppendFile(path) if path is not None else None

    def restore(self, position: Position | None) -> None:
        self.count = position["count"] if position else 0
        if self._file is not None:
            self._file.restore(position["bytes"] if position else 0)

    def write(self, rejects: Iterable[Reject]) -> None:
        lines = [json.dumps(asdict(reject), ensure_ascii=False) + "\n" for reject in rejects]
        self.count += len(lines)
        if self._file is not None and lines:
            self._file.write("".join(lines).encode("utf-8", "replace"))

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def commit(self) -> Position:
        return {"count": self.count, "bytes": self._file.commit() if self._file is not None else 0}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
