"""Rows that are known by their position, and stores of them in blocks so small that every path is taken."""

from __future__ import annotations

import numpy as np

from penstock.columns import Argument
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget
from penstock.store.device import BlockDevice
from penstock.store.fifo import Cursor, FifoStore, View

COLUMNS = [
    ColumnSpec("time", np.dtype(np.int64), nullable=False),
    ColumnSpec("price", np.dtype(np.float64), nullable=True),
    ColumnSpec("symbol", np.dtype(np.int32), nullable=False),
    ColumnSpec("flag", np.dtype(np.int8), nullable=True),
]
Row = tuple[int, float | None, int, int | None]


def row(position: int) -> Row:
    """Every row differs from its neighbours; NULLs come in stretches, so some blocks have none."""
    null = (position // 40) % 3 == 1 and position % 5 == 0
    return position * 7, None if null else position / 3, -position, None if position % 90 > 80 else position % 100


def batch(first: int, count: int) -> list[Argument]:
    rows = [row(position) for position in range(first, first + count)]
    columns = []
    for index, spec in enumerate(COLUMNS):
        cells = [values[index] for values in rows]
        valid = np.array([cell is not None for cell in cells], np.bool_)
        values = np.array([0 if cell is None else cell for cell in cells], spec.dtype)
        columns.append(Argument(values, valid if spec.nullable and not valid.all() else None))
    return columns


def rows_of(view: View) -> list[Row]:
    cells = []
    for values, valid in view.columns:
        assert len(values) == view.count
        listed = values.tolist()
        cells.append(listed if valid is None else [v if ok else None for v, ok in zip(listed, valid, strict=True)])
    return list(zip(*cells, strict=True))


def make_store(device: BlockDevice, pool_blocks: int = 2, block_size: int = 256, budget: int = 1 << 20) -> FifoStore:
    return FifoStore(COLUMNS, device, Budget(budget).account("window"), block_size=block_size, pool_blocks=pool_blocks)


def read_all(cursor: Cursor, stop: int) -> list[Row]:
    rows: list[Row] = []
    while cursor.position < stop:
        view = cursor.view(stop)
        assert view.first == cursor.position
        assert view.count > 0
        rows += rows_of(view)
        cursor.advance(view.count)
    return rows


def expected(start: int, stop: int) -> list[Row]:
    return [row(position) for position in range(start, stop)]
