"""Rows whose key cannot be computed, of an index that narrows a search (`plan.joins.narrowing`).

    looking for   finds
    a key         the rows of that key, and all odd rows
    ODD           all rows

Invariant: `positions` rise and are those of rows that have not left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.operators.joins.kernels import spread
from penstock.operators.stretches import stretches
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray

ODD = -2
"""The slot of a row whose key cannot be computed."""

Pairs = tuple[Int64s, Int64s]
"""The number of the asking row and the position of a row that it finds, in this order."""


class OddRows:
    def __init__(self, account: Account) -> None:
        self._array = ChargedArray(account, np.int64)
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def positions(self) -> Int64s:
        return self._array.array[self._first : self._end]

    def enter(self, slots: Slots, first: int) -> None:
        """`slots` are those of rows from position `first` on."""
        fresh = first + np.flatnonzero(slots == ODD)
        if not len(fresh):
            return
        held = self.positions.copy()
        self._first, self._end = 0, len(held) + len(fresh)
        self._array.fit(self._end)
        self._array.array[: len(held)] = held
        self._array.array[len(held) : self._end] = fresh

    def leave(self, before: int) -> None:
        self._first += int(np.searchsorted(self.positions, before))
        if self._first == self._end:
            self._first = self._end = 0
            self._array.clear()

    def clear(self) -> None:
        self._first = self._end = 0
        self._array.clear()


def with_odd(
    parts: Iterator[Pairs],
    asks_all: Bools,
    low: Int64s,
    high: Int64s,
    odd: Int64s,
    passing: Callable[[Int64s], Bools | None],
    most: int,
) -> Iterator[Pairs]:
    """The pairs found by key, and for each asking row the odd rows of [low, high). Rows marked in `asks_all` find all
    rows of [low, high). A part has about `most` pairs at most."""
    first = np.where(asks_all, low, np.searchsorted(odd, low))
    last = np.maximum(first, np.where(asks_all, high, np.searchsorted(odd, high)))

    def merged(begin: int, end: int, own: Int64s, found: Int64s) -> Pairs:
        origins, places = spread(first[begin:end], last[begin:end], int((last - first)[begin:end].sum()))
        origins = origins + begin
        places[~asks_all[origins]] = odd[places[~asks_all[origins]]]
        takes_part = passing(places)
        if takes_part is not None:
            origins, places = origins[takes_part], places[takes_part]
        here = slice(int(np.searchsorted(own, begin)), int(np.searchsorted(own, end)))
        both, positions = np.concatenate([own[here], origins]), np.concatenate([found[here], places])
        order = np.lexsort([positions, both])
        return both[order], positions[order]

    done = 0
    for own, found in parts:
        upto = int(own[-1]) + 1 if len(own) else done
        for begin, end in stretches((last - first)[done:upto], most):
            yield merged(done + begin, done + end, own, found)
        done = upto
    none = np.empty(0, np.int64)
    for begin, end in stretches((last - first)[done:], most):
        yield merged(done + begin, done + end, none, none)
