"""Close slides as one: an opt-in that trades exact distances between evaluations for fewer groups.

    tolerance 0.1      slides  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 ...
                       used as 1 2 3 4 5 6 7 8 9  9 11 11 13 13 15 15 ...

**The error.** A query that asked for slide s is due every r positions, where (1 - tolerance) * s <= r <= s: never
later than asked, and earlier by at most the tolerance. The distance between two evaluations keeps this bound for
ever; which positions they are moves away from the multiples of s, by up to tolerance * s with each evaluation. Slides
below 1 / tolerance are exact. Up to slide m about ln(tolerance * m) / tolerance + 1 / tolerance groups are left.

Nothing in the engine does this of itself: the contract asks for the exact positions.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np

from penstock.arrays import Int64s
from penstock.errors import InputError
from penstock.instruments import Candidates, Work
from penstock_bench.sliding.strategy import SlidingStrategy


class Approximate:
    """A strategy that hands its queries to another, with slides that stand for those close to them.

    >>> from penstock.instruments import Calendar
    >>> close = Approximate(Calendar(), tolerance=0.1)
    >>> close.register_many(np.array([1, 2]), np.array([94, 100]))
    >>> close.candidates(200)
    Candidates(positions=array([ 92,  92, 184, 184]), queries=array([1, 2, 1, 2]))
    """

    def __init__(self, inner: SlidingStrategy, tolerance: float) -> None:
        if not 0 <= tolerance < 1:
            raise InputError(f"a tolerance of {tolerance} cannot be: it is a part of the slide, from 0 to less than 1")
        self._inner = inner
        self._kept = 1 - Fraction(tolerance)
        self._ladder = [1]

    @property
    def position(self) -> int:
        return self._inner.position

    @property
    def work(self) -> Work:
        return self._inner.work

    def used(self, slide: int) -> int:
        """The slide that stands for this one: the same whatever else is registered."""
        if self._kept == 1 or slide < 1:
            return slide
        while self._ladder[-1] <= slide:
            self._ladder.append(int(self._ladder[-1] / self._kept) + 1)
        return self._ladder[bisect_right(self._ladder, slide) - 1]

    def register(self, query: int, slide: int) -> None:
        self._inner.register(query, self.used(slide))

    def register_many(self, queries: Int64s, slides: Int64s) -> None:
        distinct, which = np.unique(slides, return_inverse=True)
        used = np.array([self.used(slide) for slide in distinct.tolist()], np.int64)
        self._inner.register_many(queries, used[which])

    def remove(self, query: int) -> None:
        self._inner.remove(query)

    def candidates(self, upto: int) -> Candidates:
        return self._inner.candidates(upto)
