"""A file that only grows and can be cut back to where a checkpoint saw it: under text sinks and reject files.

Invariants:
1. `commit` returns only after everything written before it is on disk; the position it returns is the file's length.
2. `restore` leaves exactly the bytes that were committed at its position.
3. The file is made by the first write, never by opening the object.
4. After `flush` readers see everything written before it, on disk or not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from penstock.errors import CheckpointError, StorageError


class AppendFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._written = False

    def write(self, data: bytes) -> None:
        self._written = True
        try:
            self._opened().write(data)
        except OSError as error:
            raise self._failed(error) from None

    def flush(self) -> None:
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            raise self._failed(error) from None

    def commit(self) -> int:
        try:
            if self._file is None:
                return self._size()
            if self._written:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._written = False
            return self._file.tell()
        except OSError as error:
            raise self._failed(error) from None

    def restore(self, length: int) -> None:
        """Drops everything after `length` bytes."""
        self.close()
        size = self._size()
        if size < length:
            raise CheckpointError(
                f"{self.path}: has {size} bytes where the checkpoint wrote {length}; it was changed or removed since. "
                "Put it back, or start again with another checkpoint directory"
            )
        try:
            if size > length:
                os.truncate(self.path, length)
        except OSError as error:
            raise self._failed(error) from None

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                raise self._failed(error) from None

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._failed(error) from None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
        return self._file

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self.path}: cannot be written: {error.strerror}; free space or choose another path")
