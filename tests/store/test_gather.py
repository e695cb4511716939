"""Rows read from anywhere in a FIFO store, whether their blocks are in memory or not."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.columns import Argument
from penstock.store.budget import Budget
from penstock.store.device import BlockDevice
from penstock.store.fifo import ColumnSpec, FifoStore
from penstock.store.memory_device import MemoryDevice

COLUMNS = [
    ColumnSpec("a", np.dtype(np.int64), nullable=False),
    ColumnSpec("b", np.dtype(np.float32), nullable=True),
    ColumnSpec("c", np.dtype(np.int8), nullable=False),
]


def opened(device: BlockDevice, block_size: int, pool_blocks: int, by_row: bool) -> FifoStore:
    account = Budget(1 << 24).account("s")
    return FifoStore(COLUMNS, device, account, block_size=block_size, pool_blocks=pool_blocks, by_row=by_row)


def filled(rows: int, pool_blocks: int, *, nulls: bool, by_row: bool) -> FifoStore:
    store = opened(MemoryDevice(1024), 1024, pool_blocks, by_row)
    numbers = np.arange(rows)
    valid = numbers % 3 != 0 if nulls else None
    arguments = [
        Argument(numbers * 10, None),
        Argument((numbers / 2).astype(np.float32), valid),
        Argument((numbers % 100).astype(np.int8), None),
    ]
    for start in range(0, rows, 77):
        part = slice(start, start + 77)
        store.append([Argument(v[part], None if m is None else m[part]) for v, m in arguments])
    return store


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("pool_blocks", [2, 1000])
def test_rows_come_in_the_order_asked_for(pool_blocks: int, nulls: bool, by_row: bool) -> None:
    store = filled(5000, pool_blocks, nulls=nulls, by_row=by_row)
    store.release(1234)
    random = np.random.default_rng(1)
    for count in (0, 1, 5, 3000):
        positions = random.integers(1234, 5000, count)
        a, b, c = store.gather(positions, [0, 1, 2])
        assert (a.values == positions * 10).all()
        assert (c.values == positions % 100).all()
        present = np.ones(count, np.bool_) if b.valid is None else b.valid
        assert (present == (positions % 3 != 0 if nulls else True)).all()
        assert (b.values[present] == (positions[present] / 2).astype(np.float32)).all()
        (only,) = store.gather(positions, [2])
        assert (only.values == c.values).all()


@pytest.mark.parametrize("by_row", [False, True])
def test_blocks_of_another_size_after_a_restart(by_row: bool) -> None:
    """Blocks from before keep their layout; rows are found in both."""
    before = filled(1000, 1000, nulls=False, by_row=by_row)
    after = opened(before.device, 512, 1000, by_row)
    after.restore(before.snapshot())
    numbers = np.arange(1000, 1500)
    after.append(
        [
            Argument(numbers * 10, None),
            Argument((numbers / 2).astype(np.float32), None),
            Argument((numbers % 100).astype(np.int8), None),
        ]
    )
    positions = np.random.default_rng(2).integers(0, 1500, 400)
    assert (after.gather(positions, [0])[0].values == positions * 10).all()
