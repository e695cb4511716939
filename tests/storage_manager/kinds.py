"""Stores of every kind, as the tests make them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.store.budget import Budget
from penstock.store.databases.database import Row
from penstock.store.manager import StoreManager
from penstock.store.properties import ReadPattern
from penstock.types import Field, Schema, SqlType
from penstock_bench.storage_manager.lifecycle import StorageManager
from penstock_bench.storage_manager.properties import Comparison, IndexSchema

REPORTS = Schema(
    (
        Field("minute", SqlType.BIGINT, nullable=False),
        Field("segment", SqlType.INT, nullable=True),
        Field("speed", SqlType.DOUBLE, nullable=False),
        Field("direction", SqlType.STRING, nullable=True),
        Field("exit", SqlType.BOOLEAN, nullable=False),
    )
)
"""Every way to lie in a block: wide and narrow, NULL or not, text."""

BY_SEGMENT = IndexSchema.equal("segment")
BY_DIRECTION_AND_SPEED = IndexSchema((("direction", Comparison.EQ), ("speed", Comparison.GE)))
ALL_READS = (ReadPattern.SEQUENTIAL, ReadPattern.RANDOM, ReadPattern.CLUSTERED)


def report(number: int) -> Row:
    """Rows that differ, with NULLs and repeated strings here and there."""
    direction = None if number % 7 == 3 else ("east", "west", "ost\u00e9 " * 3)[number % 3]
    return number // 10, None if number % 5 == 4 else number % 6, number / 4, direction, number % 2 == 0


@contextmanager
def manager(budget: int = 1 << 24, block_size: int = 512) -> Iterator[StorageManager]:
    """A storage manager that must have given back all memory at its end."""
    total = Budget(budget)
    stores = StoreManager(total, None, block_size)
    made = StorageManager(stores)
    yield made
    made.close()
    assert total.used == 0, total.describe()
    stores.close()
