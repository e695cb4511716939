"""What is committed for a bucket: a small directory that says which files its state is in.

    tag, fingerprint   a name unique to the attempt that wrote it, and the share that the state belongs to
    files              the parts of the state in order: names, lengths and checksums (`state_files`)
    inside             the parts that follow these and are too small for a file of their own
    chain, retired     which chain the files are of, and since which micro-batches earlier chains are needed no more

The first part is a whole state, and the others are the differences that follow it (`store.differences`). A *chain* is
the files from one whole state to the next: they are retired together.

Invariants:
1. A directory is written in the one format of state, so damage and a newer version are told apart.
2. It says all that is needed to have the state again, beside the files that it names.
3. It stays small: its parts are few, and retired chains are named only as long as Spark can go back to them.

Why: docs/decisions/states-in-files.md
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from penstock.components import Component
from penstock.store import state as state_format

DIRECTORY = Component("Directory")


class StateFile(NamedTuple):
    """A file of parts, as it was written."""

    name: str
    nbytes: int
    checksum: int


@dataclass(frozen=True)
class Directory:
    """
    >>> directory = Directory("t1", "f", "c1", (StateFile("7-c1-b2.state", 20_000, 17),), (b"small",), (("c0", 7),))
    >>> Directory.decoded(directory.encoded()) == directory, directory.nbytes
    (True, 20005)
    """

    tag: str
    fingerprint: str
    chain: str = ""
    files: tuple[StateFile, ...] = ()
    inside: tuple[bytes, ...] = ()
    retired: tuple[tuple[str, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Of all parts."""
        return sum(file.nbytes for file in self.files) + sum(map(len, self.inside))

    def encoded(self) -> bytes:
        return state_format.encode(DIRECTORY.saved({entry.name: getattr(self, entry.name) for entry in fields(self)}))

    @classmethod
    def decoded(cls, data: bytes) -> Directory:
        saved = DIRECTORY.read(state_format.decode(data))
        return cls(
            saved["tag"],
            saved["fingerprint"],
            saved["chain"],
            tuple(StateFile(*file) for file in saved["files"]),
            tuple(saved["inside"]),
            tuple((chain, batch) for chain, batch in saved["retired"]),
        )
