"""A read that waits for a synchronization condition: data for a given minute, or for any later one."""

from __future__ import annotations

import threading
from queue import Queue

import pytest

from penstock.errors import StorageError
from penstock.store.properties import ReadPattern, Sharing, UpdatePattern
from penstock_bench.storage_manager.items import Item
from penstock_bench.storage_manager.properties import Comparison, Properties, Role, Synchronization

from .kinds import ALL_READS, BY_SEGMENT, REPORTS, manager, report

PATIENCE = 30.0


def properties(comparison: Comparison = Comparison.EQ, update: UpdatePattern = UpdatePattern.FIFO) -> Properties:
    return Properties(
        schema=REPORTS,
        synchronization=Synchronization("minute", comparison),
        update=update,
        read=ALL_READS,
        sharing=Sharing.SHARED,
    )


@pytest.mark.parametrize("update", list(UpdatePattern))
def test_a_read_waits_until_there_is_data_for_its_minute(update: UpdatePattern) -> None:
    with manager() as storage:
        store = storage.create_store(properties(update=update), "tolls")
        storage.register_index(BY_SEGMENT, store)
        reader = store.reader("notification", ReadPattern.RANDOM)
        store.buffer_item(report(0))
        answers: Queue[list[tuple[int, Item]]] = Queue()

        def ask() -> None:
            answers.put(list(reader.retrieve(BY_SEGMENT, [2], when=1, timeout=PATIENCE)))

        asking = threading.Thread(target=ask)
        asking.start()
        for number in range(2, 9):
            store.buffer_item(report(number))
        assert answers.empty()
        store.buffer_item(report(10))  # the first of minute 1
        asking.join(PATIENCE)
        assert answers.get_nowait() == [(1, report(2)), (7, report(8))]


def test_every_read_can_wait() -> None:
    with manager() as storage:
        store = storage.create_store(properties(), "tolls")
        order, anywhere = store.reader("order"), store.reader("any", ReadPattern.CLUSTERED)
        store.buffer_item(report(10))
        assert order.get_next_item(when=1, timeout=0) == report(10)
        assert anywhere.get_item(0, when=1, timeout=0) == report(10)
        assert anywhere.get_attribute(0, "speed", when=1, timeout=0) == 2.5
        for read in (
            lambda: order.get_next_item(when=2, timeout=0),
            lambda: order.get_next_attribute("speed", when=2, timeout=0),
            lambda: anywhere.get_item(0, when=2, timeout=0),
            lambda: anywhere.get_attribute(0, "speed", when=2, timeout=0),
        ):
            with pytest.raises(StorageError, match=r"tolls has no item with minute = 2: 0 s have passed"):
                read()


def test_a_later_minute_will_do() -> None:
    with manager() as storage:
        store = storage.create_store(properties(Comparison.GE), "tolls")
        store.buffer_item(report(55))
        store.wait_for(4, timeout=0)
        store.wait_for(5, timeout=0)
        with pytest.raises(StorageError, match="minute >= 6"):
            store.wait_for(6, timeout=0.01)


def test_data_that_has_gone_is_not_there() -> None:
    with manager() as storage:
        store = storage.create_store(properties(), "tolls")
        store.buffer_item(report(10))
        store.wait_for(1, timeout=0)
        store.delete_up_to(0)
        with pytest.raises(StorageError, match="no item"):
            store.wait_for(1, timeout=0)


def test_a_replaced_item_counts_as_what_it_is_now() -> None:
    with manager() as storage:
        store = storage.create_store(properties(update=UpdatePattern.IN_PLACE), "tolls")
        storage.register_index(BY_SEGMENT, store)
        store.buffer_item(report(2))
        store.wait_for(0, timeout=0)
        waiting = threading.Thread(target=store.wait_for, args=(3, PATIENCE))
        waiting.start()
        store.update(BY_SEGMENT, (3, 2, 0.5, "east", True), [2])
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        with pytest.raises(StorageError, match="minute = 0"):
            store.wait_for(0, timeout=0)


def test_an_active_store_is_driven_by_who_waits() -> None:
    with manager() as storage:
        active = Properties(schema=REPORTS, synchronization=Synchronization("minute"), role=Role.ACTIVE)
        store = storage.create_store(active, "tolls", (report(number) for number in range(40)))
        store.wait_for(2)
        assert store.storage.next_id == 21
        with pytest.raises(StorageError, match="the source has ended"):
            store.wait_for(4)


def test_writers_and_readers_in_several_threads() -> None:
    """Each reader sees every item once and in order, whatever the others do."""
    count = 3000
    with manager(block_size=1024) as storage:
        shared = Properties(schema=REPORTS, update=UpdatePattern.FIFO, read=ALL_READS, sharing=Sharing.SHARED)
        store = storage.create_store(shared, "reports")
        readers = [store.reader(f"reader {number}") for number in range(3)]
        seen: dict[str, list[Item]] = {reader.name: [] for reader in readers}

        def follow(number: int) -> None:
            reader = readers[number]
            while len(seen[reader.name]) < count:
                item = reader.get_next_item()
                if item is not None:
                    seen[reader.name].append(item)
                    if len(seen[reader.name]) % 100 == 0:
                        reader.delete_up_to(len(seen[reader.name]) - 1)

        threads = [threading.Thread(target=follow, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for number in range(count):
            store.buffer_item(report(number))
        for thread in threads:
            thread.join(PATIENCE)
        assert all(items == [report(number) for number in range(count)] for items in seen.values())
        assert store.storage.first_id == count
