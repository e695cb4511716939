"""What every strategy offers: queries come and go, the position advances, and those that are due are named.

    position   1  2  3  4  5  6        tuples of a stream, counted from its first; or units of the local clock
    slide 2       x     x     x        due where the slide divides the position
    slide 3          x        x

A query counts from the stream's first tuple, whenever it was registered (contract, rule 3). A batch of n tuples is one
call, `candidates(position + n)`. By the local clock a call for time t brings every tick that was missed up to t.

All strategies name the same queries; they differ in the work they do. It is counted as the paper counts: testing a
node is one operation, a push on a stack (with its pop) eleven.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.errors import InputError
from penstock.windows.sliding.groups import SlideGroups

PUSH_OPERATIONS = 11
"""What a push with its pop counts for; the paper says 10 to 12 comparisons."""


class Candidates(NamedTuple):
    """Which queries are due at which positions: one entry per position and query, in the order of positions."""

    positions: Int64s
    queries: Int64s


class Due(NamedTuple):
    """Which groups are due where, in the order of positions."""

    positions: Int64s
    groups: Int64s


@dataclass
class Work:
    """What finding the candidates has taken so far."""

    positions: int = 0
    tests: int = 0
    pushes: int = 0

    @property
    def operations(self) -> int:
        return self.tests + PUSH_OPERATIONS * self.pushes

    def add(self, positions: int, tests: int, pushes: int) -> None:
        self.positions += positions
        self.tests += tests
        self.pushes += pushes


class GroupedStrategy(ABC):
    """A strategy over groups of equal slides: what is left to each is how it finds the groups that are due.

    With `local_time`, positions are times, of which only the ticks of one timer are looked at: its period is the
    greatest common divisor of all slides.
    """

    def __init__(self, start: int = 0, *, local_time: bool = False) -> None:
        self.groups = SlideGroups()
        self.work = Work()
        self.position = start
        self._local_time = local_time
        self._stale = True

    def register(self, query: int, slide: int) -> None:
        group, is_new = self.groups.add(query, slide)
        if is_new:
            self._slides_came([group])

    def register_many(self, queries: Int64s, slides: Int64s) -> None:
        self._slides_came(self.groups.add_many(queries, slides))

    def remove(self, query: int) -> None:
        group, is_empty = self.groups.discard(query)
        if is_empty:
            self._slide_went(group)

    def candidates(self, upto: int) -> Candidates:
        return Candidates(*self.groups.expand(*self.due(upto)))

    def due(self, upto: int) -> Due:
        """The groups that are due after the last position and up to this one; their number, not that of their
        queries, is what it costs."""
        if upto < self.position:
            raise InputError(f"positions go on: {upto} is before {self.position}")
        self._refresh()
        found = self._due(upto) if len(self.groups) else none_due()
        self.position = upto
        return found

    def _refresh(self) -> None:
        if self._stale:
            self._prepare(self.groups.live())
            self._stale = False

    def _slides_came(self, groups: list[int]) -> None:
        self._stale = self._stale or bool(groups)

    def _slide_went(self, group: int) -> None:
        self._stale = True

    def tick_period(self) -> int:
        """How far apart the positions are that have to be looked at."""
        return gcd(*self.groups.slides[self.groups.live()].tolist()) if self._local_time else 1

    @abstractmethod
    def _prepare(self, live: Int64s) -> None:
        """Slides have come or gone: `live` are the groups that there are now."""

    @abstractmethod
    def _due(self, upto: int) -> Due: ...


def none_due() -> Due:
    return Due(np.empty(0, np.int64), np.empty(0, np.int64))
