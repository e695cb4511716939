"""The FIFO repository: rows enter at the head, cursors read them in order, the tail lets them go.

Rows live in columnar blocks (`blocks`). The block being filled and those that readers need next are in a buffer pool
(`slidem`); all others are on a block device, written once. One thread at a time uses a store.

Invariants:
1. Positions are int64 and rise by one per row since the stream began. `head` is the position of the next row to
   enter, `tail` that of the oldest row kept; `tail <= cursor.position <= head`.
2. A row that a view has shown never changes, not even after its release: a view keeps its memory alive.
3. `append` takes all its rows or, if it raises, none; after any `StorageError` the store can be used as before.
4. All blocks but the last are full.
5. A block that is on the device and in the pool is *clean*: it is dropped without a write, so a block is written once.
   There is one exception. If all readers of a block are close behind when it is read back, it gives up its place on the
   device at once, so that the file is no larger than the rows; if it has to leave the pool after all, it is written
   again. This is not done after a snapshot, which names blocks by their place.
6. The memory of a frame that is given up or released serves the next block if no view was made of it: the lane writes
   and reads rows by their addresses.

Called by the window operators, through the stores that `manager` makes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools
from penstock.columns import Argument, Values
from penstock.components import component
from penstock.errors import CheckpointError, StorageError
from penstock.store.blocks import BlockLayout, Frame
from penstock.store.blocks import ColumnSpec as ColumnSpec
from penstock.store.budget import Account
from penstock.store.cursor import Cursor as Cursor
from penstock.store.cursor import View as View
from penstock.store.device import BlockDevice
from penstock.store.directory import NOT_WRITTEN, Directory
from penstock.store.gathering import gather
from penstock.store.slidem import BufferPool


@dataclass
class StoreMetrics:
    """Transfers to and from the device, and how often a reader found its next block in the pool."""

    blocks_written: int = 0
    blocks_read: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    pool_hits: int = 0
    pool_misses: int = 0

    def add(self, other: StoreMetrics) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@component("FifoStore")
class FifoStore:
    """A store over `columns` with a pool of `pool_blocks` frames. `by_row` is for rows that are read from anywhere:
    they are gathered sooner, and columns are seen with gaps.

    >>> from penstock.store.budget import Budget
    >>> from penstock.store.memory_device import MemoryDevice
    >>> prices = ColumnSpec("price", np.dtype(np.float64), nullable=False)
    >>> store = FifoStore([prices], MemoryDevice(), Budget(1 << 20).account("window"))
    >>> store.append([Argument(np.array([1.5, 2.5, 3.5]), None)])
    0
    >>> oldest = store.cursor()
    >>> oldest.view(2).columns[0].values
    array([1.5, 2.5])
    """

    def __init__(
        self,
        columns: Sequence[ColumnSpec],
        device: BlockDevice,
        account: Account,
        *,
        block_size: int = 65536,
        pool_blocks: int = 2,
        by_row: bool = False,
    ) -> None:
        assert columns, "a store has at least one column"
        self.columns = tuple(columns)
        self.device = device
        self.metrics = StoreMetrics()
        self.tail = 0
        self.head = 0
        self._account = account
        self._layout = BlockLayout(self.columns, min(block_size, device.capacity), by_row=by_row)
        self._by_row = by_row
        self._directory = Directory()
        self.pool = BufferPool(account, self._layout.frame_bytes, pool_blocks, self._spill, self._readers)
        self._cursors: list[ref[Cursor]] = []
        self._open: Frame | None = None
        self._spare: Frame | None = None
        """The frame of the last block that was released, if the pool has set its memory aside."""
        self._on_device = 0
        self._has_snapshot = False
        self._oldest_ends = 0  # no block ends before this position

    @property
    def block_rows(self) -> int:
        """The block factor: rows in a block."""
        return self._layout.rows

    @property
    def is_paged(self) -> bool:
        """Whether some block is on the device."""
        return self._on_device > 0

    @property
    def nbytes_total(self) -> int:
        """Bytes of the blocks in memory and on the device; a clean block counts twice."""
        return self.pool.nbytes + self._on_device

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, columns: Sequence[Argument]) -> int:
        """Adds a batch, one argument per column with exactly its dtype; returns the position of its first row."""
        first = self.head
        count = len(columns[0].values)
        frame = self._open
        if frame is not None and frame.count + count <= self._layout.rows:
            frame.write(columns, 0, count)
            self.head = first + count
        elif count:
            self._append_across_blocks(columns, count)
        return first

    def block_with_room(self) -> Frame:
        """The open block if it has room for a row, else a new one. Rows may be written into it behind its last one.
        They count from `grow` on."""
        frame = self._open
        return self._begin_block(self.head) if frame is None or frame.count == self._layout.rows else frame

    def offset_of(self, column: int) -> int:
        """Where the values of a column begin in a new block."""
        return self._layout.value_offsets[column]

    def grow(self, rows: int) -> None:
        """So many rows have been written behind the last one of the open block."""
        assert self._open is not None
        self._open.count += rows
        self.head += rows

    def _append_across_blocks(self, columns: Sequence[Argument], count: int) -> None:
        origin, filled, blocks = self._open, self._open.count if self._open else 0, self._directory.end
        rows = self._layout.rows
        done = 0
        try:
            while done < count:
                frame = self._open
                if frame is None or frame.count == rows:
                    frame = self._begin_block(self.head + done)
                step = min(rows - frame.count, count - done)
                frame.write(columns, done, done + step)
                done += step
        except Exception:
            self._take_back(origin, filled, blocks)
            raise
        self.head += count

    def _begin_block(self, position: int) -> Frame:
        """Procedure 1 of SlideM: the recent block is full; a frame is made free and a new recent block begins."""
        layout, directory, pool = self._layout, self._directory, self.pool
        block = directory.end
        is_first, self._open = self._open is None, None
        frame = self._open = self._frame_in(pool.turn(-1 if is_first else block - 1, pool.frame_bytes))
        directory.begin(block, position, layout)
        pool.open(block, frame)
        return frame

    def _frame_in(self, given_up: Frame | None) -> Frame:
        """An empty frame: in the memory of one that was given up or released, or new."""
        frame, self._spare = self._spare, None
        if given_up is not None:
            frame = self._reusable(given_up)
        if frame is None:
            return self._layout.new_frame()
        frame.count = 0
        return frame

    def _reusable(self, frame: Frame) -> Frame | None:
        """A frame that the pool has dropped, if only the store has it and its memory is set aside."""
        has_views = not (self.device.copies and frame.is_unseen and frame.layout is self._layout)
        return None if has_views or not self.pool.has_set_aside(frame.nbytes) else frame

    def _take_back(self, origin: Frame | None, filled: int, blocks: int) -> None:
        """Undoes a failed append: `origin` is the open block again, with `filled` rows, and the last of `blocks`."""
        directory = self._directory
        while directory.end > blocks:
            self._forget(directory.end - 1)
            directory.drop_last()
        if origin is not None:
            self._forget(blocks - 1)
            origin.count = filled
            self.pool.make_room(origin.nbytes)
            self.pool.open(blocks - 1, origin)
        self._open = origin

    # --- reading -----------------------------------------------------------------------------------------------------

    def cursor(self, position: int | None = None, columns: Sequence[int] | None = None) -> Cursor:
        """A reader from `position` on, by default the tail, that shows the columns at these places, by default all.
        The pool is managed for the cursors that are alive."""
        cursor = Cursor(self, self.tail if position is None else position, columns)
        self._cursors.append(ref(cursor, self._cursors.remove))
        return cursor

    def scan(self, start: int, stop: int) -> Iterator[View]:
        """Views of rows [start, stop), reading blocks past the pool: one block at a time is in memory for it."""
        assert self.tail <= start <= stop <= self.head
        while start < stop:
            block = self._directory.locate(start)
            frame = self.pool.frames.get(block)
            if frame is None:
                frame = self._read(block)
            first = self._directory.first_position(block)
            upto = min(stop, first + frame.count)
            yield View(start, upto - start, frame.slice(start - first, upto - first))
            start = upto

    def gather(self, positions: NDArray[np.int64], columns: Sequence[int]) -> tuple[Argument, ...]:
        """Rows from anywhere in the store, in the order asked for; `columns` are the places of those wanted. Blocks
        that are not in the pool are read past it, each once."""
        count = len(positions)
        values = [np.empty(count, self.columns[column].dtype) for column in columns]
        valid: list[Bools | None] = [None] * len(values)
        if count == 0:
            return tuple(Argument(v, None) for v in values)
        assert self.tail <= positions.min()
        assert positions.max() < self.head
        blocks, rows = self._directory.locate_all(positions)
        order: NDArray[np.int64] | None = None
        first, last = int(blocks.min()), int(blocks.max())
        if self._gather_resident(blocks, rows, first, last, columns, values):
            return tuple(Argument(v, None) for v in values)
        if (blocks[1:] < blocks[:-1]).any():
            # few blocks: numbers of 16 bits are sorted digit by digit, which takes a quarter of the time
            order = np.argsort(
                (blocks - first).astype(np.uint16 if last - first < 1 << 16 else np.int64), kind="stable"
            )
            blocks, rows = blocks[order], rows[order]
        starts = np.flatnonzero(blocks[1:] != blocks[:-1]) + 1
        bounds, numbers = [0, *starts.tolist(), count], [first, *blocks[starts].tolist()]
        for block, (start, stop) in zip(numbers, itertools.pairwise(bounds), strict=True):
            frame = self.pool.frames.get(block) or self._read(block)
            own = rows[start:stop]
            for place, column in enumerate(columns):
                values[place][start:stop] = frame.values[column][own]
                known = frame.valid[column]
                if known is not None:
                    mask = valid[place]
                    if mask is None:
                        mask = valid[place] = np.ones(count, np.bool_)
                    known.take(own, out=mask[start:stop], mode="clip")
        if order is None:
            return tuple(Argument(v, m) for v, m in zip(values, valid, strict=True))
        return tuple(
            Argument(_scattered(v, order), None if m is None else _scattered(m, order))
            for v, m in zip(values, valid, strict=True)
        )

    def _gather_resident(
        self,
        blocks: NDArray[np.int64],
        rows: NDArray[np.int64],
        first: int,
        last: int,
        columns: Sequence[int],
        values: Sequence[Values],
    ) -> bool:
        """Fills in the values where all blocks are in memory, of one layout and without NULLs; else does nothing."""
        if last - first > len(rows) or self._directory.era(first) is not self._directory.era(last):
            return False
        resident = self.pool.frames
        frames = [resident[block] for block in range(first, last + 1) if block in resident]
        if len(frames) <= last - first:
            return False
        nullable = [column for column in columns if self.columns[column].nullable]
        if nullable and any(frame.valid[column] is not None for frame in frames for column in nullable):
            return False
        layout = self._directory.era(first).layout
        addresses = np.array([frame.address for frame in frames], np.int64)
        places = [(layout.value_offsets[column], layout.steps[column]) for column in columns]
        gather(addresses, blocks, first, rows, places, values)
        return True

    def release(self, position: int) -> None:
        """Rows before `position` are gone. Cheap when no block ends there: call it after every `advance`, since a
        block that readers have passed but that is not released must be kept, if need be on the device."""
        assert self.tail <= position <= self.head
        self.tail = position
        if position < self._oldest_ends:
            return
        directory = self._directory
        while (ends := directory.first_ends) <= position:
            era, block = directory.eras[0], directory.base
            frame = self.pool.drop(block)
            self._spare = None if frame is None else self._reusable(frame)
            address = directory.drop_first()
            if address != NOT_WRITTEN:
                self.device.free(address)
                self._on_device -= era.layout.nbytes
        if directory.base == directory.end:
            self._open, ends = None, position
        self._oldest_ends = ends

    def frame(self, block: int) -> Frame:
        """The block for a cursor that enters it, from the pool or, in the place of a victim, from the device."""
        frame = self.pool.frames.get(block)
        if frame is not None:
            self.metrics.pool_hits += 1
            return frame
        self.metrics.pool_misses += 1
        self.pool.make_room(self._directory.era(block).layout.frame_bytes)
        frame = self._read(block)
        stays = not self._has_snapshot and self.pool.stays(block)
        if stays:
            self._free(block)
        self.pool.add(block, frame, clean=not stays)
        return frame

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything but the closed blocks, which it puts on the device. Then, in this order: `device.sync()`, write
        the snapshot durably, `device.commit()`."""
        self._has_snapshot = True
        self.pool.spill_all()
        directory = self._directory
        rows = self._open.slice(0, self._open.count) if self._open is not None else ()
        closed = directory.end - (self._open is not None)
        eras = [
            {"first": first, "blocks": blocks, "size": layout.size} for first, blocks, layout in directory.spans(closed)
        ]
        addresses = np.fromiter(directory.addresses(), np.int64)[: closed - directory.base]
        return {
            "columns": [[column.name, column.dtype.str, column.nullable] for column in self.columns],
            "tail": self.tail,
            "head": self.head,
            "eras": eras,
            "addresses": addresses,
            "open": [[values, valid] for values, valid in rows],
            "device": self.device.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continues from a snapshot of a store with the same columns, whatever its block and pool size.

        Cursors that exist are put to the tail; their owners move them with `seek`.
        """
        if snapshot["columns"] != [[column.name, column.dtype.str, column.nullable] for column in self.columns]:
            raise CheckpointError(
                f"the saved window has the columns {[name for name, *_ in snapshot['columns']]} and this one "
                f"has {[column.name for column in self.columns]}, or their types differ: it belongs to another query"
            )
        self._has_snapshot = True
        self.pool.clear()
        self.device.restore(snapshot["device"])
        self._directory = directory = Directory()
        addresses = iter(snapshot["addresses"].tolist())
        self._on_device = self._oldest_ends = 0
        position = snapshot["tail"]
        for era in snapshot["eras"]:
            layout = self._layout
            if era["size"] != layout.size:
                layout = BlockLayout(self.columns, era["size"], by_row=self._by_row)
            for index in range(era["blocks"]):
                block = directory.end
                directory.begin(block, era["first"] + index * layout.rows, layout)
                directory.set_address(block, next(addresses))
                self._on_device += layout.nbytes
            position = era["first"] + era["blocks"] * layout.rows
        self._open = None
        opened = [Argument(values, valid) for values, valid in snapshot["open"]]
        self.tail = snapshot["tail"]
        self.head = snapshot["head"] - (len(opened[0].values) if opened else 0)
        assert not snapshot["eras"] or position == self.head
        if opened:
            self.append(opened)
        self.release(self.tail)
        for cursor in self._live_cursors():
            cursor.seek(self.tail)

    def close(self) -> None:
        """Gives the memory back; what is on the device stays there."""
        self.pool.clear()
        self._open = None
        self._account.close()

    # --- transfers ---------------------------------------------------------------------------------------------------

    def block_bounds(self, position: int) -> tuple[int, int, int]:
        """The block that holds a position, its first position and the one after its last row."""
        return self._directory.bounds(position)

    def block_at(self, position: int) -> int:
        """The number of the block that holds a position, or the one after the last."""
        return self._directory.locate(position)

    def resident(self, block: int) -> Frame | None:
        return self.pool.frames.get(block)

    def _readers(self) -> list[int]:
        """The blocks at which cursors stand, rising, each once."""
        if len(self._cursors) == 1 and (only := self._cursors[0]()) is not None:
            return [only.number]
        return sorted({cursor.number for cursor in self._live_cursors()})

    def _live_cursors(self) -> list[Cursor]:
        return [cursor for reference in self._cursors if (cursor := reference()) is not None]

    def _spill(self, block: int, frame: Frame) -> None:
        directory, metrics = self._directory, self.metrics
        if directory.address(block) == NOT_WRITTEN:
            payload = frame.layout.seal(frame)
            directory.set_address(block, self.device.write(payload))
            self._on_device += len(payload)
            metrics.blocks_written += 1
            metrics.bytes_written += len(payload)

    def _read(self, block: int) -> Frame:
        layout = self._directory.era(block).layout
        try:
            room = self._frame_in(None) if layout is self._layout else layout.new_frame()
            frame = layout.open(self.device.read(self._directory.address(block), room.payload), room)
        except StorageError as error:
            first = self._directory.first_position(block)
            rows = f"rows {first:,} to {first + layout.rows - 1:,}"
            raise StorageError(f"{error}\n  it holds the window's {rows}") from error
        self.metrics.blocks_read += 1
        self.metrics.bytes_read += layout.nbytes
        return frame

    def _forget(self, block: int) -> None:
        """Neither the pool nor the device keeps the block."""
        self.pool.drop(block)
        self._free(block)

    def _free(self, block: int) -> None:
        """The device need not keep the block."""
        address = self._directory.address(block)
        if address != NOT_WRITTEN:
            self.device.free(address)
            self._directory.set_address(block, NOT_WRITTEN)
            self._on_device -= self._directory.era(block).layout.nbytes


def _scattered(ordered: Values, order: NDArray[np.int64]) -> Values:
    """Values at the places that they were sorted from."""
    found = np.empty_like(ordered)
    found[order] = ordered
    return found
