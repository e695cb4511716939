"""Where the directories of buckets are published with a micro-batch, and found again by the next.

Nothing else of a state depends on how it is committed. Whatever commits a directory for a bucket with the micro-batch,
or not at all, can stand in the place of Spark's state store.

Why: docs/decisions/states-in-files.md
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from penstock.spark.directory import Directory


class Publications(Protocol):
    """Invariants:
    1. `committed` gives what was published in the micro-batch before, whichever attempt of it counts.
    2. What an attempt publishes counts as a whole when its micro-batch is committed, and otherwise not at all.
    """

    def committed(self, bucket: str) -> Directory | None:
        """The state that the micro-batch begins with; None for a bucket that has none yet."""

    def publish(self, bucket: str, directory: Directory) -> int:
        """The state at the end of the micro-batch; returns how many bytes are committed."""


class InStateStore:
    """A ValueState of Spark, which keeps a value for each bucket by itself and hands over that of the bucket at hand.

    Earlier versions had all of the state in the store: `tag`, a whole `state`, and `changes` by numbers that rise. That
    is read as a directory with all parts inside of it, and is dropped when the first directory is published.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._directory = handle.getValueState("directory", "directory binary")
        self._tag = handle.getValueState("tag", "tag string, fingerprint string")
        self._state = handle.getValueState("state", "state binary")
        self._changes = handle.getMapState("changes", "number int", "changes binary")
        self._is_earlier: set[str] = set()
        """Buckets whose state was read as an earlier version has written it."""

    def committed(self, bucket: str) -> Directory | None:
        found = self._directory.get()
        if found is not None:
            return Directory.decoded(bytes(found[0]))
        named, state = self._tag.get(), self._state.get()
        if named is None or state is None:
            return None
        self._is_earlier.add(bucket)
        changes = {number: bytes(data) for (number,), (data,) in self._changes.iterator()}
        tag, fingerprint = named
        return of_earlier_version(tag, fingerprint, bytes(state[0]), changes)

    def publish(self, bucket: str, directory: Directory) -> int:
        data = directory.encoded()
        self._directory.update((data,))
        if bucket in self._is_earlier:
            self._is_earlier.discard(bucket)
            for variable in (self._tag, self._state, self._changes):
                variable.clear()
        return len(data)


def of_earlier_version(tag: str, fingerprint: str, state: bytes, changes: dict[int, bytes]) -> Directory:
    """What earlier versions have committed, as a directory."""
    return Directory(tag, fingerprint, inside=(state, *(data for _, data in sorted(changes.items()))))
