"""The plain strategy: at every position each slide is tested. It is what the others are measured against."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Int64s
from penstock.instruments import Due, GroupedStrategy, kernel


class Plain(GroupedStrategy):
    """
    >>> plain = Plain()
    >>> plain.register(7, slide=2)
    >>> plain.register(8, slide=3)
    >>> plain.candidates(6)
    Candidates(positions=array([2, 3, 4, 6, 6]), queries=array([7, 8, 7, 7, 8]))
    >>> plain.work.operations
    12
    """

    def _prepare(self, live: Int64s) -> None:
        self._live = live
        self._slides = self.groups.slides[live]
        self._period = self.tick_period()

    def _due(self, upto: int) -> Due:
        positions, which, looked_at = _test_all(self.position, upto, self._period, self._slides)
        self.work.add(looked_at, looked_at * len(self._slides), 0)
        return Due(positions, self._live[which])


@kernel
def _test_all(after: int, upto: int, period: int, slides: Int64s) -> tuple[Int64s, Int64s, int]:
    positions = np.empty(64, np.int64)
    which = np.empty(64, np.int64)
    count = 0
    looked_at = 0
    position = after // period * period + period
    while position <= upto:
        looked_at += 1
        if count + len(slides) > len(positions):
            positions = np.concatenate((positions, np.empty(len(positions) + len(slides), np.int64)))
            which = np.concatenate((which, np.empty(len(which) + len(slides), np.int64)))
        for i in range(len(slides)):
            if position % slides[i] == 0:
                positions[count] = position
                which[count] = i
                count += 1
        position += period
    return positions[:count], which[:count], looked_at
