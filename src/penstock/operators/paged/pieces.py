"""Where the rows of a shard stand on the device: its pieces, in the order of their rows.

Invariants:
1. The table has a row of 56 bytes for each piece, on the account: it is what grows with the rows in the window.
2. Pieces before `_begin` are gone. Their rows of the table are used again when half of the table is of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.store.blobs import Blob
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray

_COLUMNS = 7
_BYTES, _FIRST_TIME, _LAST_TIME = 1, 5, 6


class Piece(NamedTuple):
    """Rows of one shard that stand together on the device. `first` is the number of the first row in its shard."""

    blob: Blob
    rows: int
    first: int
    first_time: int
    last_time: int


class Pieces:
    def __init__(self, account: Account) -> None:
        self._array = ChargedArray(account, np.int64, (_COLUMNS,))
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def table(self) -> NDArray[np.int64]:
        """A row for each piece."""
        table: NDArray[np.int64] = self._array.array[self._begin : self._end]
        return table

    @property
    def nbytes(self) -> int:
        """What they take on the device."""
        return int(self.table[:, _BYTES].sum())

    def set(self, table: NDArray[np.int64]) -> None:
        self._array.set(table)
        self._begin, self._end = 0, len(table)

    def make_room(self, pieces: int = 1) -> None:
        """There is room for so many more."""
        if self._end + pieces > len(self._array) and 2 * self._begin >= self._end:
            table = self.table.copy()
            self._array.array[: len(table)] = table
            self._begin, self._end = 0, len(table)
        self._array.fit(self._end + pieces)

    def append(self, piece: Piece) -> None:
        """There is room for it."""
        self._array.array[self._end] = (*piece.blob, *piece[1:])
        self._end += 1

    @property
    def last(self) -> Piece | None:
        return next(_pieces(self.table[-1:]), None)

    def pop(self) -> None:
        """The last one is gone."""
        self._end -= 1

    @property
    def first_time(self) -> int | None:
        """That of the first row; None if there is none."""
        return int(self._array.array[self._begin, _FIRST_TIME]) if len(self) else None

    def between(self, least_time: int, before_time: int) -> Iterator[Piece]:
        """Those that may have rows from one time on and before another."""
        table = self.table
        begin = int(np.searchsorted(table[:, _LAST_TIME], least_time))
        end = int(np.searchsorted(table[:, _FIRST_TIME], before_time))
        yield from _pieces(table[begin:end])

    def pop_before(self, time: int) -> Iterator[Piece]:
        """Those with older rows alone, which are gone from here on."""
        table = self.table
        count = int(np.searchsorted(table[:, _LAST_TIME], time))
        self._begin += count
        yield from _pieces(table[:count].copy())

    def all(self) -> Iterator[Piece]:
        yield from _pieces(self.table)

    def close(self) -> None:
        """There are none any more."""
        self._array.clear()
        self._begin = self._end = 0


def _pieces(table: NDArray[np.int64]) -> Iterator[Piece]:
    for address, nbytes, step, *rest in table.tolist():
        yield Piece(Blob(address, nbytes, step), *rest)
