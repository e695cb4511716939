"""FIFO and NO-UPDATE: items lie in the engine's own FIFO store, and the oldest leave first.

New items are collected as tuples and enter the FIFO store together, as columns. From there on it pages them: what
does not fit its pool is in blocks on the device. NO-UPDATE is the store from which nothing is released.

Invariants:
1. Items before `_new_first` are in the FIFO store, at the position `id - _shift`; the others are in `_new`. `_shift`
   counts the items that left before they could enter.
2. The FIFO store was new: all its blocks have the same size, so arithmetic is all the id index there is.
3. Releasing items takes no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.instruments import Account, FifoStore, Frame, Row, Value
from penstock_bench.storage_manager.indices import ValueIndices
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.storage import NEW_ROWS, Block, NewRows, TransientStorage


class FifoStorage(TransientStorage):
    """`rows` is a store of the codec's columns, `new_items` the account of what is not yet in it."""

    in_order = True

    def __init__(self, rows: FifoStore, codec: ItemCodec, indices: ValueIndices, new_items: Account) -> None:
        self.rows = rows
        super().__init__(codec, indices)
        assert rows.head == 0
        self.first_id = self.next_id = self._new_first = 0
        self._shift = 0
        self._factor = rows.block_rows
        self._new: list[Row] = []
        self.rows_at_once = min(NEW_ROWS, rows.block_rows)
        self.block_bytes = rows.block_rows * codec.width
        new_items.resize(self.rows_at_once * codec.row_bytes)

    def append(self, row: Row) -> int:
        if self._indices.any:
            self._indices.reserve()
        if len(self._new) >= self.rows_at_once:
            self._enter()
        self._new.append(row)
        item_id = self.next_id
        self.next_id = item_id + 1
        if self._indices.any:
            self._indices.insert(item_id, row)
        return item_id

    def row(self, item_id: int) -> Row | None:
        if not self.first_id <= item_id < self.next_id:
            return None
        if item_id >= self._new_first:
            return self._new[item_id - self._new_first]
        block, index = divmod(item_id - self._shift, self._factor)
        return self.codec.row(self.rows.resident(block) or self.rows.frame(block), index)

    def holds(self, item_id: int) -> bool:
        return self.first_id <= item_id < self.next_id

    def cell(self, item_id: int, place: int) -> Value:
        if item_id >= self._new_first:
            return self._new[item_id - self._new_first][place]
        block, index = divmod(item_id - self._shift, self._factor)
        return self.codec.cell(self.rows.resident(block) or self.rows.frame(block), index, place)

    def block(self, item_id: int) -> Block:
        if item_id >= self._new_first:
            return NewRows(self._new_first, self._new)
        block = (item_id - self._shift) // self._factor
        frame = self.rows.resident(block) or self.rows.frame(block)
        first = block * self._factor + self._shift
        return FrameRows(self.codec, frame, first, min(first + self._factor, self._new_first))

    def release_upto(self, item_id: int) -> None:
        if item_id <= self.first_id:
            return
        position = min(item_id, self._new_first) - self._shift
        if position > self.rows.tail:
            if self.codec.has_texts:
                for view in self.rows.scan(self.rows.tail, position):
                    self.codec.forget(view.columns)
            self.rows.release(position)
        self.first_id = item_id
        if self._indices.any:
            self._indices.collect(self.next_id - item_id, lambda entry: entry >= item_id)

    def _enter(self) -> None:
        """The new rows become columns of the FIFO store, but for those that have left."""
        left = max(0, self.first_id - self._new_first)
        if left < len(self._new):
            columns = self.codec.to_columns(self._new[left:])
            try:
                self.rows.append(columns)
            except Exception:
                self.codec.forget(columns)
                raise
        self._shift += left
        self._new_first = self.next_id
        self._new = []


class FrameRows(Block):
    """The rows [first, stop) of a block in columns. It keeps the frame alive: readers hold one at a time."""

    def __init__(self, codec: ItemCodec, frame: Frame, first: int, stop: int) -> None:
        self.first = first
        self.stop = stop
        self._codec = codec
        self._frame = frame

    def row(self, item_id: int) -> Row | None:
        return self._codec.row(self._frame, item_id - self.first)

    def cell(self, item_id: int, place: int) -> Value:
        return self._codec.cell(self._frame, item_id - self.first, place)

    def rows(self, start: int, limit: int) -> tuple[Sequence[int], list[Row], int]:
        stop = min(self.stop, start + limit)
        return range(start, stop), self._codec.rows(self._frame, start - self.first, stop - self.first), stop
