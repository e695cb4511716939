"""The state of one bucket as it is saved from micro-batch to micro-batch: which part goes where.

    a small part      into the directory, up to `INSIDE` bytes of them
    one that would    is written to one file, with those that were inside
    exceed that

So a micro-batch writes one file at most, and none if little has changed. A whole state begins a new chain of files.

Invariants:
1. `committed` is the directory of the state that the live objects have. What follows it is in the directory that `save`
   returns; it counts once that is published.
2. A directory names at most `differences.MOST_PARTS` files, of at most twice the bytes of the state.
3. Without a place for files all of the state is inside of the directory, whole each time.

Why: docs/decisions/states-in-files.md
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.errors import CheckpointError, StorageError
from penstock.spark.directory import Directory
from penstock.spark.state_files import StateFiles, new_chain
from penstock.store.differences import Differences, joined
from penstock.store.state import Bytes

INSIDE = 1 << 14
"""Parts of so many bytes, at most, are inside of the directory, where there is a place for files."""


class Saved(NamedTuple):
    """What is to be published, and the bytes that were written to a file for it."""

    directory: Directory
    file_bytes: int


class BucketState:
    """`place` is the bucket's directory, see `file_system`; None if there is no place for files."""

    def __init__(self, place: str | None, fingerprint: str, *, retain: int) -> None:
        self._files = None if place is None else StateFiles(place, retain=retain)
        self._retain = retain
        self._batch = 0
        self._differences = Differences()
        self.committed = Directory("", fingerprint)

    @property
    def whole_bytes(self) -> int:
        """Of the state, if it were written as a whole."""
        return self._differences.whole_bytes

    def begin(self, batch: int) -> None:
        """A micro-batch begins, so the state of the one before is committed."""
        self._batch = batch
        if self._files is not None:
            self._files.begin(batch, self.committed)

    def restore(self, committed: Directory) -> tuple[dict[str, Any], int]:
        """The state that was committed, and how many bytes were read; the next `save` follows it. Once it has been
        taken up, `resumed` is to be called."""
        self.committed = committed
        parts = parts_of(committed, self._files)
        whole = joined(parts)
        if self._files is not None:
            self._differences.remember(parts, whole)
        return whole, sum(map(len, parts))

    def resumed(self, tree: Callable[[], dict[str, Any]]) -> None:
        """The state is now this one."""
        self._differences.follow(tree)

    def save(self, tree: dict[str, Any]) -> Saved:
        """Writes what has changed since the last state was saved."""
        part = self._differences.part(tree)
        pieces = part.sealed()
        before = self._retired() if part.is_whole else self.committed
        directory = replace(before, tag=uuid.uuid4().hex, retired=self._not_expired(before))
        within, written = sum(map(len, directory.inside)) + part.nbytes, 0
        if self._files is None or within <= INSIDE:
            directory = replace(directory, inside=(*directory.inside, b"".join(pieces)))
        else:
            chain = directory.chain or new_chain()
            file = self._files.write_file(self._batch, chain, [*directory.inside, *pieces])
            directory = replace(directory, chain=chain, files=(*directory.files, file), inside=())
            written = file.nbytes
        if self._files is not None:
            self._differences.keep()
        self.committed = directory
        return Saved(directory, written)

    def _retired(self) -> Directory:
        """A directory without parts, in which the chain of now is retired."""
        old = self.committed
        if self._files is not None:
            self._files.retire(old.files, self._batch)
        retired = (*old.retired, (old.chain, self._batch)) if old.chain else old.retired
        return replace(old, chain="", files=(), inside=(), retired=retired)

    def _not_expired(self, directory: Directory) -> tuple[tuple[str, int], ...]:
        """The retired chains that Spark may still come back to."""
        return tuple((chain, batch) for chain, batch in directory.retired if batch + self._retain >= self._batch)


def parts_of(directory: Directory, files: StateFiles | None) -> list[Bytes]:
    """The parts of a state in order."""
    parts: list[Bytes] = []
    for file in directory.files:
        if files is None:
            raise CheckpointError(
                "the state is in files beside the checkpoint, and no checkpoint directory was given; give it with "
                "checkpoint=..."
            )
        parts += files.read_file(file)
    parts += directory.inside
    if not parts:
        raise StorageError("the directory of the state has no parts")
    return parts
