"""The shards of an aggregation whose groups are beyond memory: their rows in logs, their states on the device.

    rows ─▶ log ─▶ shard 0   rows that its states hold | rows that are still to enter     ┐ one of them is in memory
                   shard 1   ...                                                          ┘ at a time
                   ...

Where no row leaves the window, the log has only rows that are still to enter, and what groups hold is in another log.

Invariants:
1. What is saved of a shard are its groups and states as they were played last (`saved`). A shard of which nothing is
   saved gets them from the rows of its log.
2. A shard is divided when it takes more than `_SHARD` of the memory. Its states are then made anew from its rows, or
   its groups are divided. It is not divided where all its rows have the same hash, so that one group has all of them.
   It may grow then, and is looked at again when that is more than there is memory for: other keys may have come.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.components import component
from penstock.errors import BudgetError
from penstock.operators.aggregation import Aggregation
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.dividing import TooLarge, divide_together, to_play_instead
from penstock.operators.paged.group_columns import GroupColumns
from penstock.operators.paged.log import LoggedRows, RowLog
from penstock.operators.paged.saved import SavedGroups, SavedStates
from penstock.operators.paged.shard import EnteringRows, LoggedColumns, Shard, ShardReading
from penstock.operators.resources import Resources
from penstock.plan.nodes import StateSpec
from penstock.windows.steps import FOREVER

_BITS = 5
"""There are so many upper bits of the hash by which rows are divided at first."""

_SHARD = 10
"""A shard takes at most such a part of the memory."""


class Gathered(Protocol):
    """What comes of the shards that are played."""

    def begin_shard(self) -> None:
        """What is added from here on is of one shard."""

    def undo_shard(self) -> None:
        """Forgets what was added of the shard: it is divided, and its parts are played instead."""


def _of_states(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Version 1: all shards were saved as groups and states."""
    return snapshot | {"saved": {"states": snapshot["saved"]}}


@component("Shards", 2, _of_states)
class Shards:
    """Of these `states`. `own` are the columns that they read, `columns` those that are logged. If `rows_leave` is not
    so, rows are forgotten once they have entered their states."""

    def __init__(
        self,
        name: str,
        states: tuple[StateSpec, ...],
        own: OwnColumns,
        resources: Resources,
        columns: LoggedColumns,
        *,
        rows_leave: bool = True,
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
        self._saved: SavedStates | SavedGroups = SavedStates(self.device, self.account, self.log.shards)
        if not rows_leave:
            groups = GroupColumns(columns.key_types, states)
            staged = self._resources.account(f"{name}: groups on their way to shards", is_spare=True)
            log = RowLog(self.device, self.account, staged, groups.schema, groups.key_types, _BITS)
            self._saved = SavedGroups(groups, log, self.account)
        self._logs = [self.log, *self._saved.logs]
        self._indivisible: set[int] = set()
        self.left = [-FOREVER] * self.log.shards
        """A time for each shard: rows that are older have left its states."""
        self._bytes_before = 0

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

    def take(self, aggregation: Aggregation) -> None:
        """The groups of an aggregation, before any of their rows is logged, where rows do not leave."""
        assert isinstance(self._saved, SavedGroups), "other groups are made of their rows"
        self._saved.take(aggregation)

    def flush(self) -> None:
        """Nothing is staged from here on."""
        for log in self._logs:
            log.flush()

    @property
    def has_many(self) -> bool:
        """Whether more rows have been logged, since `release_played`, than there is memory for and than groups take."""
        added = self.log.bytes_added - self._bytes_before
        if added < self.account.total or not isinstance(self._saved, SavedGroups):
            return False
        return added >= self._saved.nbytes

    def release_played(self, before_time: int) -> None:
        """Older rows of all shards have been played, and those have been left behind that are older than `left`."""
        self._bytes_before = self.log.bytes_added
        for number, left in enumerate(self.left):
            self.log.release(number, before_time if isinstance(self._saved, SavedGroups) else left)

    # A shard is played

    def visit(self, number: int, play: Callable[[int], None], gathered: Gathered) -> None:
        """Plays a shard; what it shows is gathered. If it is too large for the memory, it is divided, and both parts
        are played."""
        gathered.begin_shard()
        try:
            play(number)
            return
        except (BudgetError, TooLarge):
            gathered.undo_shard()
            parts = to_play_instead(number, self._indivisible, self._divide)
            if not parts:
                raise
        for part in parts:
            self.visit(part, play, gathered)

    def _divide(self, number: int) -> int | None:
        """The number of the shard that may get a part of the rows; None if all have the same hash."""
        other = divide_together(self._logs, number, self._indivisible)
        if other is None:
            return None
        self._saved.divide(number)
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
        return self._saved.has(number)

    def load(self, number: int, rows: Iterable[LoggedRows]) -> Shard:
        """A shard as it was played last; `rows` are those that its states hold, if they are not saved."""
        shard = self.empty()
        try:
            if self._saved.has(number):
                self._saved.load(number, shard, lambda: self.check(number, shard.aggregation.nbytes))
            else:
                self.enter(number, shard, rows)
        except BaseException:
            shard.close()
            raise
        return shard

    def save(self, number: int, shard: Shard) -> None:
        self._saved.save(number, shard)

    @property
    def saved_states(self) -> SavedStates:
        """For what saves something else of a shard."""
        assert isinstance(self._saved, SavedStates), "rows leave"
        return self._saved

    @property
    def rows_leave(self) -> bool:
        return isinstance(self._saved, SavedStates)

    def enter(self, number: int, shard: Shard, entering: Iterable[LoggedRows]) -> None:
        """Rows enter, and nothing is looked at."""
        for rows in entering:
            shard.aggregation.add(shard.reading.enter(rows))
            nbytes = shard.aggregation.nbytes
            if nbytes > max(self.account.total // _SHARD, 2 * shard.least) and isinstance(self._saved, SavedGroups):
                self._renew(shard, self._saved)
            self.check(number, shard.aggregation.nbytes)

    def _renew(self, shard: Shard, saved: SavedGroups) -> None:
        """What the shard holds without what only rows that leave would need."""
        empty = self.empty()
        try:
            saved.renew(shard, empty)
        except BaseException:
            empty.close()
            raise
        shard.become(empty)

    def check(self, number: int, nbytes: int) -> None:
        """Stops where a shard has become too large."""
        if nbytes > self.account.total // _SHARD and number not in self._indivisible:
            raise TooLarge

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "log": self.log.snapshot(),
            "saved": self._saved.snapshot(),
            "indivisible": np.array(sorted(self._indivisible), np.int64),
            "left": np.array(self.left, np.int64),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.log.restore(snapshot["log"])
        self._saved.restore(snapshot["saved"])
        self._indivisible = set(snapshot["indivisible"].tolist())
        self.left = snapshot["left"].tolist()
