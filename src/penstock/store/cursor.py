"""A reader of a FIFO store: it shows rows in order, a block at a time.

Made by `FifoStore.cursor`. Invariant: `_first <= position < _end` if the block `_block` is the one of the next row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.columns import Argument
from penstock.store.blocks import Frame

if TYPE_CHECKING:
    from penstock.store.fifo import FifoStore


@dataclass(slots=True)
class View:
    """`count` rows from position `first` on."""

    first: int
    count: int
    columns: tuple[Argument, ...]

    def head(self, count: int) -> View:
        """The first `count` rows."""
        columns = tuple(
            [Argument(values[:count], None if valid is None else valid[:count]) for values, valid in self.columns]
        )
        return View(self.first, count, columns)


class Cursor:
    """Reads a store in order. `position` is the next row it will show."""

    __slots__ = ("__weakref__", "_block", "_columns", "_end", "_first", "_store", "position")

    def __init__(self, store: FifoStore, position: int, columns: Sequence[int] | None = None) -> None:
        self._store = store
        self._columns = tuple(range(len(store.columns)) if columns is None else columns)
        self.position = position
        self._block = self._first = self._end = 0
        self.seek(position)

    def view(self, stop: int) -> View:
        """The longest run of rows from here up to `stop` (exclusive) that lies in one block; empty at the head."""
        position = self.position
        store = self._store
        if stop > store.head:
            stop = store.head
        if position >= stop:
            nothing = [Argument(np.empty(0, store.columns[i].dtype), None) for i in self._columns]
            return View(position, 0, tuple(nothing))
        frame, first = self.block()
        if stop > self._end:
            stop = self._end
        return View(position, stop - position, frame.slice(position - first, stop - first, self._columns))

    def block(self) -> tuple[Frame, int]:
        """The block of the next row, which there is, and the position of its first row."""
        position, store = self.position, self._store
        if self._first <= position < self._end:
            return store.resident(self._block) or store.frame(self._block), self._first
        assert position >= store.tail, "the rows at this cursor were released"
        self._block, self._first, self._end = store.block_bounds(position)
        return store.frame(self._block), self._first

    @property
    def number(self) -> int:
        """The number of the block of the next row, or the one after the last block."""
        return self._block if self._first <= self.position < self._end else self._store.block_at(self.position)

    def is_in(self, block: Frame) -> bool:
        """Whether the next row is in this block, and that in the pool."""
        return self._first <= self.position < self._end and self._store.resident(self._block) is block

    def advance(self, count: int) -> bool:
        """Steps over `count` rows, read or not; returns whether the last row of the block that it was in is passed."""
        self.position += count
        assert self.position <= self._store.head
        return self.position == self._end

    def seek(self, position: int) -> None:
        """Goes to any position the store still has."""
        assert self._store.tail <= position <= self._store.head
        self.position = position
        self._block = self._first = self._end = 0
