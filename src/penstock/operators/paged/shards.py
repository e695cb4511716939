"""The shards of an aggregation whose groups are beyond memory: their rows in logs, their states on the device.

    rows ─▶ log ─▶ shard 0   rows that its states hold | rows that are still to enter     ┐ one of them is in memory
                   shard 1   ...                                                          ┘ at a time
                   ...

Invariants:
1. What is saved of a shard are its groups and states as they were played last. A shard of which nothing is saved gets
   them from the rows of its log.
2. A shard is divided when it takes more than `_SHARD` of the memory. Its states are then made anew from its rows. It is
   not divided where all its rows have the same hash, so that one group has all of them. It may grow then, and is looked
   at again when that is more than there is memory for: other keys may have come.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.components import component
from penstock.errors import BudgetError
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.dividing import divide_together
from penstock.operators.paged.log import LoggedRows, RowLog
from penstock.operators.paged.shard import EnteringRows, LoggedColumns, Shard, ShardReading
from penstock.operators.resources import Resources
from penstock.plan.nodes import StateSpec
from penstock.store.blobs import Blob, write_blob
from penstock.store.state import decode, encode
from penstock.windows.steps import FOREVER

_BITS = 5
"""There are so many upper bits of the hash by which rows are divided at first."""

_SHARD = 10
"""A shard takes at most such a part of the memory."""


_NOT_SAVED = (0, 0, 0)


class _TooLarge(Exception):
    """A shard takes more memory than it should."""


class Gathered(Protocol):
    """What comes of the shards that are played."""

    def begin_shard(self) -> None:
        """What is added from here on is of one shard."""

    def undo_shard(self) -> None:
        """Forgets what was added of the shard: it is divided, and its parts are played instead."""


@component("Shards")
class Shards:
    """Of these `states`. `own` are the columns that they read, `columns` those that are logged."""

    def __init__(
        self, name: str, states: tuple[StateSpec, ...], own: OwnColumns, resources: Resources, columns: LoggedColumns
    ) -> None:
        self._name = name
        self._states = states
        self._own = own
        self._resources = resources.apart()
        resources.at_end(self._resources.close)
        self._columns = columns
        self.account = self._resources.account(f"{name}: rows and results of shards")
        staged = self._resources.account(f"{name}: rows on their way to shards", is_spare=True)
        self.device = self._resources.device(f"{name}-shards")
        self.log = RowLog(self.device, self.account, staged, columns.schema, columns.hashed_types, _BITS)
        self._logs = [self.log]
        self._saved: list[Blob | None] = [None] * self.log.shards
        self._indivisible: set[int] = set()
        self.left = [-FOREVER] * self.log.shards
        """A time for each shard: rows that are older have left its states."""

    def add_log(self, what: str, schema: pa.Schema) -> RowLog:
        """One more log for the same shards. The first of its columns are the keys."""
        staged = self._resources.account(f"{self._name}: {what} on their way to shards", is_spare=True)
        log = RowLog(self.device, self.account, staged, schema, self._columns.hashed_types, _BITS)
        self._logs.append(log)
        return log

    def add(self, rows: EnteringRows) -> None:
        """Rows behind all others."""
        times, logged = rows.times, self._columns.of(rows)
        if rows.keep is not None and not self._columns.has_all_rows and not rows.keep.all():
            chosen = pa.array(rows.keep)
            times, logged = times[rows.keep], [column.filter(chosen) for column in logged]
        self.log.add(times, logged)

    # A shard is played

    def visit(self, number: int, play: Callable[[int], None], gathered: Gathered) -> None:
        """Plays a shard; what it shows is gathered. If it is too large for the memory, it is divided, and both parts
        are played."""
        gathered.begin_shard()
        try:
            play(number)
            return
        except (BudgetError, _TooLarge):
            gathered.undo_shard()
            had_to_fit = number in self._indivisible
            other = self._divide(number)
            if other is None and had_to_fit:
                raise
        for part in (number,) if other is None else (number, other):
            self.visit(part, play, gathered)

    def _divide(self, number: int) -> int | None:
        """The number of the shard that may get a part of the rows; None if all have the same hash."""
        other = divide_together(self._logs, number, self._indivisible)
        if other is None:
            return None
        blob, self._saved[number] = self._saved[number], None
        if blob is not None:
            blob.free(self.device)
        self._saved.append(None)
        self.left.append(self.left[number])
        return other

    def divide_again(self) -> None:
        """Other keys come from here on: shards that could not be divided may be."""
        self._indivisible.clear()

    def reading(self, columns: LoggedColumns | None = None) -> ShardReading:
        """What is read of the rows of a shard, without states. Its groups are to be closed. The rows have these
        columns, or those of the log."""
        return ShardReading(columns or self._columns, self._own, self.account)

    def empty(self, columns: LoggedColumns | None = None) -> Shard:
        """A shard in memory without rows, for rows that have these columns, or those of the log."""
        return Shard.make(self._name, columns or self._columns, self._own, self._states, self._resources)

    def apart(self) -> Resources:
        """For what lives and ends with a shard in memory."""
        return self._resources.apart()

    def is_saved(self, number: int) -> bool:
        return self._saved[number] is not None

    def load(self, number: int, rows: Iterable[LoggedRows]) -> Shard:
        """A shard as it was played last; `rows` are those that its states hold, if they are not saved."""
        shard = self.empty()
        try:
            with self.saved(number) as saved:
                if saved is not None:
                    shard.aggregation.restore(saved)
                else:
                    self.enter(number, shard, rows)
        except BaseException:
            shard.close()
            raise
        return shard

    def save(self, number: int, shard: Shard) -> None:
        aggregation = shard.aggregation
        self.write(number, aggregation.nbytes, None if shard.is_empty else aggregation.snapshot)

    @contextmanager
    def saved(self, number: int) -> Iterator[Any]:
        """What is saved of a shard, while it is read; None if nothing is."""
        blob = self._saved[number]
        if blob is None:
            yield None
            return
        with self.account.borrowed(blob.nbytes):
            yield decode(blob.read(self.device))

    def write(self, number: int, nbytes: int, snapshot: Callable[[], Any] | None) -> None:
        """Saves a shard that takes so many bytes; without a snapshot there is nothing in it."""
        before, blob = self._saved[number], None
        if snapshot is not None:
            with self.account.borrowed(nbytes):
                blob = write_blob(self.device, encode(snapshot()))
        self._saved[number] = blob
        if before is not None:
            before.free(self.device)

    def enter(self, number: int, shard: Shard, entering: Iterable[LoggedRows]) -> None:
        """Rows enter, and nothing is looked at."""
        for rows in entering:
            shard.aggregation.add(shard.reading.enter(rows))
            self.check(number, shard.aggregation.nbytes)

    def check(self, number: int, nbytes: int) -> None:
        """Stops where a shard has become too large."""
        if nbytes > self.account.total // _SHARD and number not in self._indivisible:
            raise _TooLarge

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "log": self.log.snapshot(),
            "saved": np.array([_NOT_SAVED if blob is None else blob for blob in self._saved], np.int64),
            "indivisible": np.array(sorted(self._indivisible), np.int64),
            "left": np.array(self.left, np.int64),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.log.restore(snapshot["log"])
        self._saved = [Blob(*blob) if blob[1] else None for blob in snapshot["saved"].tolist()]
        self._indivisible = set(snapshot["indivisible"].tolist())
        self.left = snapshot["left"].tolist()
