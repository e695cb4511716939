"""Where the spilled rows of `queues` are: blocks, in rounds, each round sorted by queue.

Every block knows the first and the last queue in it, and every round has one bit per queue that says whether the queue
has rows there. That is enough to find a queue's next block without reading one in vain, and takes a few bytes per
block and a bit per queue and round, however many queues share a block.

Invariants:
1. Blocks are numbered in the order in which they were written; those of a round are neighbours, sorted by queue.
2. A block with no live rows is dead: it is off the device, and its number is dropped once half of all are dead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock.components import component
from penstock.store.queue_kernels import ADDRESS, BLOCK_WORDS, LIVE, ROUND, Bits, Ids, locate

_FEW = 64
"""Fewer dead blocks than this are not worth renumbering."""


class Written(NamedTuple):
    """A block on the device."""

    address: int
    rows: int
    first: int
    last: int


@component("Rounds")
class Rounds:
    def __init__(self) -> None:
        self.count = 0
        self.blocks: Int64s = np.zeros((0, BLOCK_WORDS), np.int64)
        self.ends: Int64s = np.zeros(0, np.int64)
        self.bits: Bits = np.zeros((0, 0), np.uint8)
        self._rounds = 0
        self._dead = 0

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes + self.ends.nbytes + self.bits.nbytes

    def nbytes_with(self, blocks: int, queues: int) -> int:
        """The bytes once there is room for one more round of so many blocks, of queues below `queues`."""
        lines, rounds, width = self._shape(blocks, queues)
        return 8 * (BLOCK_WORDS * lines + rounds) + rounds * width

    def _shape(self, blocks: int, queues: int) -> tuple[int, int, int]:
        lines, rounds, width = len(self.blocks), len(self.ends), max(self.bits.shape[1], (queues + 7) // 8)
        if self.count + blocks > lines:
            lines = max(16, self.count + blocks, lines + lines // 4)
        if self._rounds == rounds:
            rounds = max(16, rounds + rounds // 2)
        return lines, rounds, width

    def make_room(self, blocks: int, queues: int) -> None:
        lines, rounds, width = self._shape(blocks, queues)
        self.blocks = _larger(self.blocks, (lines, BLOCK_WORDS))
        self.ends = _larger(self.ends, (rounds,))
        self.bits = _larger(self.bits, (rounds, width))

    def add(self, written: list[Written], capacity: int, ids: Ids) -> int:
        """A round of blocks with these queues; there is room for it. Returns the number of the first block."""
        first = self.count
        for block, (address, rows, least, greatest) in enumerate(written, first):
            self.blocks[block] = address, rows, least, greatest, self._rounds, capacity
        self.count += len(written)
        self.ends[self._rounds] = self.count
        held = np.zeros(8 * self.bits.shape[1], np.bool_)
        held[ids] = True
        self.bits[self._rounds] = np.packbits(held, bitorder="little")
        self._rounds += 1
        return first

    def locate(self, queue: int, block: int) -> int:
        found = locate(queue, block, self.count, self.blocks, self.ends, self.bits)
        assert found < self.count, "the queue has rows on the device"
        return found

    def died(self, block: int) -> int:
        """The block has no live rows any more; returns the address to free."""
        self._dead += 1
        return int(self.blocks[block, ADDRESS])

    def renumber(self) -> Int64s | None:
        """Drops the numbers of dead blocks if there are many. Returns for each old number (and the one after the last)
        the new number of the first block from there on."""
        if self._dead < _FEW or 2 * self._dead < self.count:
            return None
        alive = self.blocks[: self.count, LIVE] > 0
        moved = np.concatenate([[0], np.cumsum(alive)])
        blocks = self.blocks[: self.count][alive]
        used, blocks[:, ROUND] = np.unique(blocks[:, ROUND], return_inverse=True)
        self.ends[: len(used)] = moved[self.ends[used]]
        self.bits[: len(used)] = self.bits[used]
        self.blocks[: len(blocks)] = blocks
        self.count, self._rounds, self._dead = len(blocks), len(used), 0
        return moved

    @property
    def rows(self) -> int:
        """Rows on the device that some queue still needs."""
        return int(self.blocks[: self.count, LIVE].sum())

    @property
    def live_blocks(self) -> int:
        return self.count - self._dead

    def snapshot(self) -> dict[str, Any]:
        return {
            "blocks": self.blocks[: self.count],
            "ends": self.ends[: self._rounds],
            "bits": self.bits[: self._rounds],
            "dead": self._dead,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.blocks, self.ends, self.bits = snapshot["blocks"], snapshot["ends"], snapshot["bits"]
        self.count, self._rounds, self._dead = len(self.blocks), len(self.ends), snapshot["dead"]


def _larger(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in the upper left corner of one of this shape."""
    if array.shape == shape:
        return array
    grown = np.zeros(shape, array.dtype)
    grown[tuple(slice(0, size) for size in array.shape)] = array
    return grown
