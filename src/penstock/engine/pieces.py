"""A push is taken a piece at a time, so that memory does not depend on how the user cuts the events.

A push may be cut anywhere; the results are the same. The rows of a piece enter before any of them leaves, so their
memory is charged before any of it is released. The number of rows in a piece is:

1. With much memory free: as many as take a small share of it in the worst case.
2. With little memory free: as many as take a quarter of a block, judged by what the pieces before took. A push of many
   events then fits if as many pushes of one event fit, give or take two blocks. Rows of known groups take no memory, so
   their pieces grow long: a window that pages through two blocks stays fast.

Rows are cut twice: before they are put in order, and before the queries get them, since one event may release many.

Why: docs/decisions/pushes-in-pieces.md
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from penstock.expressions.batch import Batch, Rows, arrow_of
from penstock.operators.chunk import CHUNK_ROWS, Chunk
from penstock.store.manager import StoreManager

_BYTES_FOR_ONE = 32768
"""So many bytes within reach are for one row; twice as many bytes are for nearly three."""

_NARROW = 256
"""A row of so many bytes counts as two."""

_BLOCK_OF_ONE = 2048
"""With blocks of this size rows are taken one by one where memory is short. A piece may be nine times as long where
blocks are twice as large: that bounds what rows take that differ from all before. With blocks of 64 KB rows of up to
256 bytes are taken a whole chunk at a time."""

_BYTES_AT_FIRST = 1024
"""The bytes assumed for a row before rows have been measured; more than most rows take."""

_GROWTH = 1.125
"""How much longer a piece may be than one before it that took little."""

_SORTED_BYTES = 1 << 21
"""So many bytes are put in order at a time, at most: sorting takes as much besides."""


class Pieces:
    """How long pieces are, for rows that are cut at one place."""

    def __init__(self, stores: StoreManager) -> None:
        self._budget = stores.budget
        self._allowed = stores.block_size // 4
        self._longest = max(1.0, (stores.block_size / _BLOCK_OF_ONE) ** 3.2)
        self._short = min(self._longest, stores.block_size / _BYTES_AT_FIRST)
        """The narrow rows of a piece where memory is short."""

    def to_sort(self, batch: Rows) -> Iterator[Rows]:
        """The rows of a batch that are put in order. How many the next piece has is seen when it is asked for."""
        if batch.num_rows <= 1:
            yield batch
            return
        row_bytes = _row_bytes(batch)
        width = 1 + row_bytes / _NARROW
        most = max(1, _SORTED_BYTES // max(1, row_bytes))
        start = 0
        while start < batch.num_rows:
            reach = self._budget.within_reach
            rows = min(most, self._rows(reach, width), batch.num_rows - start)
            yield batch if rows == batch.num_rows else arrow_of(batch).slice(start, rows)
            self._learn(rows * width, reach - self._budget.within_reach)
            start += rows

    def in_order(self, chunks: list[Chunk], watermark: int) -> Iterator[tuple[list[Chunk], int]]:
        """Rows in order, each piece with the watermark that holds once it is in. How many the next one has is seen when
        it is asked for. Without rows there is one piece."""
        if sum(chunk.rows for chunk in chunks) <= 1:
            yield chunks, watermark
            return
        left = deque(chunk for chunk in chunks if chunk.rows)
        width = 1 + max(_row_bytes(chunk.columns) for chunk in left) / _NARROW
        while left:
            reach = self._budget.within_reach
            rows = self._rows(reach, width)
            piece: list[Chunk] = []
            taken = 0
            while left and taken < rows:
                chunk = left.popleft()
                if chunk.rows > rows - taken:
                    left.appendleft(chunk.slice(rows - taken, chunk.rows))
                    chunk = chunk.slice(0, rows - taken)
                piece.append(chunk)
                taken += chunk.rows
            yield piece, min(watermark, int(left[0].times[0])) if left else watermark
            self._learn(taken * width, reach - self._budget.within_reach)

    def _rows(self, reach: int, width: float) -> int:
        """How many rows, each as wide as so many narrow ones, are taken at once where so much memory is left. A power
        of two, since an allocator keeps memory for each size that it was asked for."""
        share = max(0, reach) / (_BYTES_FOR_ONE * width)
        rows = min(CHUNK_ROWS, max(1, int(share * share**0.5), int(self._short / width)))
        return 1 << (rows.bit_length() - 1)

    def _learn(self, narrow_rows: float, nbytes: int) -> None:
        """A piece of so many narrow rows took so much of the memory within reach. What rows took is forgotten slowly:
        they may do so again."""
        if nbytes > self._allowed:
            self._short = max(1.0, min(self._short, narrow_rows * self._allowed / nbytes))
        elif 2 * narrow_rows >= self._short:
            self._short = min(self._longest, _GROWTH * self._short)


def _row_bytes(rows: Rows) -> int:
    """About how many bytes a row has."""
    if isinstance(rows, Batch):  # columns that never were Arrow
        return 16 * len(rows.kinds)
    return sum(map(_nbytes, rows.columns)) // int(rows.num_rows)


def _nbytes(column: pa.Array) -> int:
    """Of the values; those of a dictionary are as long as its entries are on average."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(column.indices.nbytes) + len(column) * int(column.dictionary.nbytes) // max(1, len(column.dictionary))
