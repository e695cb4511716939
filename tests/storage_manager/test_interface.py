"""The interface by the paper's tables: parameters and defaults (1), examples of use (2), and which operations a store
exports for which update pattern (4) and read pattern (5)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import StorageError
from penstock.store.properties import ReadPattern, Sharing, UpdatePattern
from penstock.types import Field, Schema, SqlType
from penstock_bench.storage_manager.instance import StoreInstance
from penstock_bench.storage_manager.items import Item
from penstock_bench.storage_manager.properties import Access, IndexSchema, Properties, Role, Synchronization, Transient
from penstock_bench.storage_manager.readers import SequentialReader

from .kinds import ALL_READS, BY_SEGMENT, REPORTS, manager, report


def test_defaults_of_table_1() -> None:
    properties = Properties()
    assert properties.role is Role.PASSIVE
    assert properties.access is Access.PULL
    assert properties.synchronization is None
    assert properties.schema is None
    assert properties.persistence == Transient()
    assert properties.read == (ReadPattern.RANDOM,)
    assert properties.update is UpdatePattern.RANDOM
    assert properties.sharing is Sharing.NOT_SHARED


# Table 4: the update interface


def fill(store: StoreInstance, count: int = 10) -> None:
    for number in range(count):
        store.buffer_item(report(number))


UPDATES: dict[UpdatePattern, tuple[str, tuple[Any, ...]]] = {
    UpdatePattern.FIFO: ("delete_up_to", (3,)),
    UpdatePattern.RANDOM: ("delete_items", ([1, 5],)),
    UpdatePattern.IN_PLACE: ("update", (BY_SEGMENT, report(77), [2])),
}


@pytest.mark.parametrize("made_for", list(UpdatePattern))
@pytest.mark.parametrize("exported_by", list(UPDATES))
def test_table_4(made_for: UpdatePattern, exported_by: UpdatePattern) -> None:
    operation, arguments = UPDATES[exported_by]
    with manager() as storage:
        store = storage.create_store(Properties(schema=REPORTS, update=made_for, read=ALL_READS), "reports")
        storage.register_index(BY_SEGMENT, store)
        fill(store)
        reader = store.reader("all", ReadPattern.SEQUENTIAL)
        if made_for is exported_by:
            getattr(store, operation)(*arguments)
            return
        with pytest.raises(StorageError, match=f"{operation} is for .* {exported_by.value}"):
            getattr(store, operation)(*arguments)
        if operation != "update":
            with pytest.raises(StorageError, match=f"{operation} is for .* {exported_by.value}"):
                getattr(reader, operation)(*arguments)
        assert [reader.get_next_item() for _ in range(11)] == [report(n) for n in range(10)] + [None]


# Table 5: the read interface

READS: dict[str, tuple[tuple[Any, ...], set[ReadPattern]]] = {
    "get_item": ((2,), {ReadPattern.RANDOM, ReadPattern.CLUSTERED}),
    "get_attribute": ((2, "speed"), {ReadPattern.RANDOM, ReadPattern.CLUSTERED}),
    "get_next_item": ((), {ReadPattern.SEQUENTIAL}),
    "get_next_attribute": (("speed",), {ReadPattern.SEQUENTIAL}),
    "retrieve": ((BY_SEGMENT, [2]), set(ReadPattern)),
}
RESULTS = {"get_item": report(2), "get_attribute": 0.5, "get_next_item": report(0), "get_next_attribute": 0.0}


@pytest.mark.parametrize("update", list(UpdatePattern))
@pytest.mark.parametrize("pattern", list(ReadPattern))
@pytest.mark.parametrize("operation", list(READS))
def test_table_5(update: UpdatePattern, pattern: ReadPattern, operation: str) -> None:
    arguments, exported_by = READS[operation]
    with manager() as storage:
        store = storage.create_store(Properties(schema=REPORTS, update=update, read=(pattern,)), "reports")
        storage.register_index(BY_SEGMENT, store)
        fill(store)
        reader = store.reader("reader")
        if pattern not in exported_by:
            with pytest.raises(StorageError, match=f"has no {operation}"):
                getattr(reader, operation)(*arguments)
        elif operation == "retrieve":
            assert list(reader.retrieve(*arguments)) == [(2, report(2)), (8, report(8))]
        else:
            assert getattr(reader, operation)(*arguments) == RESULTS[operation]


# Table 2: the queries, as uses of a store


def numbers(storage: Any, update: UpdatePattern, *reads: ReadPattern) -> StoreInstance:
    schema = Schema((Field("attr1", SqlType.BIGINT, False), Field("attr2", SqlType.BIGINT, False)))
    sharing = Sharing.SHARED if len(reads) > 1 else Sharing.NOT_SHARED
    store: StoreInstance = storage.create_store(
        Properties(schema=schema, update=update, read=reads, sharing=sharing), "numbers"
    )
    for number in range(20):
        store.buffer_item((number % 4, number))
    return store


def in_order(reader: Any) -> list[Item]:
    found = []
    while (item := reader.get_next_item()) is not None:
        found.append(item)
    return found


def test_never_expire_never_consume_keeps_everything() -> None:
    with manager() as storage:
        reader = numbers(storage, UpdatePattern.NO_UPDATE, ReadPattern.SEQUENTIAL).reader("scan")
        assert isinstance(reader, SequentialReader)
        for _ in range(3):
            assert len(in_order(reader)) == 20
            reader.seek(0)


def test_ordered_expire() -> None:
    with manager() as storage:
        store = numbers(storage, UpdatePattern.FIFO, ReadPattern.SEQUENTIAL)
        store.delete_up_to(14)
        assert in_order(store.reader("window")) == [(3, 15), (0, 16), (1, 17), (2, 18), (3, 19)]


def test_unordered_expire() -> None:
    """DELETE FROM store W WHERE W.attr1 = S.attr1."""
    by_attr1 = IndexSchema.equal("attr1")
    with manager() as storage:
        store = numbers(storage, UpdatePattern.RANDOM, ReadPattern.SEQUENTIAL)
        storage.register_index(by_attr1, store)
        for arrived in (0, 2):
            store.delete_items([item_id for item_id, _ in store.matching(by_attr1, [arrived])])
        assert {attr1 for attr1, _ in in_order(store.reader("rest"))} == {1, 3}  # type: ignore[misc]


def test_replaced_expire() -> None:
    """UPDATE store W SET W.attr2 = W.attr2 + S.attr2 WHERE W.attr1 = S.attr1, over one item for each key."""
    key = IndexSchema.equal("attr1")
    with manager() as storage:
        properties = Properties(schema=REPORTS_BY_KEY, update=UpdatePattern.IN_PLACE)
        store = storage.create_store(properties, "balances")
        storage.register_index(key, store)
        reader = store.reader("balance")
        for car, toll in ((7, 10), (8, 1), (7, 5), (7, 2)):
            before = [item for _, item in reader.retrieve(key, [car])]
            spent = before[0][1] if before else 0  # type: ignore[index]
            store.update(key, (car, spent + toll), [car])
        assert [item for _, item in reader.retrieve(key, [7])] == [(7, 17)]
        assert [item for _, item in reader.retrieve(key, [8])] == [(8, 1)]


REPORTS_BY_KEY = Schema((Field("attr1", SqlType.BIGINT, False), Field("attr2", SqlType.BIGINT, False)))


def test_ordered_consume_by_the_slower_of_two_windows() -> None:
    with manager() as storage:
        store = numbers(storage, UpdatePattern.FIFO, ReadPattern.SEQUENTIAL, ReadPattern.RANDOM)
        short, long = store.reader("short"), store.reader("long", ReadPattern.RANDOM)
        short.delete_up_to(15)
        assert long.get_item(0) == (0, 0)
        long.delete_up_to(9)
        assert in_order(short)[0] == (0, 16)
        with pytest.raises(StorageError, match="no item 9"):
            long.get_item(9)
        assert store.storage.first_id == 10


def test_eager_consume_of_the_middle() -> None:
    """FIRST and LAST of a window need nothing in between."""
    with manager() as storage:
        store = numbers(storage, UpdatePattern.RANDOM, ReadPattern.SEQUENTIAL)
        reader = store.reader("ends")
        reader.delete_items(range(1, 19))
        assert in_order(reader) == [(0, 0), (3, 19)]


def test_clustered_read_of_neighbours() -> None:
    """PREV(attr1) != attr1 AND attr1 < NEXT(attr1)."""
    with manager(block_size=256) as storage:
        reader = numbers(storage, UpdatePattern.FIFO, ReadPattern.CLUSTERED).reader("neighbours")
        found = [
            i
            for i in range(1, 19)
            if reader.get_attribute(i - 1, "attr1")
            != reader.get_attribute(i, "attr1")
            < reader.get_attribute(i + 1, "attr1")  # type: ignore[operator]
        ]
        assert found == [i for i in range(1, 19) if i % 4 < (i + 1) % 4]


# Role and access


def test_an_active_store_takes_what_readers_ask_for() -> None:
    taken = []

    def source() -> Any:
        for number in range(5):
            taken.append(number)
            yield report(number)

    with manager() as storage:
        properties = Properties(schema=REPORTS, role=Role.ACTIVE, read=ALL_READS, sharing=Sharing.SHARED)
        store = storage.create_store(properties, "input", source())
        order, anywhere = store.reader("order"), store.reader("any", ReadPattern.RANDOM)
        assert taken == []
        assert order.get_next_item() == report(0)
        assert taken == [0]
        assert anywhere.get_item(2) == report(2)
        assert taken == [0, 1, 2]
        assert in_order(order) == [report(n) for n in (1, 2, 3, 4)]
        assert store.run() == 0
        with pytest.raises(StorageError, match="active"):
            store.buffer_item(report(9))
        with pytest.raises(StorageError, match="no item 5"):
            anywhere.get_item(5)


def test_a_store_with_push_access_notifies_its_readers() -> None:
    seen: list[tuple[int, Item]] = []
    with manager() as storage:
        properties = Properties(schema=REPORTS, role=Role.ACTIVE, access=Access.PUSH)
        store = storage.create_store(properties, "input", (report(number) for number in range(4)))
        store.reader("engine", notify=lambda item_id, item: seen.append((item_id, item)))
        assert store.run(limit=3) == 3
        assert seen == [(number, report(number)) for number in range(3)]


def test_items_without_a_schema() -> None:
    items: list[dict[str, Any]] = [{"car": 7, "speed": 1.5}, {"accident": True, "where": "exit 4"}, {"note": None}]
    with manager() as storage:
        store = storage.create_store(Properties(read=ALL_READS, sharing=Sharing.SHARED), "input")
        for item in items:
            store.buffer_item(item)
        assert in_order(store.reader("order")) == items
        reader = store.reader("any", ReadPattern.CLUSTERED)
        assert reader.get_attribute(1, "where") == "exit 4"
        with pytest.raises(StorageError, match="no attribute 'speed'; it has accident, where"):
            reader.get_attribute(1, "speed")
        with pytest.raises(StorageError, match="schema"):
            storage.register_index(BY_SEGMENT, store)


# What is refused


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((1, 2, 3.0), "has 3 values; the schema has 5"),
        ((1, 2**31, 3.0, "east", True), "segment is INT"),
        ((2**63, 2, 3.0, "east", True), "minute is BIGINT"),
        ((None, 2, 3.0, "east", True), "minute is NULL"),
        ((1.5, 2, 3.0, "east", True), "minute is BIGINT, and 1.5"),
        ((1, 2, "3", "east", True), "speed is DOUBLE"),
        ((1, 2, 3.0, 4, True), "direction is STRING"),
        ((1, 2, 3.0, "east", 1), "exit is BOOLEAN"),
        ({"minute": 1, "speed": 2.0, "exit": True, "colour": "red"}, "colour"),
        ({"minute": 1, "exit": True}, "speed is NULL"),
    ],
)
@pytest.mark.parametrize("update", list(UpdatePattern))
def test_items_that_do_not_fit_are_refused_and_leave_no_trace(item: Any, message: str, update: UpdatePattern) -> None:
    with manager() as storage:
        store = storage.create_store(Properties(schema=REPORTS, update=update), "reports")
        with pytest.raises(StorageError, match=message):
            store.buffer_item(item)
        assert store.buffer_item({"MINUTE": 1, "speed": 2, "exit": False}) == 0
        assert store.reader("reader").get_item(0) == (1, None, 2.0, None, False)


def test_a_store_that_is_not_shared_has_one_reader() -> None:
    with manager() as storage:
        store = storage.create_store(Properties(), "input")
        first = store.reader("first")
        with pytest.raises(StorageError, match="not shared and is read by first"):
            store.reader("second")
        first.close()
        store.reader("second")


def test_what_has_ended_is_not_used_any_more() -> None:
    with manager() as storage:
        store = storage.create_store(Properties(schema=REPORTS, update=UpdatePattern.FIFO), "input")
        fill(store)
        reader = store.reader("reader")
        reader.close()
        with pytest.raises(StorageError, match="the reader reader of input was closed"):
            reader.delete_up_to(3)
        with pytest.raises(StorageError, match="was closed"):
            reader.close()
        storage.close_store(store)
        with pytest.raises(StorageError, match="removed or closed"):
            store.buffer_item(report(0))
        with pytest.raises(StorageError, match="removed or closed"):
            store.reader("another")


def test_what_does_not_go_together_is_refused() -> None:
    with manager() as storage:
        store = storage.create_store(Properties(schema=REPORTS), "input")
        with pytest.raises(StorageError, match="a store 'input' already"):
            storage.create_store(Properties(), "input")
        with pytest.raises(StorageError, match="source"):
            storage.create_store(Properties(role=Role.ACTIVE), "other")
        with pytest.raises(StorageError, match="source"):
            storage.create_store(Properties(), "other", iter(()))
        with pytest.raises(StorageError, match="made for random reads, not for sequential ones"):
            store.reader("order", ReadPattern.SEQUENTIAL)
        with pytest.raises(StorageError, match="register it first"):
            store.reader("reader").retrieve(BY_SEGMENT, [1])
        with pytest.raises(StorageError, match="no attribute 'colour'; the schema has minute"):
            storage.register_index(IndexSchema.equal("colour"), store)
        with pytest.raises(StorageError, match="without a synchronization condition"):
            store.wait_for(1)
        storage.remove_store(store)
        with pytest.raises(StorageError, match="removed before"):
            storage.remove_store(store)
    with pytest.raises(StorageError, match="no attribute 'colour'"):
        Properties(schema=REPORTS, synchronization=Synchronization("colour"))
    with pytest.raises(StorageError, match="two attributes 'a'"):
        Properties(schema=Schema((Field("a", SqlType.INT), Field("A", SqlType.INT))))
