"""Work cut into parts that are small enough to be held at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.arrays import Int64s


def stretches(sizes: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Places one after the other whose sizes are at most so much together, or one place.

    >>> list(stretches(np.array([2, 2, 9, 1, 0, 2]), 4))
    [(0, 2), (2, 3), (3, 6)]
    """
    upto = np.cumsum(sizes)
    first = 0
    while first < len(upto):
        before = int(upto[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(upto, before + most, side="right")))
        yield first, last
        first = last
