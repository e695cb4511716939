"""The parts of a bucket's state in immutable files, beside the segments of its windows.

    <bucket's directory>/<batch>-<chain>-<unique>.state     parts in the one format of state, one after the other

Invariants:
1. A file has a name of its own that no other attempt uses, so a failed or speculative attempt can do no harm.
2. A file is closed, and durable with its name, before a directory that names it is published.
3. A file is deleted when Spark can no longer go back to a micro-batch whose state may need it. A retired chain is
   needed by the states before the micro-batch that retired it. A file that nothing names is of an attempt that failed
   or lost a race; the state of its own micro-batch may still be the one that Spark loads. The file's name says which
   micro-batch that was, so the rule needs no clock and an attempt may take any time.
4. Bytes that are not those that were written are never returned.

Why: docs/decisions/states-in-files.md
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence

import pyarrow.fs as pafs
import xxhash

from penstock.errors import StorageError
from penstock.spark.directory import Directory, StateFile
from penstock.spark.file_system import file_system, make_durable
from penstock.store import state as state_format

SUFFIX = ".state"
_DEPTH = 3
"""Directories that may have to be made: the bucket's, the query's, that of all segments."""

_BUFFER = 1 << 20
"""A part is written in many small pieces."""


def new_chain() -> str:
    return secrets.token_hex(8)


class StateFiles:
    """Those of one bucket, in its directory `uri`. What it does not know it takes for the files of other attempts: the
    first `begin` looks at what is there."""

    def __init__(self, uri: str, *, retain: int) -> None:
        self._files, self._directory = file_system(uri)
        self._retain = retain
        self._last_use: dict[str, int] = {}
        """The last micro-batch whose state may need a file; of those that the state of now does not need."""
        self._next_look = 0
        self._has_durable_place = False

    def begin(self, batch: int, committed: Directory) -> None:
        """A micro-batch begins with this state. Files that Spark can no longer go back to are deleted."""
        if batch >= self._next_look:
            self._next_look = batch + self._retain
            self._look(committed)
        for name in [name for name, last in self._last_use.items() if last + self._retain + 1 < batch]:
            del self._last_use[name]
            # A file that is gone was deleted by an attempt that failed afterwards; one that stays is found later.
            with contextlib.suppress(OSError):
                self._files.delete_file(f"{self._directory}/{name}")

    def _look(self, committed: Directory) -> None:
        """Finds what this process does not know of, and what could not be deleted."""
        needed, retired = {file.name for file in committed.files}, dict(committed.retired)
        try:
            found = self._files.get_file_info(pafs.FileSelector(self._directory, allow_not_found=True))
        except OSError:
            return  # a later look will do
        for name in {info.base_name for info in found} - needed:
            made = _made(name)
            if made is not None:
                batch, chain = made
                self._last_use[name] = max(batch, retired.get(chain, 0) - 1)

    def retire(self, files: Iterable[StateFile], batch: int) -> None:
        """The states before micro-batch `batch` need these, and no later ones."""
        for file in files:
            made = _made(file.name)
            assert made is not None, "it was written here"
            self._last_use[file.name] = max(made[0], batch - 1)

    def write_file(self, batch: int, chain: str, pieces: Sequence[state_format.Bytes]) -> StateFile:
        """The bytes of parts, in order; they are durable afterwards."""
        name = f"{batch}-{chain}-{secrets.token_hex(8)}{SUFFIX}"
        path, checksum = f"{self._directory}/{name}", xxhash.xxh3_64()
        try:
            if not self._has_durable_place:
                self._files.create_dir(self._directory, recursive=True)
            with self._files.open_output_stream(path, buffer_size=_BUFFER) as stream:
                for piece in pieces:
                    stream.write(piece)
                    checksum.update(piece)
            make_durable(self._files, path, 1 if self._has_durable_place else _DEPTH)
        except OSError as error:
            raise StorageError(f"a file of state cannot be written under {self._directory}: {error}") from error
        self._has_durable_place = True
        return StateFile(name, sum(map(len, pieces)), checksum.intdigest())

    def read_file(self, file: StateFile) -> list[memoryview]:
        """The parts in a file."""
        path = f"{self._directory}/{file.name}"
        try:
            with self._files.open_input_file(path) as stream:
                data = stream.read_buffer()
        except FileNotFoundError:
            raise StorageError(f"the file {path} is missing") from None
        except OSError as error:
            raise StorageError(f"the file {path} cannot be read: {error}") from error
        if len(data) != file.nbytes:
            raise StorageError(f"the file {path} has {len(data):,} bytes, and {file.nbytes:,} were written")
        if xxhash.xxh3_64_intdigest(data) != file.checksum:
            raise StorageError(f"the file {path} is corrupt: its checksum does not fit")
        return list(state_format.one_by_one(memoryview(data)))


def is_retired(name: str, committed: Directory) -> bool:
    """Whether a file belongs to a chain that only earlier states need."""
    made = _made(name)
    return made is not None and made[1] in dict(committed.retired)


def _made(name: str) -> tuple[int, str] | None:
    """The micro-batch in which a file was written, and its chain; None for other files."""
    batch, _, rest = name.removesuffix(SUFFIX).partition("-")
    chain, dash, _ = rest.partition("-")
    return (int(batch), chain) if name.endswith(SUFFIX) and batch.isdigit() and dash else None
