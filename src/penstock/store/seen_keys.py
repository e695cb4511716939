"""Whether the keys of a batch all differ."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Int64s
from penstock.store import keyed_kernels as kernels


class SeenKeys:
    """Tells whether the keys of a batch all differ; its memory is used again for the next batch.

    >>> seen = SeenKeys()
    >>> seen.all_differ(np.array([[1, 2], [2, 1]])), seen.all_differ(np.array([[1], [2], [1]]))
    (True, False)
    """

    def __init__(self) -> None:
        self._slots = np.full(1024, -1, np.int64)
        self._first = 0

    def all_differ(self, keys: Int64s) -> bool:
        if len(self._slots) < 2 * len(keys):
            self._slots = np.full(1 << (2 * len(keys) - 1).bit_length(), -1, np.int64)
        first = self._first
        self._first += len(keys)
        return kernels.all_differ(keys, self._slots, first)
