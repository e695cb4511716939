"""Where the rows of a keyed store are, by keys that are themselves small numbers: an array in place of a hash table.

Numbers of customers or strategies, and the codes of texts, are mostly dense: they count from 0. Then the row of a key
is one read, and keys that rise are read in the order of the memory.

Invariants:
1. The array is right as long as no row comes, goes or moves: then it is given up (`drop`).
2. It is made once as many keys were looked for since then as the store has rows. So making it costs no more than the
   looks that it spares.
3. It is on the store's account, and is given up where memory is short: the hash table has all that it has.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Int32s, Int64s
from penstock.jit import kernel
from penstock.store.budget import Account
from penstock.store.keyed_kernels import Keys

_SPARSE = 4
"""Keys up to so many times the number of rows are dense."""

_SHARE_OF_FREE = 16
"""It takes no more than this part of the memory that is free."""


@kernel
def _greatest(stored: Keys, counts: Int32s) -> int:
    """The greatest key, or -1 if one is below 0."""
    greatest = np.int64(0)
    for p in range(len(counts)):
        for place in range(counts[p]):
            key = np.int64(stored[p, place, 0])
            if key < 0:
                return -1
            greatest = max(greatest, key)
    return int(greatest)


@kernel
def _fill(stored: Keys, counts: Int32s, rows: Int32s) -> None:
    rows[:] = -1
    for p in range(len(counts)):
        for place in range(counts[p]):
            rows[np.int64(stored[p, place, 0])] = p * stored.shape[1] + place


@kernel
def _read(by_key: Int32s, keys: Int64s, valid: Bools, rows: Int32s) -> None:
    masked = len(valid) > 0
    for i in range(len(keys)):
        key = keys[i, 0]
        rows[i] = by_key[key] if 0 <= key < len(by_key) and not (masked and not valid[i]) else -1


class DirectIndex:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._by_key: Int32s | None = None
        self._asked = 0
        account.on_need(self.drop)

    @property
    def nbytes(self) -> int:
        return 0 if self._by_key is None else self._by_key.nbytes

    def drop(self) -> bool:
        """Whether there was one."""
        had = self._by_key is not None
        if had:
            self._account.release(self.nbytes)
            self._by_key = None
        self._asked = 0
        return had

    def find(self, stored: Keys, counts: Int32s, keys: Int64s, valid: Bools) -> Int32s | None:
        """The row of each key, -1 where there is none or it is not valid; None if the hash table has to be asked."""
        if self._by_key is None:
            self._asked += len(keys)
            if self._asked < counts.sum() or not self._make(stored, counts):
                return None
        assert self._by_key is not None
        rows = np.empty(len(keys), np.int32)
        _read(self._by_key, keys, valid, rows)
        return rows

    def _make(self, stored: Keys, counts: Int32s) -> bool:
        self._asked = 0
        greatest, rows = _greatest(stored, counts), int(counts.sum())
        nbytes = 4 * (greatest + 1)
        if not 0 <= greatest < _SPARSE * rows or nbytes * _SHARE_OF_FREE > self._account.free:
            return False
        if not self._account.try_resize(self._account.nbytes + nbytes):
            return False
        self._by_key = np.empty(greatest + 1, np.int32)
        _fill(stored, counts, self._by_key)
        return True
