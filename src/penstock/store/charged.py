"""Memory that is charged to its account before it is allocated.

A `ChargedArray` is a numpy array that grows. It asks its account for the new size and allocates after that was granted.
Kernels take plain arrays: they get `array`, which is a new object after `fit`. Strings and Arrow batches are charged
with `Account.charge` before they are kept, and released with `Account.release` when they are gone.

Invariants:
1. The account holds `array.nbytes` for each of its arrays, except while an array is being made.
2. A refusal changes neither the array nor the account.
3. The new length depends on the length asked for and not on the lengths before: the next power of two or, where that
   would take more than a quarter of the free memory, the next 32nd of it. So an array is about as long for every cut of
   the input, and no array takes what the others need. Arrays that grow together may differ in length.

New memory is zero and not touched. A large array moves piece by piece, and each piece of the old array is given back
once it is copied (`own_memory`): the old and the new array together take no more than what is on the account. So an
array that has grown must not be read at its old place.

>>> from penstock.store.budget import Budget
>>> budget = Budget(1000)
>>> counts = ChargedArray(budget.account("counts"), np.int64)
>>> len(counts.fit(5)), len(counts.fit(17)), budget.used
(16, 32, 256)
>>> len(counts.fit(65)), budget.used  # 128 would take most of what there is
(72, 576)
>>> counts.clear()
>>> budget.used
0

Why: docs/decisions/charge-before-growth.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.store.budget import Account, Budget, GiveUp
from penstock.store.own_memory import give_back, zeros

LEAST = 16
_LEAST_STEP, _STEPS = 8, 32
_MOVED_BYTES = 1 << 20
SHARE_OF_FREE = 4
"""What grows takes more than it needs if that is at most this part of the memory that is free."""


class _Unlimited(Account):
    """For what lives only within one call, and for tests: every request is granted and none is counted."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Budget(1 << 62), "what is not counted")

    def try_resize(self, nbytes: int) -> bool:
        return True

    def on_need(self, give_up: GiveUp) -> None:
        pass


UNLIMITED: Account = _Unlimited()


def power_of_two(length: int) -> int:
    """The least power of two that is not below a length, and not below 16."""
    return max(LEAST, 1 << (length - 1).bit_length()) if length else 0


def step_of(length: int) -> int:
    """By how much something of such a length grows where memory is short."""
    return max(_LEAST_STEP, length // _STEPS)


class ChargedArray:
    """`width` are the lengths of further dimensions; new rows are filled with `fill`."""

    __slots__ = ("_account", "_fill", "_row_bytes", "array")

    def __init__(
        self, account: Account, dtype: DTypeLike, width: tuple[int, ...] = (), *, fill: int = 0, length: int = 0
    ) -> None:
        self._account = account
        self._fill = fill
        self.array: NDArray[Any] = np.zeros((0, *width), dtype)
        self._row_bytes = self.array.dtype.itemsize * int(np.prod(width, dtype=np.int64))
        if length:
            self.fit(length)

    def __len__(self) -> int:
        return len(self.array)

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def fit(self, length: int) -> NDArray[Any]:
        """The array, with room for so many rows at least."""
        if length > len(self.array):
            self.resize(self._length_for(length))
        return self.array

    def _length_for(self, length: int) -> int:
        wanted = power_of_two(length)
        if wanted > LEAST and (wanted - len(self.array)) * self._row_bytes > self._account.free // SHARE_OF_FREE:
            step = step_of(wanted)
            wanted = -(-length // step) * step
        return wanted

    def resize(self, length: int) -> None:
        """Exactly so many rows: those there are, as far as they go, and new ones behind them."""
        before = self.array
        if length == len(before):
            return
        if length > len(before):
            self._account.charge((length - len(before)) * self._row_bytes)
        kept = min(length, len(before))
        array = zeros((length, *before.shape[1:]), before.dtype)
        rows = max(1, _MOVED_BYTES // max(1, self._row_bytes))
        for start in range(0, kept, rows):
            moved = before[start : min(start + rows, kept)]
            array[start : start + len(moved)] = moved
            if length > len(before):
                give_back(moved)
        if self._fill:
            array[kept:] = self._fill
        self.array = array
        if length < len(before):
            self._account.release((len(before) - length) * self._row_bytes)

    def set(self, array: NDArray[Any]) -> None:
        """A copy of another array takes the place of this one, for example of a saved one."""
        more = array.size * self.array.dtype.itemsize - self.array.nbytes
        if more > 0:
            self._account.charge(more)
        self.array = np.array(array, self.array.dtype, order="C").reshape((-1, *self.array.shape[1:]))
        if more < 0:
            self._account.release(-more)

    def clear(self) -> None:
        """No rows, and nothing on the account."""
        self.resize(0)
