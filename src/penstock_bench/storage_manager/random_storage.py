"""RANDOM: items leave from anywhere. Blocks in the order of the ids, found by an id index, with marks on what is gone.

An item that is removed is only marked. Marked items are collected when memory is short, or when they outnumber the
others: blocks in which all are marked go, and blocks with many marks are shrunk into fewer.

Invariants:
1. `_starts` is the id index: the first id of each closed block, rising; newer items are in `_new`.
2. An item is there exactly if its id is in a closed block or in `_new`, and not marked.
3. The strings of a closed item are given back when it is marked, those of a new one were never taken.
4. The account `_index` holds the ids and marks of all closed blocks: removing an item takes no memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools
from penstock.instruments import Argument, Row, Value
from penstock_bench.storage_manager.indices import ValueIndices
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.paged_blocks import PagedBlock, PagedBlocks
from penstock_bench.storage_manager.storage import NEW_ROWS, Block, NewRows, Place, TransientStorage

Ids = NDArray[np.int64]

_BLOCK_BYTES = 500
"""What a closed block takes beside its rows."""


class RandomStorage(TransientStorage):
    def __init__(self, place: Place, codec: ItemCodec, indices: ValueIndices) -> None:
        super().__init__(codec, indices)
        self.first_id = self.next_id = 0
        self._blocks = PagedBlocks(codec, place.device(), place.account("blocks"), NEW_ROWS, self.collect)
        self.rows_at_once = min(NEW_ROWS, self._blocks.block_rows)
        self.block_bytes = self._blocks.block_rows * codec.width
        self._starts: list[int] = []
        self._closed: list[_Closed] = []
        self._index = place.account("id index")
        self._new: list[Row] = []
        self._new_first = 0
        self._new_marks: set[int] = set()
        place.account("new items").resize(self.rows_at_once * codec.row_bytes)
        self._live = self._marked = 0

    def append(self, row: Row) -> int:
        if self._indices.any:
            self._indices.reserve()
        if len(self._new) >= self.rows_at_once:
            self._close_block()
        self._new.append(row)
        item_id = self.next_id
        self.next_id = item_id + 1
        self._live += 1
        if self._indices.any:
            self._indices.insert(item_id, row)
        return item_id

    def row(self, item_id: int) -> Row | None:
        if item_id >= self._new_first:
            missing = item_id >= self.next_id or item_id in self._new_marks
            return None if missing else self._new[item_id - self._new_first]
        if item_id < self.first_id:
            return None
        closed = self._closed[bisect_right(self._starts, item_id) - 1]
        index = closed.index(item_id)
        return None if index < 0 else self.codec.row(self._blocks.frame(closed.block), index)

    def holds(self, item_id: int) -> bool:
        if item_id >= self._new_first:
            return item_id < self.next_id and item_id not in self._new_marks
        if item_id < self.first_id:
            return False
        return self._closed[bisect_right(self._starts, item_id) - 1].index(item_id) >= 0

    def first_absent(self, item_ids: Sequence[int]) -> int | None:
        if item_ids and not self.first_id <= item_ids[0] <= item_ids[-1] < self.next_id:
            return next(item_id for item_id in item_ids if not self.holds(item_id))
        for closed, ids in self._by_block(item_ids):
            places = closed.places(ids)
            if (places < 0).any():
                return ids[int((places < 0).argmax())]
        return next((i for i in item_ids[bisect_left(item_ids, self._new_first) :] if i in self._new_marks), None)

    def was_removed(self, item_id: int) -> bool:
        return not self.holds(item_id)

    def cell(self, item_id: int, place: int) -> Value:
        if item_id >= self._new_first:
            return self._new[item_id - self._new_first][place]
        closed = self._closed[bisect_right(self._starts, item_id) - 1]
        return self.codec.cell(self._blocks.frame(closed.block), closed.index(item_id), place)

    def block(self, item_id: int) -> Block:
        if item_id >= self._new_first:
            return NewRows(self._new_first, self._new, self._new_marks)
        number = max(0, bisect_right(self._starts, item_id) - 1)
        stop = self._starts[number + 1] if number + 1 < len(self._starts) else self._new_first
        closed = self._closed[number]
        return _ClosedRows(self.codec, self._blocks, closed, stop)

    def remove(self, item_ids: Sequence[int]) -> None:
        for closed, ids in self._by_block(item_ids):
            places = closed.places(ids)
            if self.codec.has_texts:
                rows = self._blocks.frame(closed.block).slice(0, closed.count)
                self.codec.forget([Argument(v[places], None if ok is None else ok[places]) for v, ok in rows])
            closed.mark(places)
            self._marked += len(ids)
        self._new_marks.update(item_ids[bisect_left(item_ids, self._new_first) :])
        self._live -= len(item_ids)
        if self._marked > self._live + 2 * NEW_ROWS:
            self.collect()

    def collect(self) -> None:
        """Marked items are physically removed, where that frees a block."""
        kept: list[_Closed] = []
        shrinking: list[_Closed] = []
        for closed in self._closed:
            if closed.live == 0:
                self._blocks.drop(closed.block)
            elif closed.live <= closed.count // 2 and closed.block.is_resident:
                shrinking.append(closed)
            else:
                kept += self._shrunk(shrinking)
                shrinking = []
                kept.append(closed)
        self._take_over(kept + self._shrunk(shrinking))
        self.version += 1
        if self._indices.any:
            self._indices.collect(self._live, self.holds)

    def _by_block(self, item_ids: Sequence[int]) -> Iterator[tuple[_Closed, Sequence[int]]]:
        """Rising ids from `first_id` on, those of each closed block together."""
        begin, upto = 0, bisect_left(item_ids, self._new_first)
        while begin < upto:
            number = bisect_right(self._starts, item_ids[begin]) - 1
            last = number + 1 == len(self._starts)
            end = upto if last else bisect_left(item_ids, self._starts[number + 1], begin, upto)
            yield self._closed[number], item_ids[begin:end]
            begin = end

    def _close_block(self) -> None:
        """The new rows that are left become a block."""
        left = [at for at in range(len(self._new)) if self._new_first + at not in self._new_marks]
        closed = self._closed
        if left:
            ids = np.array(left, np.int64) + self._new_first
            self._blocks.reserve(also=lambda: self._index.resize(self._index_bytes() + _BLOCK_BYTES + 9 * len(ids)))
            columns = self.codec.to_columns([self._new[at] for at in left])
            closed = [*self._closed, _Closed(self._blocks.add(columns), ids)]
        self._new = []
        self._new_first = self.next_id
        self._new_marks = set()
        self._take_over(closed)

    def _take_over(self, closed: list[_Closed]) -> None:
        """These are the closed blocks from now on."""
        self._closed = closed
        self._starts = [block.first for block in closed]
        self.first_id = self._starts[0] if closed else self._new_first
        self._marked = sum(block.count - block.live for block in closed)
        self._index.resize(self._index_bytes())

    def _index_bytes(self) -> int:
        return sum(block.nbytes for block in self._closed)

    def _shrunk(self, neighbours: list[_Closed]) -> list[_Closed]:
        """Blocks in memory that follow each other, in as few as their items need. No more memory than they had."""
        made: list[_Closed] = []
        together: list[_Closed] = []
        for closed in neighbours:
            if sum(part.live for part in together) + closed.live > self._blocks.block_rows:
                made.append(self._merged(together))
                together = []
            together.append(closed)
        return [*made, self._merged(together)] if together else made

    def _merged(self, together: list[_Closed]) -> _Closed:
        if len(together) == 1:
            return together[0]
        parts: list[list[Argument]] = []
        for closed in together:
            alive = closed.alive
            rows = self._blocks.frame(closed.block).slice(0, closed.count)
            parts.append([Argument(values[alive], None if ok is None else ok[alive]) for values, ok in rows])
        for closed in together:
            self._blocks.drop(closed.block)
        self._blocks.reserve()
        block = self._blocks.add([_joined(column) for column in zip(*parts, strict=True)])
        return _Closed(block, np.concatenate([closed.ids()[closed.alive] for closed in together]))


def _joined(parts: Sequence[Argument]) -> Argument:
    values = np.concatenate([values for values, _ in parts])
    if all(valid is None for _, valid in parts):
        return Argument(values, None)
    known = [np.ones(len(values), np.bool_) if valid is None else valid for values, valid in parts]
    return Argument(values, np.concatenate(known))


class _Closed:
    """A block, the ids of its rows, and which of them are not marked."""

    __slots__ = ("_ids", "alive", "block", "count", "first", "live")

    def __init__(self, block: PagedBlock, ids: Ids) -> None:
        self.block = block
        self._ids = None if ids[-1] - ids[0] == len(ids) - 1 else ids
        self.alive: Bools = np.ones(len(ids), np.bool_)
        self.first = int(ids[0])
        self.count = self.live = len(ids)

    def index(self, item_id: int) -> int:
        """The place of an item; -1 if it is not here or marked."""
        ids = self._ids
        index = item_id - self.first if ids is None else int(np.searchsorted(ids, item_id))
        if index >= self.count or (ids is not None and ids.item(index) != item_id):
            return -1
        return index if self.alive.item(index) else -1

    def ids(self) -> Ids:
        return np.arange(self.first, self.first + self.count) if self._ids is None else self._ids

    @property
    def nbytes(self) -> int:
        return _BLOCK_BYTES + self.count + (0 if self._ids is None else self._ids.nbytes)

    def places(self, item_ids: Sequence[int]) -> Ids:
        """The places of rising ids; -1 for those that are not here or marked."""
        wanted = np.array(item_ids, np.int64)
        if self._ids is None:
            places = wanted - self.first
            here = places < self.count
        else:
            places = np.searchsorted(self._ids, wanted)
            here = places < self.count
            here[here] = self._ids[places[here]] == wanted[here]
        here[here] = self.alive[places[here]]
        return np.where(here, places, -1)

    def mark(self, places: Ids) -> None:
        self.alive[places] = False
        self.live -= len(places)


class _ClosedRows(Block):
    def __init__(self, codec: ItemCodec, blocks: PagedBlocks, closed: _Closed, stop: int) -> None:
        self.first = closed.first
        self.stop = stop
        self._codec = codec
        self._frame = blocks.frame(closed.block)
        self._closed = closed

    def row(self, item_id: int) -> Row | None:
        index = self._closed.index(item_id)
        return None if index < 0 else self._codec.row(self._frame, index)

    def cell(self, item_id: int, place: int) -> Value:
        return self._codec.cell(self._frame, self._closed.index(item_id), place)

    def rows(self, start: int, limit: int) -> tuple[Sequence[int], list[Row], int]:
        ids = self._closed.ids()
        begin = int(np.searchsorted(ids, start))
        end = min(len(ids), begin + limit)
        after = self.stop if end == len(ids) else int(ids[end])
        alive = self._closed.alive[begin:end]
        found, rows = ids[begin:end].tolist(), self._codec.rows(self._frame, begin, end)
        if alive.all():
            return found, rows, after
        living = alive.nonzero()[0].tolist()
        return [found[at] for at in living], [rows[at] for at in living], after
