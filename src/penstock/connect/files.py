"""Files as a source: one file, a glob or a directory, in the order of their names, also while more are written.

With `follow` the source waits for more: new files, and lines appended to the last text file. Names must rise: a file
that turns up under a name before the one being read is reported among the rejects and not read.
Names that begin with '.' or '_' or end in '.tmp' are files in the making and are passed over.
"""

from __future__ import annotations

import glob
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.connect.conform import empty_batch
from penstock.connect.parquet_file import ParquetFile
from penstock.connect.source import POLL_SECONDS, Position, Progress, Reading, Reject, Source, SourceBatch
from penstock.connect.text_file import TextFile
from penstock.errors import InputError

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


class FileSource(Source):
    def __init__(self, reading: Reading, position: Position | None, follow: bool) -> None:
        self._reading = reading
        self._follow = follow
        self._files = FileSet(reading)
        self._open: TextFile | ParquetFile | None = None
        self._bytes_before = 0
        listing = self._files.list()
        if not listing and not follow:
            raise InputError(self._files.nothing_found())
        self._finished: set[Path] = set()
        self._last: Path | None = None
        if position:
            self._last = Path(position["file"])
            self._finished = {path for path in listing if path < self._last}
            if position.get("done"):
                self._finished.add(self._last)
            else:
                self._open = self._reader(self._last, position)
            self._bytes_before = sum(map(_size, self._finished))

    def __next__(self) -> SourceBatch:
        while True:
            if self._open is None:
                following = self._next_file()
                if following is not None:
                    self._last = following
                    self._open = self._reader(following, None)
                elif not self._follow:
                    raise StopIteration
                else:
                    return self._wait()
            got = self._open.read(final=not self._follow)
            if got is None and self._follow and self._open.tailable:
                if self._next_file() is None:
                    return self._wait()
                got = self._open.read(final=True)
            if got is not None:
                return SourceBatch(got[0], got[1], self._position())
            self._finish_file()

    def _wait(self) -> SourceBatch:
        time.sleep(POLL_SECONDS)
        return SourceBatch(empty_batch(self._reading), self._strays(), self._position())

    def _finish_file(self) -> None:
        assert self._open is not None
        self._bytes_before += _size(self._open.path)
        self._finished.add(self._open.path)
        self._open.close()
        self._open = None

    def _next_file(self) -> Path | None:
        return next((path for path in self._files.list() if self._last is None or path > self._last), None)

    def _strays(self) -> list[Reject]:
        """Files that came under a name before the last one, each reported once."""
        last = self._last
        strays = [path for path in self._files.list() if last and path < last and path not in self._finished]
        self._finished.update(strays)
        return [Reject(str(path), 0, f"came after {last} was read; names must rise", "") for path in strays]

    def _reader(self, path: Path, position: Position | None) -> TextFile | ParquetFile:
        kind = self._files.format_of(path)
        if kind == "parquet":
            return ParquetFile(path, self._reading, position)
        return TextFile(path, kind, self._reading, position)

    def _position(self) -> Position:
        if self._open is None:
            return {} if self._last is None else {"file": str(self._last), "done": True}
        return {"file": str(self._open.path), **self._open.position}

    @property
    def progress(self) -> Progress:
        done = self._bytes_before + (self._open.bytes_done if self._open else 0)
        return Progress(done, None if self._follow else sum(map(_size, self._files.list())), "bytes")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class FileSet:
    """The files that a URI names, now."""

    def __init__(self, reading: Reading) -> None:
        self._uri = reading.uri
        self._stream = reading.stream.name
        self._forced = reading.options.get("format")
        if self._forced is not None and self._forced not in FORMATS.values():
            known = ", ".join(sorted(set(FORMATS.values())))
            raise InputError(f"stream {self._stream}: unknown format '{self._forced}'; there are {known}")
        self._path = local_path(self._uri, f"stream {self._stream}", "stdin: and generate:")
        self._pattern = str(self._path) if glob.has_magic(str(self._path)) and not self._path.exists() else None

    def list(self) -> list[Path]:
        """Sorted by name; a single file is listed whatever its name is."""
        try:
            if self._pattern is not None:
                found = [Path(name) for name in glob.glob(self._pattern, recursive=True)]
                return sorted(path for path in found if _complete(path) and path.is_file())
            if self._path.is_dir():
                return sorted(path for path in self._path.iterdir() if self._belongs(path))
        except OSError as error:
            raise InputError(f"{self._path}: the directory cannot be read: {error.strerror}") from None
        return [self._path] if self._path.exists() else []

    def _belongs(self, path: Path) -> bool:
        return _complete(path) and path.is_file() and (self._forced is not None or format_by_name(path) is not None)

    def format_of(self, path: Path) -> str:
        kind = self._forced or format_by_name(path)
        if kind is None:
            raise InputError(
                f"{path}: cannot tell the format by the name; add the option format 'csv', 'jsonl' or 'parquet' "
                f"to stream {self._stream}"
            )
        return kind

    def nothing_found(self) -> str:
        if self._pattern is not None:
            return f"stream {self._stream}: no file matches '{self._pattern}'"
        if self._path.is_dir():
            return f"stream {self._stream}: directory '{self._path}' has no file ending in {', '.join(FORMATS)}"
        return f"stream {self._stream}: file '{self._path}' does not exist"


def local_path(uri: str, owner: str, others: str) -> Path:
    """The path that a plain path or a file: URI names. `owner` is the stream or sink, for the
    error message; `others` are schemes to suggest for an unknown one."""
    scheme = urlsplit(uri).scheme
    if scheme == "file":
        return Path(unquote(urlsplit(uri).path))
    if len(scheme) > 1:
        raise InputError(f"{owner}: '{scheme}:' is unknown; there are files (a path, a directory or file:), {others}")
    return Path(uri)


def _complete(path: Path) -> bool:
    return not path.name.startswith((".", "_")) and path.suffix != ".tmp"


def format_by_name(path: Path) -> str | None:
    """csv, jsonl or parquet by the ending, also before .gz; None for other names.

    >>> format_by_name(Path("a.csv.gz")), format_by_name(Path("a.txt"))
    ('csv', None)
    """
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    kind = FORMATS.get(suffix.lower())
    return None if kind == "parquet" and path.suffix == ".gz" else kind


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
