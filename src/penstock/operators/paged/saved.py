"""How shards are saved from one time that they are played to the next.

    rows leave the window     `SavedStates`   groups and states as a whole    a shard is divided by its rows
    rows never leave it       `SavedGroups`   what each group holds, in a     a shard is divided by its groups, and its
                                              log of its own                  rows are forgotten once they have entered

Invariants:
1. What is saved of a shard holds the rows that were played up to the last `save`.
2. If a shard cannot be saved, what was saved of it before is still there.

Why: docs/decisions/landmarks-keep-groups.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.aggregates.partials import VERSION
from penstock.components import component
from penstock.errors import CheckpointError
from penstock.operators.aggregation import Aggregation
from penstock.operators.paged.group_columns import GroupColumns
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.shard import Shard
from penstock.store.blobs import Blob, write_blob
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.store.state import decode, encode

_NOT_SAVED = (0, 0, 0)

_COLUMNS = 64
"""So large a part of the memory may the columns of some groups take."""


@component("SavedStates")
class SavedStates:
    """`logs` are divided together with the log of rows."""

    logs: Sequence[RowLog] = ()

    def __init__(self, device: BlockDevice, account: Account, shards: int) -> None:
        self._device = device
        self._account = account
        self._saved: list[Blob | None] = [None] * shards

    def has(self, number: int) -> bool:
        """Whether anything is saved of a shard."""
        return self._saved[number] is not None

    @contextmanager
    def read(self, number: int) -> Iterator[Any]:
        """What is saved of a shard, while it is read; None if nothing is."""
        blob = self._saved[number]
        if blob is None:
            yield None
            return
        with self._account.borrowed(blob.nbytes):
            yield decode(blob.read(self._device))

    def write(self, number: int, nbytes: int, snapshot: Callable[[], Any] | None) -> None:
        """Saves a shard that takes so many bytes; without a snapshot there is nothing in it."""
        before, blob = self._saved[number], None
        if snapshot is not None:
            with self._account.borrowed(nbytes):
                blob = write_blob(self._device, encode(snapshot()))
        self._saved[number] = blob
        if before is not None:
            before.free(self._device)

    def load(self, number: int, shard: Shard, check: Callable[[], None]) -> None:
        """Fills an empty shard; `check` may stop it."""
        with self.read(number) as saved:
            shard.aggregation.restore(saved)

    def save(self, number: int, shard: Shard) -> None:
        aggregation = shard.aggregation
        self.write(number, aggregation.nbytes, None if shard.is_empty else aggregation.snapshot)

    def divide(self, number: int) -> None:
        """A shard has been divided: it and the last one get their states from their rows."""
        blob, self._saved[number] = self._saved[number], None
        if blob is not None:
            blob.free(self._device)
        self._saved.append(None)

    def snapshot(self) -> dict[str, Any]:
        return {"states": np.array([_NOT_SAVED if blob is None else blob for blob in self._saved], np.int64)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._saved = [Blob(*blob) if blob[1] else None for blob in snapshot["states"].tolist()]


@component("SavedGroups")
class SavedGroups:
    """`log` has what groups hold, in these columns."""

    def __init__(self, columns: GroupColumns, log: RowLog, account: Account) -> None:
        self._columns = columns
        self._log = log
        self._most_bytes = account.total // _COLUMNS
        self.logs = (log,)

    @property
    def nbytes(self) -> int:
        """What they take on the device."""
        return self._log.nbytes

    def has(self, number: int) -> bool:
        return self._log.has_rows(number)

    def load(self, number: int, shard: Shard, check: Callable[[], None]) -> None:
        for rows in self._log.all(number):
            self._columns.enter(shard.aggregation, rows)
            check()

    def save(self, number: int, shard: Shard) -> None:
        parts = self._columns.parts(shard.aggregation, self._most_bytes)
        self._log.replace(number, map(self._log.without_times, parts))

    def divide(self, number: int) -> None:
        """The log has been divided."""

    def take(self, aggregation: Aggregation) -> None:
        """The groups of an aggregation, of which nothing is saved so far, go to their shards."""
        for columns in self._columns.parts(aggregation, self._most_bytes):
            self._log.add(np.zeros(len(columns[0]), np.int64), columns)

    def renew(self, shard: Shard, empty: Shard) -> None:
        """Fills an empty shard with what the groups of another hold. Rows that cannot answer any more, and their texts,
        do not go with it."""
        for columns in self._columns.parts(shard.aggregation, self._most_bytes):
            self._columns.enter(empty.aggregation, self._log.without_times(columns))

    def snapshot(self) -> dict[str, Any]:
        return {"groups": self._log.snapshot(), "partials": VERSION}

    def restore(self, snapshot: dict[str, Any]) -> None:
        if snapshot["partials"] != VERSION:
            raise CheckpointError(
                f"the saved state has groups in version {snapshot['partials']}, this Penstock reads version {VERSION}; "
                "use the version of Penstock that wrote it, or a new checkpoint directory"
            )
        self._log.restore(snapshot["groups"])
