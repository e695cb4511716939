"""Evaluations of a window whose rows are in shards: each shard in turn plays all that are due.

    evaluations are due: for each shard  load ─▶ rows enter and leave its groups ─▶ they are looked at ─▶ save

Rows wait in the log until an evaluation is due, so a shard is read and written once for all of them: the cost of a row
does not grow with what the shards hold. A shard of which all rows have left by the first evaluation begins anew.

Invariants:
1. The states of a shard hold its rows that are older than `played`, and at a position before `upto` if evaluations
   are due at positions, and have not left it.
2. Evaluations that are played together have few rows that enter or leave, or are one.

Called by `paged.results`, which shows the groups of shards, and `paged.texts`, which counts them.

Why: docs/decisions/groups-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.aggregation import EMITTED_AT_ONCE, RowRun
from penstock.operators.paged.log import LoggedRows, joined, times_of
from penstock.operators.paged.shard import POSITION, Shard
from penstock.operators.paged.shards import Gathered, Shards
from penstock.windows.steps import FOREVER, Steps

_NO_TURN = np.zeros(1, np.int64)


class Due(NamedTuple):
    """Evaluations: rows that are older than `leaves` have left, and rows that are older than the end of the window are
    in, also where it starts later than the stream. With `upto`, rows at later positions are not in. Where the log is in
    the order of positions, `leaves` and `ends` are positions, too."""

    leaves: Int64s
    starts: Int64s
    ends: Int64s
    upto: Int64s | None = None


def due_at(steps: Steps) -> Due | None:
    """The evaluations of some steps at boundaries of time; None if there is none."""
    which = np.flatnonzero(steps.evaluates)
    if len(which) == 0:
        return None
    return Due(steps.leave_before[which], steps.window_start[which], steps.window_end[which])


def due_at_rows(steps: Steps, first: int) -> Due | None:
    """The evaluations of some steps at rows, of which the first has this position; None if there is none."""
    due = due_at(steps)
    return None if due is None else due._replace(ends=due.ends + 1, upto=first + steps.add_upto[steps.evaluates])


class Turn(NamedTuple):
    """Rows of a shard in memory that enter and leave by some evaluations, of which the first has this number."""

    number: int
    shard: Shard
    first: int
    added: RowRun
    removed: RowRun
    add_upto: Int64s
    remove_upto: Int64s


Look = Callable[[Turn], None]
"""Plays a turn, and keeps what comes of its evaluations."""

Rest = Callable[[int], None]
"""Keeps what comes of the evaluations of a shard that no row enters or leaves."""


class _Nothing:
    """What is gathered where nothing is shown."""

    def begin_shard(self) -> None:
        pass

    def undo_shard(self) -> None:
        pass


_NOTHING = _Nothing()


class Sweeps:
    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.played = -FOREVER
        self.upto = 0

    def sweep(self, due: Due, gathered: Gathered, look: Look, rest: Rest | None = None) -> None:
        """Plays evaluations on all shards; what `look` keeps is `gathered`. If there is a `rest`, shards are not loaded
        in vain."""
        shards = self.shards
        shards.flush()
        for number in range(shards.log.shards):
            shards.visit(number, lambda part: self._play_shard(part, due, look, rest), gathered)
        self.played = int(due.ends[-1])
        self.upto = 0 if due.upto is None else int(due.upto[-1])
        shards.release_played(self.played)

    def enter(self, before: int) -> None:
        """Older rows enter without an evaluation, in a window that no row leaves."""
        shards = self.shards
        shards.flush()
        for number in range(shards.log.shards):
            shards.visit(number, lambda part: self._enter_shard(part, before), _NOTHING)
        self.played = max(self.played, before)
        shards.release_played(self.played)

    def _enter_shard(self, number: int, before: int) -> None:
        shards, log = self.shards, self.shards.log
        if not log.count(number, self.played, before):
            return
        shard = shards.load(number, ())
        try:
            shards.enter(number, shard, log.between(number, self.played, before))
            shards.save(number, shard)
        finally:
            shard.close()

    def _play_shard(self, number: int, due: Due, look: Look, rest: Rest | None) -> None:
        shards, log = self.shards, self.shards.log
        left, count = shards.left[number], len(due.ends)
        is_saved = shards.is_saved(number)
        moved = self._moved(number, due, 0, count)
        if not (moved or is_saved or log.has_rows(number)):
            return
        if rest is not None and is_saved and not (moved and self._moves(number, due)):
            rest(number)
            return
        first = int(due.leaves[0])
        if shards.rows_leave and first >= self.played:
            left = first
            shard = shards.empty()
        else:
            shard = shards.load(number, self._entered(number, left))
        try:
            for begin, end in self._portions(number, due, 0, count, moved):
                self._play_portion(number, shard, due, begin, end, left, look)
            if moved or not is_saved:
                shards.save(number, shard)
            shards.left[number] = max(shards.left[number], int(due.leaves[-1]))
        finally:
            shard.close()

    def _portions(self, number: int, due: Due, begin: int, end: int, moved: int) -> Iterator[tuple[int, int]]:
        """Evaluations that are played together: halves, as long as these have fewer rows."""
        middle = (begin + end) // 2
        if moved > EMITTED_AT_ONCE and middle > begin:
            halves = [(begin, middle), (middle, end)]
            parts = [self._moved(number, due, *half) for half in halves]
            if due.upto is None or max(parts) < moved:
                for half, part in zip(halves, parts, strict=True):
                    yield from self._portions(number, due, *half, part)
                return
        yield begin, end

    def _play_portion(self, number: int, shard: Shard, due: Due, begin: int, end: int, left: int, look: Look) -> None:
        """Plays some of the evaluations; before the first one, older rows have `left`."""
        reading = shard.reading
        entering = self._entering(number, due, begin, end, left)
        leaving = self.shards.log.between(number, self._left(due, begin, left), int(due.leaves[end - 1]))
        if end - begin == 1:
            self.shards.enter(number, shard, entering)
            gone = shard.leave(leaving)
            look(Turn(number, shard, begin, shard.nothing, shard.nothing, _NO_TURN, _NO_TURN))
        else:
            added, removed = joined(list(entering)), joined(list(leaving))
            upto = due.ends[begin:end] if due.upto is None else due.upto[begin:end]
            entered = shard.nothing if added is None else reading.enter(added)
            left_rows = shard.nothing if removed is None else reading.leave(removed)
            add_upto = _upto(added, upto, POSITION if due.upto is not None else None)
            remove_upto = _upto(removed, due.leaves[begin:end], None)
            look(Turn(number, shard, begin, entered, left_rows, add_upto, remove_upto))
            reading.forget(left_rows)
            gone = len(left_rows.slots)
        self.shards.check(number, shard.aggregation.nbytes)
        reading.groups.collect(gone)

    # Rows that move

    def _moved(self, number: int, due: Due, begin: int, end: int) -> int:
        """About how many rows enter and leave by some evaluations: not less than that."""
        log, since = self.shards.log, self._since(due, begin)
        left = self._left(due, begin, self.shards.left[number])
        return log.count(number, since, int(due.ends[end - 1])) + log.count(number, left, int(due.leaves[end - 1]))

    def _moves(self, number: int, due: Due) -> bool:
        """Whether any row does."""
        left = self.shards.left[number]
        leaving = self.shards.log.between(number, left, int(due.leaves[-1]))
        entering = self._entering(number, due, 0, len(due.ends), left)
        return next(leaving, None) is not None or next(entering, None) is not None

    def _entering(self, number: int, due: Due, begin: int, end: int, left: int) -> Iterator[LoggedRows]:
        """The rows that enter by some evaluations, without those that were gone before the first of all."""
        since = max(self._since(due, begin), left)
        rows = self.shards.log.between(number, since, int(due.ends[end - 1]))
        if due.upto is None:
            return rows
        return where(rows, int(due.upto[begin - 1]) if begin else self.upto, int(due.upto[end - 1]))

    def _entered(self, number: int, left: int) -> Iterator[LoggedRows]:
        """The rows that the states of a shard hold."""
        rows = self.shards.log.between(number, left, self.played)
        return where(rows, 0, self.upto) if self.upto else rows

    def _since(self, due: Due, begin: int) -> int:
        """A time that no row is older than which enters from an evaluation on."""
        played = int(due.ends[begin - 1]) if begin else self.played
        return played if due.upto is None else played - 1  # others may have the time of the last row

    @staticmethod
    def _left(due: Due, begin: int, left: int) -> int:
        """The time before which rows have left before an evaluation."""
        return max(left, int(due.leaves[begin - 1])) if begin else left

    # Durability

    @property
    def saved(self) -> dict[str, Any]:
        return {"shards": self.shards.snapshot(), "played": self.played}

    def take_saved(self, saved: dict[str, Any]) -> None:
        self.shards.restore(saved["shards"])
        self.played = saved["played"]


def where(parts: Iterator[LoggedRows], begin: int, end: int) -> Iterator[LoggedRows]:
    """The rows from one position in the stream on and before another; positions rise."""
    for rows in parts:
        first, last = np.searchsorted(rows.batch.column(POSITION).to_numpy(), (begin, end)).tolist()
        if first < last:
            yield rows.part(first, last)


def _upto(rows: LoggedRows | None, bounds: Int64s, column: str | None) -> Int64s:
    """How many of the rows are below each bound, in a column or in their times."""
    if rows is None:
        return np.zeros(len(bounds), np.int64)
    values = times_of(rows.batch) if column is None else rows.batch.column(column).to_numpy()
    upto: Int64s = np.searchsorted(values, bounds)
    return upto
