"""Evaluations of a window whose rows are in shards: each shard in turn plays all that are due.

    evaluations are due: for each shard  load ─▶ rows enter and leave its groups ─▶ they are looked at ─▶ save

Rows wait in the log until an evaluation is due, so a shard is read and written once for all of them: the cost of a row
does not grow with what the shards hold. A shard of which all rows have left by the first evaluation begins anew.

Invariant: the states of a shard hold its rows that are older than `played` and have not left it.

Called by `paged.results`, which shows the groups of shards, and `paged.texts`, which counts them.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.aggregation import EMITTED_AT_ONCE, RowRun
from penstock.operators.paged.log import LoggedRows, joined, times_of
from penstock.operators.paged.shard import Shard
from penstock.operators.paged.shards import Gathered, Shards
from penstock.windows.steps import FOREVER, Steps

_NO_TURN = np.zeros(1, np.int64)


class Due(NamedTuple):
    """Evaluations: rows that are older than `leaves` have left, and rows that are older than the end of the window are
    in, also where it starts later than the stream."""

    leaves: Int64s
    starts: Int64s
    ends: Int64s


def due_at(steps: Steps) -> Due | None:
    """The evaluations of some steps; None if there is none."""
    which = np.flatnonzero(steps.evaluates)
    if len(which) == 0:
        return None
    return Due(steps.leave_before[which], steps.window_start[which], steps.window_end[which])


class Turn(NamedTuple):
    """Rows of a shard in memory that enter and leave by some evaluations, of which the first has this number."""

    shard: Shard
    first: int
    added: RowRun
    removed: RowRun
    add_upto: Int64s
    remove_upto: Int64s


Look = Callable[[Turn], None]
"""Plays a turn, and keeps what comes of its evaluations."""


class Sweeps:
    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.played = -FOREVER

    def sweep(self, due: Due, gathered: Gathered, look: Look) -> None:
        """Plays evaluations on all shards; what `look` keeps is `gathered`."""
        shards, log = self.shards, self.shards.log
        log.flush()
        for number in range(log.shards):
            shards.visit(number, lambda part: self._play_shard(part, due, look), gathered)
        self.played = int(due.ends[-1])
        for number in range(log.shards):
            log.release(number, shards.left[number])

    def _play_shard(self, number: int, due: Due, look: Look) -> None:
        shards, log = self.shards, self.shards.log
        left, played = shards.left[number], self.played
        moved = log.count(number, played, int(due.ends[-1]))
        moved += log.count(number, left, int(due.leaves[-1]))
        is_saved = shards.is_saved(number)
        if not (moved or is_saved or log.has_rows(number)):
            return
        first = int(due.leaves[0])
        if first >= played:
            left = played = first
            shard = shards.empty()
        else:
            shard = shards.load(number, log.between(number, left, played))
        try:
            portions = [(0, len(due.ends))]
            if moved > EMITTED_AT_ONCE:
                portions = [(k, k + 1) for k in range(len(due.ends))]
            for begin, end in portions:
                if begin:
                    played, left = int(due.ends[begin - 1]), max(left, int(due.leaves[begin - 1]))
                self._play_portion(number, shard, due, begin, end, (left, played), look)
            if moved or not is_saved:
                shards.save(number, shard)
            shards.left[number] = max(shards.left[number], int(due.leaves[-1]))
        finally:
            shard.close()

    def _play_portion(
        self,
        number: int,
        shard: Shard,
        due: Due,
        begin: int,
        end: int,
        since: tuple[int, int],
        look: Look,
    ) -> None:
        """Plays some of the evaluations; `since` says before which times rows have left, and are in."""
        left, played = since
        reading = shard.reading
        entering = self.shards.log.between(number, played, int(due.ends[end - 1]))
        leaving = self.shards.log.between(number, left, int(due.leaves[end - 1]))
        if end - begin == 1:
            self.shards.enter(number, shard, entering)
            gone = shard.leave(leaving)
            look(Turn(shard, begin, shard.nothing, shard.nothing, _NO_TURN, _NO_TURN))
        else:
            added, removed = joined(list(entering)), joined(list(leaving))
            upto = _upto(added, due.ends[begin:end]), _upto(removed, due.leaves[begin:end])
            entered = shard.nothing if added is None else reading.enter(added)
            left_rows = shard.nothing if removed is None else reading.leave(removed)
            look(Turn(shard, begin, entered, left_rows, *upto))
            reading.forget(left_rows)
            gone = len(left_rows.slots)
        self.shards.check(number, shard.aggregation.nbytes)
        reading.groups.collect(gone)

    # Durability

    @property
    def saved(self) -> dict[str, Any]:
        return {"shards": self.shards.snapshot(), "played": self.played}

    def take_saved(self, saved: dict[str, Any]) -> None:
        self.shards.restore(saved["shards"])
        self.played = saved["played"]


def _upto(rows: LoggedRows | None, bounds: Int64s) -> Int64s:
    """How many of the rows are older than each bound."""
    if rows is None:
        return np.zeros(len(bounds), np.int64)
    upto: Int64s = np.searchsorted(times_of(rows.batch), bounds)
    return upto
