"""The buffer pool of a window and its choice of victim: SlideM for one reader, Shared SlideM (SSM) for several.

Both papers' rules are one: keep the block whose next reference is nearest. A window's tail reads its blocks once, in
order, so with one reader the block needed last is the most recently written one, which is what SlideM spills. With
several readers a block's next reference comes from the nearest reader behind it, and the victim is the block for
which that distance is greatest. Blocks come back when a reader reaches them: reading ahead would take a frame from a
block that could have stayed, and costs more transfers as soon as the pool has more than two frames.

Invariants:
1. The pool never holds more than `capacity` frames, nor more bytes than its account was granted.
2. Two frames of the pool's own block size are set aside from the beginning: recent and ancient block.
3. The recent (open) block is never a victim; a victim is spilled before its frame is given up.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from penstock.errors import BudgetError
from penstock.store.blocks import Frame
from penstock.store.budget import Account


def choose_victim(resident: Sequence[int], readers: Sequence[int]) -> int:
    """The index in `resident` of the block to give up. Both are block numbers in rising order.

    A block behind every reader is not needed again; of the others the one farthest ahead of the reader that will
    meet it first.

    >>> choose_victim([4, 5, 9], [4])  # one reader: the most recently written
    2
    >>> choose_victim([4, 7, 8, 9], [4, 8])  # 7 is three blocks ahead of the first reader, 9 one ahead of the second
    1
    """
    if not readers:
        return len(resident) - 1
    if resident[0] < readers[0]:
        return 0
    victim, distance = len(resident) - 1, -1
    for index, reader in enumerate(readers):
        upto = bisect_left(resident, readers[index + 1]) if index + 1 < len(readers) else len(resident)
        if upto > 0 and resident[upto - 1] - reader > distance:
            victim, distance = upto - 1, resident[upto - 1] - reader
    return victim


class BufferPool:
    """Frames by block number. `spill` must put a frame's block on the device unless it is there already."""

    def __init__(self, account: Account, frame_bytes: int, capacity: int, spill: Callable[[int, Frame], None]) -> None:
        assert capacity >= 2
        self.frames: dict[int, Frame] = {}
        self._closed: list[int] = []
        self._account = account
        self._capacity = capacity
        self._spill = spill
        self._held = 0
        self._floor = 2 * frame_bytes
        account.resize(self._floor)

    @property
    def nbytes(self) -> int:
        return self._held

    @property
    def closed(self) -> Sequence[int]:
        """The numbers of the blocks that are full and in memory, rising."""
        return self._closed

    def make_room(self, nbytes: int, readers: Sequence[int]) -> None:
        """Gives up frames until one of this size can be added."""
        while True:
            try:
                if len(self.frames) < self._capacity:
                    self._reserve(self._held + nbytes)
                    return
            except BudgetError:
                if not self._closed:
                    raise
            index = choose_victim(self._closed, readers)
            block = self._closed[index]
            self._spill(block, self.frames[block])
            self.drop(block)

    def add(self, block: int, frame: Frame) -> None:
        """A closed block; `make_room` was called for it."""
        self.open(block, frame)
        insort(self._closed, block)

    def open(self, block: int, frame: Frame) -> None:
        """The recent block; `make_room` was called for it."""
        self.frames[block] = frame
        self._held += frame.nbytes

    def close(self, block: int) -> None:
        """The recent block is full; from now on it may be a victim."""
        insort(self._closed, block)

    def drop(self, block: int) -> None:
        """Gives up a frame, if there is one."""
        frame = self.frames.pop(block, None)
        if frame is None:
            return
        index = bisect_left(self._closed, block)
        if index < len(self._closed) and self._closed[index] == block:
            del self._closed[index]
        self._held -= frame.nbytes
        self._reserve(self._held)

    def clear(self) -> None:
        self.frames.clear()
        self._closed.clear()
        self._held = 0
        self._reserve(0)

    def _reserve(self, nbytes: int) -> None:
        wanted = max(self._floor, nbytes)
        if wanted != self._account.nbytes:
            self._account.resize(wanted)
