"""What stores do when memory is short: blocks go to the device, marked items are collected, indices forget."""

from __future__ import annotations

import pytest

from penstock.errors import BudgetError
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager
from penstock.store.properties import ReadPattern, Sharing, UpdatePattern
from penstock.types import Field, Schema, SqlType
from penstock_bench.storage_manager.lifecycle import StorageManager
from penstock_bench.storage_manager.properties import Properties

from .kinds import ALL_READS, BY_SEGMENT, REPORTS, manager, report

PAIRS = Schema((Field("key", SqlType.BIGINT, False), Field("value", SqlType.DOUBLE, True)))
COUNT = 5000


def pair(number: int) -> tuple[int, float | None]:
    return number * 3, None if number % 11 == 0 else number / 7


@pytest.mark.parametrize("update", list(UpdatePattern))
@pytest.mark.parametrize("pattern", [ReadPattern.RANDOM, ReadPattern.CLUSTERED])
def test_far_more_items_than_memory(update: UpdatePattern, pattern: ReadPattern) -> None:
    budget = Budget(75_000)
    stores = StoreManager(budget, None, 4096)
    storage = StorageManager(stores)
    store = storage.create_store(Properties(schema=PAIRS, update=update, read=(pattern,)), "pairs")
    for number in range(COUNT):
        store.buffer_item(pair(number))
    written, _ = stores.bytes_written
    assert written > 30_000
    reader = store.reader("reader")
    for number in [*range(0, COUNT, 7), *range(COUNT - 1, 0, -13)]:
        assert reader.get_item(number) == pair(number)
    assert budget.peak <= 75_000
    storage.close()
    assert budget.used == 0


def test_replaced_items_survive_their_way_to_the_device_and_back() -> None:
    with manager(budget=1 << 21, block_size=512) as storage:
        store = storage.create_store(Properties(schema=REPORTS, update=UpdatePattern.IN_PLACE), "reports")
        storage.register_index(BY_SEGMENT, store)
        for number in range(500):
            store.buffer_item(report(number))
        reader = store.reader("reader")
        for turn in range(3):
            for item_id in range(0, 500, 9):
                store.storage.replace(item_id, report(item_id + 1000 * turn))
        for item_id in range(500):
            assert reader.get_item(item_id) == report(item_id + (2000 if item_id % 9 == 0 else 0))


def test_removed_items_are_collected_and_blocks_shrink() -> None:
    """One item of ten stays: the blocks of ten become one."""
    budget = Budget(1 << 20)
    storage = StorageManager(StoreManager(budget, None, 4096))
    store = storage.create_store(Properties(schema=PAIRS, update=UpdatePattern.RANDOM, read=ALL_READS), "pairs")
    for number in range(COUNT):
        store.buffer_item(pair(number))
    full = budget.used
    store.delete_items([item_id for item_id in range(COUNT) if item_id % 10])
    assert budget.used < full / 2
    reader = store.reader("reader", ReadPattern.SEQUENTIAL)
    assert [reader.get_next_item() for _ in range(COUNT // 10)] == [pair(n) for n in range(0, COUNT, 10)]
    assert reader.get_next_item() is None
    storage.close()


def test_marks_are_collected_lazily() -> None:
    with manager() as storage:
        store = storage.create_store(Properties(schema=PAIRS, update=UpdatePattern.RANDOM), "pairs")
        for number in range(2000):
            store.buffer_item(pair(number))
        version = store.storage.version
        store.delete_items(range(100))
        assert store.storage.version == version
        store.delete_items(range(100, 1900))
        assert store.storage.version > version
        assert store.storage.first_id > 0


def test_strings_and_index_entries_of_gone_items_are_forgotten() -> None:
    budget = Budget(1 << 24)
    storage = StorageManager(StoreManager(budget, None, 4096))
    store = storage.create_store(Properties(schema=REPORTS, update=UpdatePattern.FIFO), "reports")
    storage.register_index(BY_SEGMENT, store)
    used = []
    for turn in range(20):
        for number in range(1000):
            store.buffer_item((turn, number % 6, 0.5, f"place {turn} {number}", True))
        store.delete_up_to(store.storage.next_id - 100)
        used.append(budget.used)
    assert max(used) < 1.5 * used[2]
    storage.close()
    assert budget.used == 0


def test_a_reader_for_whom_there_is_no_room_is_not_waited_for() -> None:
    budget = Budget(100_000)
    storage = StorageManager(StoreManager(budget, None, 4096))
    properties = Properties(schema=PAIRS, update=UpdatePattern.FIFO, read=ALL_READS, sharing=Sharing.SHARED)
    store = storage.create_store(properties, "pairs")
    for number in range(100):
        store.buffer_item(pair(number))
    first = store.reader("first", ReadPattern.RANDOM)
    hoard = budget.account("something else")
    hoard.resize(budget.free)
    with pytest.raises(BudgetError, match="reader second"):
        store.reader("second", ReadPattern.SEQUENTIAL)
    first.delete_up_to(49)
    assert store.storage.first_id == 50
    hoard.close()
    assert store.reader("second", ReadPattern.SEQUENTIAL).get_next_item() == pair(50)
    storage.close()


def test_a_full_budget_refuses_and_the_store_goes_on() -> None:
    budget = Budget(60_000)
    storage = StorageManager(StoreManager(budget, None, 1024))
    store = storage.create_store(Properties(schema=REPORTS, update=UpdatePattern.FIFO), "reports")
    reader = store.reader("reader")

    def buffer_until_refused() -> None:
        for number in range(COUNT):
            store.buffer_item((number, 1, 0.5, f"a place that nobody has been to {number}", True))

    with pytest.raises(BudgetError):
        buffer_until_refused()
    accepted = store.storage.next_id
    assert accepted > 50
    assert all(reader.get_attribute(number, "minute") == number for number in range(accepted))
    store.delete_up_to(accepted - 1)
    assert store.buffer_item(report(0)) == accepted
    assert reader.get_item(accepted) == report(0)
    storage.close()
