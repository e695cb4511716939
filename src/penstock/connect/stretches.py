"""Files as stretches: for readers that share the work, plan first and read later, perhaps again.

A planner asks `FileStretches` how far the files go now; workers read the stretches that it was given. Files are taken
in the order of their names, as `connect.files` takes them, and parsed as there. Text is cut into bytes, Parquet into
row groups.

A position says where reading goes on, and what was taken to get there:

    {"file": "in/7.csv", "offset": 4096, "done": false,
     "taken": [["in/6.csv", 0, 900], ["in/7.csv", 0, 4096]], "strays": []}

Invariants:
1. A stretch begins and ends between records, or ends at the end of a file that is complete; so every record is in
   exactly one stretch. Compressed files are one stretch each, with the end None.
2. What lies between two consecutive positions is told by the second alone: it does not matter what has come since.
3. A file is complete once there is one with a later name, or at once where the input is `final`. Until then a line
   without its end waits. Lines that come after are not read.

Callers: `spark.files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.connect.csv_format import flag
from penstock.connect.files import FileSet
from penstock.connect.lines import LineReader
from penstock.connect.parquet_file import ParquetFile
from penstock.connect.source import Position, Reading, Reject
from penstock.connect.text_file import TextFile
from penstock.errors import CheckpointError, InputError

MOST_FILES = 1000
"""Files taken at once, so that positions stay small."""

_BLOCK = 1 << 16
_NEWLINE = b"\n"
_RECORDS_AT_ONCE = 1024
"""By so many records a cut may miss its mark."""


@dataclass(frozen=True)
class Stretch:
    """The bytes from `start` up to `stop` of one file, None is the end of a compressed file; or so many row groups."""

    file: str
    start: int
    stop: int | None


class FileStretches:
    """A share has at least `least` bytes, as far as there are so many."""

    def __init__(self, reading: Reading, final: bool, least: int = 1 << 16) -> None:
        self._reading = reading
        self._files = FileSet(reading)
        self._final = final
        self._least = least
        self._group_bytes: dict[str, list[int]] = {}
        self._multiline = flag(reading, "multiline", False)
        self._sizes: dict[Path, int] | None = None
        self._known: set[Path] | None = None

    def freeze(self) -> None:
        """From now on nothing is there but what is there now."""
        self._sizes = {path: _size(path) for path in self._files.list()}

    def advance(self, start: Position, most: int) -> Position:
        """The position after at most `most` bytes more, rounded up to whole records; `start` if there are none."""
        if start and "file" not in start:
            raise CheckpointError(
                f"stream {self._reading.stream.name}: the checkpoint was made by a version that read these files in "
                "another way; begin again with a new checkpoint directory"
            )
        self._group_bytes.clear()
        listing = self._files.list() if self._sizes is None else sorted(self._sizes)
        at = Path(start["file"]) if start else None
        strays = self._strays(listing, at)
        taken: list[list[str | int | None]] = []
        end = {key: start[key] for key in ("file", "offset", "done")} if start else {}
        for path in listing:
            if (at is not None and path < at) or (path == at and start["done"]):
                continue
            if most <= 0 or len(taken) == MOST_FILES:
                break
            begin = int(start["offset"]) if path == at else 0
            size = _size(path) if self._sizes is None else self._sizes[path]
            stop, done = self._reach(path, begin, most, size, complete=self._final or path != listing[-1])
            if stop != begin:
                taken.append([str(path), begin, stop])
            most -= self._size(Stretch(str(path), begin, stop))
            end = {"file": str(path), "offset": stop or 0, "done": done}
            if not done:
                break
        if not taken and not strays and (not end or end == {key: start.get(key) for key in end}):
            return start
        return {**end, "taken": taken, "strays": [str(path) for path in strays]}

    def _strays(self, listing: list[Path], at: Path | None) -> list[Path]:
        """Files that came under a name before the one being read, each once."""
        known = set(listing) if self._known is None else self._known
        self._known = known | set(listing)
        return [path for path in listing if at is not None and path < at and path not in known]

    def _reach(self, path: Path, begin: int, most: int, size: int, complete: bool) -> tuple[int | None, bool]:
        """Up to where to read, and whether that is all of the file."""
        if self._files.format_of(path) == "parquet":
            return self._reach_groups(path, begin, most)
        if path.suffix == ".gz":
            return None, True
        if begin > size:
            raise InputError(f"{path}: is shorter than at the checkpoint; it must not change while it is read")
        if complete and begin + most >= size:
            return size, True
        stop = self._cut(path, begin, most, size)
        if complete and stop == begin:
            return size, True
        return stop, complete and stop == size

    def _reach_groups(self, path: Path, begin: int, most: int) -> tuple[int, bool]:
        sizes = self._sizes_of_groups(str(path))
        stop = begin
        while stop < len(sizes) and most > 0:
            most -= sizes[stop]
            stop += 1
        return stop, stop == len(sizes)

    def _sizes_of_groups(self, path: str) -> list[int]:
        if path not in self._group_bytes:
            file = ParquetFile(Path(path), self._reading, None)
            self._group_bytes[path] = file.group_bytes()
            file.close()
        return self._group_bytes[path]

    def _size(self, stretch: Stretch) -> int:
        if self._files.format_of(Path(stretch.file)) == "parquet":
            return sum(self._sizes_of_groups(stretch.file)[stretch.start : stretch.stop])
        return _size(Path(stretch.file)) if stretch.stop is None else stretch.stop - stretch.start

    def _cut(self, path: Path, begin: int, most: int, size: int) -> int:
        """The end of a record: one soon after `begin + most`, else the last before `size`; else `begin`."""
        try:
            if self._multiline:
                return _cut_by_records(path, begin, most, size)
            return _cut_by_lines(path, begin, most, size)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None

    def shares(self, end: Position, count: int) -> list[list[Stretch]]:
        """What was taken to get to `end`, in about `count` shares of similar size."""
        taken = [Stretch(file, start, stop) for file, start, stop in end["taken"]]
        fair = max(self._least, -(-sum(map(self._size, taken)) // count))
        shares: list[list[Stretch]] = [[]]
        held = 0
        for piece in (piece for stretch in taken for piece in self._split(stretch, fair)):
            if held >= fair:
                shares.append([])
                held = 0
            shares[-1].append(piece)
            held += self._size(piece)
        return [share for share in shares if share]

    def _split(self, stretch: Stretch, fair: int) -> Iterator[Stretch]:
        if self._files.format_of(Path(stretch.file)) == "parquet":
            yield from self._split_groups(stretch, fair)
            return
        if stretch.stop is None or self._multiline:
            yield stretch
            return
        at = stretch.start
        while at < stretch.stop:
            cut = self._cut(Path(stretch.file), at, fair, stretch.stop) if stretch.stop - at > fair else stretch.stop
            # No line ends before `stop`: the last line of a complete file has no end.
            stop = cut if cut > at else stretch.stop
            yield Stretch(stretch.file, at, stop)
            at = stop

    def _split_groups(self, stretch: Stretch, fair: int) -> Iterator[Stretch]:
        assert stretch.stop is not None
        at = stretch.start
        while at < stretch.stop:
            stop = min(stretch.stop, self._reach_groups(Path(stretch.file), at, fair)[0])
            yield Stretch(stretch.file, at, stop)
            at = stop


def read_stretch(stretch: Stretch, reading: Reading) -> Iterator[tuple[pa.RecordBatch, list[Reject]]]:
    """The rows of a stretch and those that do not fit, with the numbers of their lines or rows in the file."""
    path = Path(stretch.file)
    kind = FileSet(reading).format_of(path)
    if kind == "parquet":
        assert stretch.stop is not None
        yield from _read_groups(path, reading, (stretch.start, stretch.stop))
        return
    if stretch.stop is not None and _size(path) < stretch.stop:
        raise InputError(f"{path}: is shorter than it was; it must not change while it is read")
    file = TextFile(path, kind, reading, {"offset": stretch.start, "line": 0}, stretch.stop)
    before: int | None = None
    try:
        while (got := file.read(final=True)) is not None:
            batch, rejects = got
            if rejects and before is None:
                before = _lines_before(path, stretch.start)
            yield batch, [Reject(r.source, r.row + (before or 0), r.reason, r.raw) for r in rejects]
    finally:
        file.close()


def _read_groups(
    path: Path, reading: Reading, groups: tuple[int, int]
) -> Iterator[tuple[pa.RecordBatch, list[Reject]]]:
    file = ParquetFile(path, reading, None, groups)
    try:
        while (got := file.read(final=True)) is not None:
            yield got
    finally:
        file.close()


def _cut_by_lines(path: Path, begin: int, most: int, size: int) -> int:
    with path.open("rb") as file:
        at = max(begin, begin + most - 1)
        while at < size:
            file.seek(at)
            block = file.read(min(_BLOCK, size - at))
            found = block.find(_NEWLINE)
            if found >= 0:
                return at + found + 1
            if not block:
                break
            at += len(block)
        at = size
        while at > begin:
            low = max(begin, at - _BLOCK)
            file.seek(low)
            found = file.read(at - low).rfind(_NEWLINE)
            if found >= 0:
                return low + found + 1
            at = low
    return begin


def _cut_by_records(path: Path, begin: int, most: int, size: int) -> int:
    """Quoted fields may hold line ends, so there is no way but to read from the beginning."""
    with path.open("rb") as file:
        file.seek(begin)
        lines = LineReader(lambda want: file.read(min(want, size - file.tell())), str(path), True, begin)
        while lines.offset < begin + most and lines.take(_RECORDS_AT_ONCE, final=False) is not None:
            pass
        return lines.offset


def _lines_before(path: Path, offset: int) -> int:
    if offset == 0:
        return 0
    count = 0
    with path.open("rb") as file:
        while offset > 0 and (block := file.read(min(_BLOCK, offset))):
            count += block.count(_NEWLINE)
            offset -= len(block)
    return count


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
