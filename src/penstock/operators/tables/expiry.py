"""Rows of a table with a time to live: which of them an event still sees, and how the others free their room.

A row holds the event time of its last change in a column of its own, `WRITTEN`. A reader or a change as of time t does
not see rows with `written + ttl <= t`. Nothing happens to a row at the moment when its time is over, so no answer
depends on when its room is freed.

Invariants:
1. A row is removed once every later read and change is as of a time at which the row is over: `floor` is the least
   of such times.
2. A sweep looks at whole partitions, in turn. All partitions are swept once while event time goes on by a `ROUNDS`th
   part of the time to live, so a row is looked at `ROUNDS` times before it is over, and hardly ever after.
3. `now` never falls, and no row is removed that is not over by then: a reader that begins later reads as of that time
   at least.

Why: docs/decisions/expired-rows-are-unseen.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock.arrays import Int32s
from penstock.components import component
from penstock.operators.reorder import START
from penstock.store.keyed import Found, KeyedStore

WRITTEN = "#written"
"""The column of the event time at which a row was changed last. Columns of users do not begin with '#'."""

ROUNDS = 8


@component("Expiry")
class Expiry:
    """`place` is that of the column `WRITTEN` in the store. `expired` counts the rows that were over when their room
    was freed, or taken by a new row of their key."""

    def __init__(self, ttl: int, place: int, store: KeyedStore) -> None:
        self.ttl = ttl
        self.place = place
        self.now = START
        self.expired = 0
        self.waits = False
        """Whether rows are over by the time of the writers, and a reader is behind."""
        self._store = store
        self._partition = 0
        self._next = START

    def note(self, time: int) -> None:
        """The streams that write the table have come so far."""
        if time > self.now:
            self.now = time

    def is_over(self, row: list[Any], time: int) -> bool:
        """Whether a row of Python values is not seen any more as of a time."""
        written: int = row[self.place]
        return written + self.ttl <= time

    @property
    def is_due(self) -> bool:
        """Whether there may be something to sweep."""
        return self.now >= self._next and self.now != START

    def sweep(self, passed: Iterable[int], remove: Callable[[Found], None]) -> tuple[int, float] | None:
        """Removes rows that no reader or change will see. `passed` are times below which none of them comes. Returns up
        to which time those were written, and which share of all rows was looked at; None if none."""
        floor = min(self.now, *passed)
        self.waits = floor < self._next
        if self.waits or floor == START:
            return None
        parts = self._store.partitions
        step = max(1, self.ttl // (ROUNDS * parts))
        due = min(parts, (floor - self._next) // step + 1)
        self._next = floor + step if due == parts else self._next + due * step
        rows = [self._over(part % parts, floor) for part in range(self._partition, self._partition + due)]
        self._partition = (self._partition + due) % parts
        over = np.concatenate(rows)
        if len(over):
            self.expired += len(over)
            remove(Found(over, None, len(over)))
        return floor - self.ttl, due / parts

    def _over(self, partition: int, floor: int) -> Int32s:
        written = self._store.values_of(partition, self.place)
        over = np.flatnonzero(written <= floor - self.ttl)
        return (over + partition * self._store.capacity).astype(np.int32)

    @property
    def oldest(self) -> int | None:
        """The least time at which a row that is in memory was changed last."""
        least = self._store.least(self.place)
        return None if least is None else int(least)

    def snapshot(self) -> dict[str, Any]:
        return {"now": self.now, "expired": self.expired}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.now, self.expired = snapshot["now"], snapshot["expired"]
        self._next = START
