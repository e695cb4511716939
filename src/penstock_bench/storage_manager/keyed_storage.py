"""IN-PLACE: items never leave; a new one takes the place of an old one with the same key, or is added.

Items are spread over many blocks, so that some can be on the device while another is written. Which items have a key
is a matter of indices.

Invariants:
1. All blocks are full; the items after them are in `_new`. An item's block follows from its id.
"""

from __future__ import annotations

from penstock.instruments import Row, Value
from penstock_bench.storage_manager.fifo_storage import FrameRows
from penstock_bench.storage_manager.indices import ValueIndices
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.paged_blocks import PagedBlock, PagedBlocks
from penstock_bench.storage_manager.storage import NEW_ROWS, Block, NewRows, Place, TransientStorage


class KeyedStorage(TransientStorage):
    def __init__(self, place: Place, codec: ItemCodec, indices: ValueIndices) -> None:
        super().__init__(codec, indices)
        self.first_id = self.next_id = 0
        account = place.account("blocks")
        self._blocks = PagedBlocks(codec, place.device(), account, NEW_ROWS, lambda: None)
        self._closed: list[PagedBlock] = []
        self._new: list[Row] = []
        self.rows_at_once = self._factor = min(NEW_ROWS, self._blocks.block_rows)
        self.block_bytes = self._blocks.block_rows * codec.width
        place.account("new items").resize(self._factor * codec.row_bytes)

    def append(self, row: Row) -> int:
        if self._indices.any:
            self._indices.reserve()
        if len(self._new) >= self._factor:
            self._blocks.reserve()
            self._closed.append(self._blocks.add(self.codec.to_columns(self._new)))
            self._new = []
        self._new.append(row)
        item_id = self.next_id
        self.next_id = item_id + 1
        if self._indices.any:
            self._indices.insert(item_id, row)
        return item_id

    def row(self, item_id: int) -> Row | None:
        if not 0 <= item_id < self.next_id:
            return None
        block, index = divmod(item_id, self._factor)
        if block == len(self._closed):
            return self._new[index]
        return self.codec.row(self._blocks.frame(self._closed[block]), index)

    def holds(self, item_id: int) -> bool:
        return 0 <= item_id < self.next_id

    def cell(self, item_id: int, place: int) -> Value:
        block, index = divmod(item_id, self._factor)
        if block == len(self._closed):
            return self._new[index][place]
        return self.codec.cell(self._blocks.frame(self._closed[block]), index, place)

    def block(self, item_id: int) -> Block:
        block = item_id // self._factor
        first = block * self._factor
        if block == len(self._closed):
            return NewRows(first, self._new)
        return FrameRows(self.codec, self._blocks.frame(self._closed[block]), first, first + self._factor)

    def replace(self, item_id: int, row: Row) -> None:
        old = self.row(item_id)
        assert old is not None
        block, index = divmod(item_id, self._factor)
        if block == len(self._closed):
            self._new[index] = row
        else:
            self.codec.write(self._blocks.changing(self._closed[block]), index, row)
        self._indices.change(item_id, old, row)
        self.version += 1
