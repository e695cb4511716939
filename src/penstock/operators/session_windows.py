"""Sessions of the whole stream, or of each partition: which row belongs to which, and when they close.

A session goes on while each row comes less than the gap after the one before. Sessions close in the order of
(window_end, partition key).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.expressions.vector import Evaluated
from penstock.jit import kernel
from penstock.operators.chunk import Chunk
from penstock.operators.closing_windows import Closed
from penstock.operators.groups import GroupTable
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray, power_of_two
from penstock.windows.steps import FOREVER


@kernel
def _assign_sessions(
    times: Int64s,
    partitions: Slots,
    gap: int,
    current: Int64s,
    starts: Int64s,
    lasts: Int64s,
    owners: Slots,
    counts: Int64s,
    opened: int,
    places: Int64s,
    row: int,
) -> tuple[int, int]:
    """From `row` on: `current` is the place of each partition's open session and `counts` how many it has, those that
    are over included. Stops when there is no place left. Returns the rows done and how many sessions there are."""
    while row < len(times):
        partition = partitions[row]
        session = current[partition]
        if session < 0 or times[row] >= lasts[session] + gap:
            if opened == len(starts):
                break
            session = opened
            opened += 1
            current[partition] = session
            counts[partition] += 1
            starts[session] = times[row]
            owners[session] = partition
        lasts[session] = times[row]
        places[row] = session
        row += 1
    return row, opened


class OpenSessions(NamedTuple):
    """Sessions that have not closed, in the order in which they began: their instances, the time of their first and
    last rows, and the slot of the partition of each."""

    numbers: Int64s
    starts: Int64s
    lasts: Int64s
    owners: Slots


@component("SessionWindows")
class SessionWindows:
    """Sessions of the whole stream, or of each partition. Those that have not closed have places 0, 1, ... in arrays
    that are on the `account`, in the order in which they began; `partitions.counts` is how many each partition has.

    A partition without an open session gives its slot back when the next rows come, not when the session closes: what
    the session shows is then still to be compared with what the partition showed before."""

    def __init__(self, gap: int, partition_by: tuple[Expression, ...], account: Account) -> None:
        self._gap = gap
        self._keys = [compile_expression(key) for key in partition_by]
        self.partitions = GroupTable(tuple(key.type for key in partition_by), account)
        self._current = ChargedArray(account, np.int64, fill=-1)
        self._numbers = ChargedArray(account, np.int64)
        self._starts = ChargedArray(account, np.int64)
        self._lasts = ChargedArray(account, np.int64)
        self._owners = ChargedArray(account, np.int32)
        self._open = 0
        self._before = 0
        """How many were open before the last rows came."""
        self._made = 0
        self._closed = 0
        self._least_end = FOREVER

    def hold(self, holds: Callable[[int], Bools]) -> None:
        """Partitions that are held keep their slot, also without an open session."""
        self.partitions.hold(holds)

    def assign(self, chunk: Chunk) -> Int64s:
        return self.enter(chunk.times, [key(chunk.columns) for key in self._keys])

    def enter(self, times: Int64s, keys: Sequence[Evaluated]) -> Int64s:
        """The instance of the session of each row; `keys` are the columns of the partition."""
        rows, self._before = len(times), self._open
        self.partitions.collect(self._closed)
        self._closed = 0
        partitions = self.partitions.assign(list(keys), rows, None)
        if self.partitions.capacity > len(self._current):
            self._current.resize(self.partitions.capacity)
        row = 0
        places = np.empty(rows, np.int64)
        arrays = (self._numbers, self._lasts, self._owners, self._starts)
        while True:
            room = min(map(len, arrays))  # where memory is short, their lengths differ
            row, self._open = _assign_sessions(
                times,
                partitions,
                self._gap,
                self._current.array,
                self._starts.array[:room],
                self._lasts.array,
                self._owners.array,
                self.partitions.counts,
                self._open,
                places,
                row,
            )
            if row == rows:
                break
            for array in arrays:
                array.fit(self._open + 1)
        fresh = self._open - self._before
        self._numbers.array[self._before : self._open] = np.arange(self._made, self._made + fresh)
        self._made += fresh
        self._least_end = min(self._least_end, int(times[0]) + self._gap)
        instances: Int64s = self._numbers.array[places]
        return instances

    def close(self, watermark: int) -> Closed:
        if watermark < self._least_end:
            return Closed(*(np.empty(0, np.int64),) * 4)
        ends = self._lasts.array[: self._open] + self._gap
        closes = ends <= watermark
        chosen = np.flatnonzero(closes)
        owners = self._owners.array[chosen]
        chosen = chosen[np.lexsort([self._ranks(owners), ends[chosen]])]
        closed = Closed(
            self._numbers.array[chosen],
            self._starts.array[chosen],
            ends[chosen],
            self._owners.array[chosen].astype(np.int64),
        )
        self.keep(~closes)
        return closed

    def _ranks(self, owners: Slots) -> Int64s:
        """The place of each of these partitions in the order of their keys."""
        distinct, which = np.unique(owners, return_inverse=True)
        rank = np.empty(len(distinct), np.int64)
        rank[np.searchsorted(distinct, self.partitions.sorted(distinct))] = np.arange(len(distinct))
        return rank[which]

    def keep(self, stays: Bools) -> None:
        """Only these sessions are left; they move up."""
        place = np.cumsum(stays) - 1
        gone = self._owners.array[: self._open][~stays]
        np.subtract.at(self.partitions.counts, gone, 1)
        if len(stays):
            current = self._current.array
            open_now = current >= 0
            moved = np.where(open_now, current, 0)
            current[:] = np.where(open_now & stays[moved], place[moved], -1)
        left = int(stays.sum())
        for array in (self._numbers, self._starts, self._lasts, self._owners):
            array.array[:left] = array.array[: self._open][stays]
            if 4 * left < len(array):
                array.resize(power_of_two(2 * left))
        self._open = left
        self._least_end = int(self._lasts.array[:left].min()) + self._gap if left else FOREVER
        self._closed += len(gone)

    # Sessions that page

    @property
    def open(self) -> OpenSessions:
        arrays = self._numbers, self._starts, self._lasts, self._owners
        return OpenSessions(*(array.array[: self._open] for array in arrays))

    @property
    def made(self) -> int:
        """How many sessions there have been: instances are below this."""
        return self._made

    @property
    def least_end(self) -> int:
        """No session closes before this time."""
        return self._least_end

    @property
    def nbytes(self) -> int:
        arrays = self._current, self._numbers, self._starts, self._lasts, self._owners
        return self.partitions.nbytes + sum(array.nbytes for array in arrays)

    def bytes_for_group(self, groups: int) -> int:
        return self.nbytes // max(groups, self.partitions.capacity)

    def places(self, partitions: Slots) -> Int64s:
        """The places of the last sessions of these partitions."""
        places: Int64s = self._current.array[partitions]
        return places

    def begin(self, starts: Int64s, lasts: Int64s) -> None:
        """The partitions there are, which have had no rows, have a session each that began elsewhere."""
        count = len(starts)
        self._current.resize(self.partitions.capacity)
        self._current.array[:count] = np.arange(count)
        self._numbers.set(np.arange(count))
        self._owners.set(np.arange(count))
        self._starts.set(starts)
        self._lasts.set(lasts)
        self.partitions.counts[:count] += 1
        self._open = self._made = count
        self._least_end = int(lasts.min()) + self._gap if count else FOREVER

    def take_back(self) -> None:
        """The last rows are elsewhere, also where there was no room for all of them: the sessions that began with them
        are forgotten. Before they came no partition had two sessions."""
        gone = self._owners.array[self._before : self._open]
        np.subtract.at(self.partitions.counts, gone, 1)
        self._open = self._before
        self._current.array[:] = -1
        self._current.array[self._owners.array[: self._open]] = np.arange(self._open)

    def next_close(self, time: int) -> int:
        return time + max(1, self._gap // 8)

    def is_due(self, watermark: int) -> bool:
        return self._least_end <= watermark

    def end(self, last_time: int | None) -> int | None:
        return int(self._lasts.array[: self._open].max()) + self._gap if self._open else None

    def snapshot(self) -> dict[str, Any]:
        return {
            "partitions": self.partitions.snapshot(),
            "current": self._current.array,
            "numbers": self._numbers.array[: self._open],
            "starts": self._starts.array[: self._open],
            "lasts": self._lasts.array[: self._open],
            "owners": self._owners.array[: self._open],
            "made": self._made,
            "next_close": self._least_end,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.partitions.restore(snapshot["partitions"])
        self._current.set(snapshot["current"])
        self._numbers.set(snapshot["numbers"])
        self._starts.set(snapshot["starts"])
        self._lasts.set(snapshot["lasts"])
        self._owners.set(snapshot["owners"])
        self._open, self._made = len(snapshot["numbers"]), snapshot["made"]
        self._least_end = snapshot["next_close"]
