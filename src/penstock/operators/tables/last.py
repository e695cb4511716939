"""Of several rows of a key, the last."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.store.keyed import KeyedStore


def last_of_each(words: Int64s, valid: Bools | None) -> Int64s | None:
    """Where the last row of each key is, in order, without keys that are NULL; None if that is every row."""
    kept = np.arange(len(words)) if valid is None else np.flatnonzero(valid)
    scratch, rows, fresh = KeyedStore.numbering(words[kept])
    if fresh.all():
        return None if valid is None or valid.all() else kept
    last = np.full(scratch.partitions * scratch.capacity, -1, np.int64)
    last[rows] = kept  # of several the last counts
    return np.sort(last[last >= 0])
