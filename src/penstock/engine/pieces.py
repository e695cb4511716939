"""What is pushed is taken a piece at a time: memory does not depend on how the user cuts the events.

A push may be cut anywhere without another answer. Rows that are taken together enter before any of them leaves, and
what they take is asked for before any of it is given back. So as many are taken as can do no harm: what they take is a
small share of the memory that is within reach, the smaller the less there is. Where memory is nearly full it is a
fraction of a block: a push of many events fits where as many pushes of one do, give or take two blocks.

Rows are cut twice: before they are put in order, and before they are handed to the queries, since one event may release
many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from penstock.expressions.batch import Batch, Rows, arrow_of
from penstock.operators.chunk import CHUNK_ROWS, Chunk
from penstock.store.manager import StoreManager

_BYTES_FOR_ONE = 32768
"""So many bytes within reach are for one row; twice as many bytes are for nearly three."""

_SMALL_BLOCK = 4096
"""With blocks of this size rows are taken one by one near the limit. With blocks twice as large eleven are taken: the
tolerance of two blocks grows, and where memory is always nearly full, as for a window that pages through two blocks,
large pieces are what makes it fast."""

_NARROW = 256
"""A row of so many bytes counts as two."""

_SORTED_BYTES = 1 << 21
"""So many bytes are put in order at a time, at most: sorting takes as much besides."""


def rows_together(reach: int, block_size: int, row_bytes: int = 0) -> int:
    """How many rows of about so many bytes are taken at once where `reach` bytes of memory are left.

    >>> [rows_together(reach, 4096) for reach in (0, 1 << 15, 1 << 17, 1 << 20, 1 << 24, 1 << 26)]
    [1, 1, 8, 181, 11585, 32768]
    >>> rows_together(1 << 20, 4096, row_bytes=768)
    22
    >>> rows_together(0, 65536), rows_together(0, 1024)
    (16384, 1)
    """
    width = 1 + row_bytes / _NARROW
    share = max(0, reach) / (_BYTES_FOR_ONE * width)
    rows = max(share * math.sqrt(share), (block_size / _SMALL_BLOCK) ** 3.5 / width, 1)
    return min(CHUNK_ROWS, int(rows))


def pieces_to_sort(batch: Rows, stores: StoreManager) -> Iterator[Rows]:
    """The rows of a batch that are put in order. How many the next piece has is seen when it is asked for."""
    if batch.num_rows <= 1:
        yield batch
        return
    row_bytes = _row_bytes(batch)
    most = max(1, _SORTED_BYTES // max(1, row_bytes))
    start = 0
    while start < batch.num_rows:
        rows = min(most, rows_together(stores.budget.within_reach, stores.block_size, row_bytes))
        if rows >= batch.num_rows:
            yield batch
            return
        yield arrow_of(batch).slice(start, rows)
        start += rows


def pieces(chunks: list[Chunk], watermark: int, stores: StoreManager) -> Iterator[tuple[list[Chunk], int]]:
    """Rows in order, each piece with the watermark that holds once it is in. How many the next one has is seen when it
    is asked for. Without rows there is one piece."""
    if sum(chunk.rows for chunk in chunks) <= 1:
        yield chunks, watermark
        return
    left = deque(chunk for chunk in chunks if chunk.rows)
    row_bytes = max(_row_bytes(chunk.columns) for chunk in left)
    while left:
        rows = rows_together(stores.budget.within_reach, stores.block_size, row_bytes)
        piece: list[Chunk] = []
        while left and rows:
            chunk = left.popleft()
            if chunk.rows > rows:
                left.appendleft(chunk.slice(rows, chunk.rows))
                chunk = chunk.slice(0, rows)
            piece.append(chunk)
            rows -= chunk.rows
        yield piece, min(watermark, int(piece[-1].times[-1])) if left else watermark


def _row_bytes(rows: Rows) -> int:
    """What a row has, about."""
    if isinstance(rows, Batch):  # columns that never were Arrow
        return 16 * len(rows.kinds)
    return sum(map(_nbytes, rows.columns)) // int(rows.num_rows)


def _nbytes(column: pa.Array) -> int:
    """Of the values; those of a dictionary are as long as its entries are on average."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(column.indices.nbytes) + len(column) * int(column.dictionary.nbytes) // max(1, len(column.dictionary))
