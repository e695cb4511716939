"""Blocks of rows that may be read and changed in any order: in memory while the budget has room, else on a device.

Invariants:
1. A block is in memory, on the device, or both; one that was changed in memory is no longer on the device.
2. The account holds the frames in memory: a part of what it could get, since other accounts, which cannot page, need
   room to grow. When the frames are used up, the owner first collects items that are gone; then the block that was used
   longest ago goes to the device. One frame is set aside from the beginning.
3. The owner knows how many rows of a block are in use.

Used by the storages of RANDOM and IN-PLACE stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import BudgetError
from penstock.instruments import Account, Argument, BlockDevice, BlockLayout, Frame
from penstock_bench.storage_manager.items import ItemCodec

_SHARE = 2
_LEAST_FRAMES = 2


class PagedBlock:
    """One block; `PagedBlocks` alone looks at its insides."""

    __slots__ = ("address", "frame", "used")

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.address: int | None = None
        self.used = 0

    @property
    def is_resident(self) -> bool:
        return self.frame is not None


class PagedBlocks:
    """Blocks have room for `rows` rows, or as many as fit the device. `collect` frees blocks of the owner's that hold
    nothing any more."""

    def __init__(
        self, codec: ItemCodec, device: BlockDevice, account: Account, rows: int, collect: Callable[[], None]
    ) -> None:
        self._device = device
        self._account = account
        self._layout = BlockLayout(codec.columns, min(rows * codec.width + 16 * len(codec.columns), device.capacity))
        self._collect = collect
        self._resident: set[PagedBlock] = set()
        self._clock = 0
        account.resize(self._layout.frame_bytes)

    @property
    def block_rows(self) -> int:
        return self._layout.rows

    def reserve(self, also: Callable[[], None] | None = None) -> None:
        """Makes room for one more block and for what `also` asks for; `BudgetError` and no change if there is none."""
        collected = False
        while True:
            try:
                if also is not None:
                    also()
                if self._may_grow():
                    self._resize(len(self._resident) + 1)
                    return
            except BudgetError:
                if collected and not self._resident:
                    raise
            if collected:
                self._spill(min(self._resident, key=lambda block: block.used))
            else:
                collected = True
                self._collect()

    def _may_grow(self) -> bool:
        frames = len(self._resident) + 1
        reach = self._account.nbytes + self._account.free
        return frames <= _LEAST_FRAMES or frames * self._layout.frame_bytes <= reach // _SHARE

    def add(self, columns: Sequence[Argument]) -> PagedBlock:
        """A new block with these rows at its front; `reserve` was called for it."""
        frame = self._layout.new_frame()
        frame.write(columns, 0, len(columns[0].values))
        frame.count = self._layout.rows
        block = PagedBlock()
        self._keep(block, frame)
        return block

    def frame(self, block: PagedBlock) -> Frame:
        """The block in memory, for reading."""
        self._clock += 1
        block.used = self._clock
        frame = block.frame
        if frame is None:
            assert block.address is not None
            self.reserve()
            frame = self._layout.open(self._device.read(block.address))
            self._keep(block, frame)
        return frame

    def changing(self, block: PagedBlock) -> Frame:
        """The block in memory, about to be changed."""
        frame = self.frame(block)
        if block.address is not None:
            self._device.free(block.address)
            block.address = None
        return frame

    def drop(self, block: PagedBlock) -> None:
        if block.address is not None:
            self._device.free(block.address)
            block.address = None
        block.frame = None
        self._resident.discard(block)
        self._resize(len(self._resident))

    def _keep(self, block: PagedBlock, frame: Frame) -> None:
        block.frame = frame
        self._resident.add(block)

    def _spill(self, block: PagedBlock) -> None:
        assert block.frame is not None
        if block.address is None:
            block.address = self._device.write(self._layout.seal(block.frame))
        block.frame = None
        self._resident.discard(block)
        self._resize(len(self._resident))

    def _resize(self, frames: int) -> None:
        nbytes = max(1, frames) * self._layout.frame_bytes
        if nbytes != self._account.nbytes:
            self._account.resize(nbytes)
