"""The directory of a FIFO store: which block holds a position, and where each block is on the device.

Blocks are numbered from zero in the order they were begun. All blocks of an *era* have one layout and are full but
the last of all, so a block's position follows from its number; a new era begins when a store is restored with another
block size. Eight bytes per block.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.store.blocks import BlockLayout

NOT_WRITTEN = -1
_NEVER = 1 << 63


class Era(NamedTuple):
    first_block: int
    first_position: int
    layout: BlockLayout


class Directory:
    """Blocks `[base, end)` exist."""

    def __init__(self) -> None:
        self.eras: list[Era] = []
        self.base = 0
        self.first_ends = _NEVER
        """The position after the last row of the first block, once it is full; the end of all time without blocks."""
        self._addresses = array("q")
        self._gone = 0

    @property
    def end(self) -> int:
        return self.base + len(self._addresses) - self._gone

    def begin(self, block: int, position: int, layout: BlockLayout) -> None:
        """A new last block, the one at the `end`, whose first row has this position."""
        if not self.eras or self.eras[-1].layout is not layout:
            self.eras.append(Era(block, position, layout))
        self._addresses.append(NOT_WRITTEN)
        if block == self.base:
            self.first_ends = position + layout.rows

    def drop_last(self) -> None:
        self._addresses.pop()
        if self._gone == len(self._addresses):
            self.first_ends = _NEVER

    def era(self, block: int) -> Era:
        eras = self.eras
        if block >= eras[-1].first_block:
            return eras[-1]
        return next(era for era in reversed(eras) if era.first_block <= block)

    def locate(self, position: int) -> int:
        """The number of the block that holds a position, or the one after the last."""
        return self.bounds(position)[0] if self.eras else self.base

    def bounds(self, position: int) -> tuple[int, int, int]:
        """The block that holds a position, its first position and the one after its last row."""
        era = self.eras[-1]
        if position < era.first_position:
            era = next(era for era in reversed(self.eras) if position >= era.first_position)
        rows = era.layout.rows
        block = (position - era.first_position) // rows
        first = era.first_position + block * rows
        return era.first_block + block, first, first + rows

    def locate_all(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the blocks that hold these positions, and the rows there."""
        last = self.eras[-1]
        blocks, rows = np.divmod(positions - last.first_position, last.layout.rows)
        blocks += last.first_block
        after = last.first_position
        for era in reversed(self.eras[:-1]):
            earlier = positions < after
            blocks[earlier], rows[earlier] = np.divmod(positions[earlier] - era.first_position, era.layout.rows)
            blocks[earlier] += era.first_block
            after = era.first_position
        return blocks, rows

    def first_position(self, block: int) -> int:
        era = self.era(block)
        return era.first_position + (block - era.first_block) * era.layout.rows

    def address(self, block: int) -> int:
        return self._addresses[block - self.base + self._gone]

    def set_address(self, block: int, address: int) -> None:
        self._addresses[block - self.base + self._gone] = address

    def drop_first(self) -> int:
        """The first block is gone; returns its address."""
        address = self._addresses[self._gone]
        self.base += 1
        self._gone += 1
        if self._gone > 64 and self._gone > len(self._addresses) // 2:
            del self._addresses[: self._gone]
            self._gone = 0
        while len(self.eras) > 1 and self.eras[1].first_block <= self.base:
            del self.eras[0]
        has_blocks = self._gone < len(self._addresses)
        self.first_ends = self.first_position(self.base) + self.eras[0].layout.rows if has_blocks else _NEVER
        return address

    def spans(self, end: int) -> Iterator[tuple[int, int, BlockLayout]]:
        """First position, number of blocks and layout of each era, up to block `end`."""
        for index, era in enumerate(self.eras):
            first = max(era.first_block, self.base)
            stop = self.eras[index + 1].first_block if index + 1 < len(self.eras) else end
            if stop > first:
                yield self.first_position(first), stop - first, era.layout

    def addresses(self) -> Iterator[int]:
        return iter(self._addresses[self._gone :])
