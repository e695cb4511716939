"""Readers of a store, each with its own read pattern, block cache and consumption.

    sequential   one item after the other: rows leave their block some hundred at a time, no id index is asked
    random       any item: the id index is asked every time, no cache, since any block may be next
    clustered    any item, often near the last one: the last block is tried first, then the id index

Invariants:
1. A reader shows an item only as long as it is in the store and the reader has not consumed it.
2. A reader holds at most one block, which is on its account, and gives it up when the storage's `version` says that
   blocks have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import StorageError
from penstock.instruments import ReadPattern, Row, Value
from penstock_bench.storage_manager.consumption import Consumer
from penstock_bench.storage_manager.items import Item
from penstock_bench.storage_manager.properties import IndexSchema
from penstock_bench.storage_manager.storage import Block, NewRows, missing

if TYPE_CHECKING:
    from penstock_bench.storage_manager.instance import StoreInstance

Notify = Callable[[int, Item], None]
"""What a store with push access calls for every new item, with its id."""


_NO_END = 1 << 62


class Reader(ABC):
    """What all readers can do. `when` names a value of the synchronization condition that a read waits for."""

    pattern: ReadPattern

    def __init__(self, store: StoreInstance, name: str, consumer: Consumer, notify: Notify | None) -> None:
        self.name = name
        self.notify = notify
        self._store = store
        self._storage = store.storage
        self._codec = store.storage.codec
        self._lock = store.lock
        self._consumer = consumer
        self._plain = self._codec.schema is not None
        self._account = store.place.account(f"reader {name}")

    # --- reading by value ---------------------------------------------------------------------------------------------

    def retrieve(
        self, index: IndexSchema, values: Sequence[Value], *, when: Value = None, timeout: float | None = None
    ) -> Iterator[tuple[int, Item]]:
        """The items that a registered index finds for the values, with their ids, oldest first."""
        self._wait(when, timeout)
        found = self._store.matching(index, values)
        return ((item_id, self._codec.show(row)) for item_id, row in found if not self._has_consumed(item_id))

    # --- reading by id, for random and clustered readers --------------------------------------------------------------

    def get_item(self, item_id: int, *, when: Value = None, timeout: float | None = None) -> Item:
        raise self._refusal("get_item", "get_next_item")

    def get_attribute(self, item_id: int, name: str, *, when: Value = None, timeout: float | None = None) -> Value:
        raise self._refusal("get_attribute", "get_next_attribute")

    # --- reading in order, for sequential readers ---------------------------------------------------------------------

    def get_next_item(self, *, when: Value = None, timeout: float | None = None) -> Item | None:
        raise self._refusal("get_next_item", "get_item")

    def get_next_attribute(
        self, name: str, default: Value = None, *, when: Value = None, timeout: float | None = None
    ) -> Value:
        raise self._refusal("get_next_attribute", "get_attribute")

    # --- consuming ----------------------------------------------------------------------------------------------------

    def delete_up_to(self, item_id: int) -> None:
        """This reader is done with all items up to this one; those that all are done with are removed."""
        self._store.consume_up_to(self.name, item_id)

    def delete_items(self, item_ids: Sequence[int]) -> None:
        """This reader is done with these items; those that all are done with are removed."""
        self._store.consume_items(self.name, item_ids)

    def close(self) -> None:
        """There is no such reader any more: what only it still needed is removed."""
        self._store.remove_reader(self.name)
        self._account.close()

    def _has_consumed(self, item_id: int) -> bool:
        return item_id < self._consumer.floor or item_id in self._consumer.marks

    def _wait(self, when: Value, timeout: float | None) -> None:
        if when is not None:
            self._store.wait_for(when, timeout)

    def _refusal(self, asked: str, offered: str) -> StorageError:
        return StorageError(
            f"{self.name} reads {self._store.name} in {self.pattern.value} order, which has no {asked}; "
            f"use {offered}, or a reader with another pattern"
        )


class ReaderById(Reader):
    """Random and clustered readers, which differ in how they find an item."""

    _row: Callable[[int], Row | None]
    """The row of an item; None if it is gone."""

    def get_item(self, item_id: int, *, when: Value = None, timeout: float | None = None) -> Item:
        if when is not None:
            self._wait(when, timeout)
        consumer = self._consumer
        with self._lock:
            row = None if item_id < consumer.floor or item_id in consumer.marks else self._row(item_id)
            if row is None:
                row = self._late_row(item_id)
        return row if self._plain else self._codec.show(row)

    def get_attribute(self, item_id: int, name: str, *, when: Value = None, timeout: float | None = None) -> Value:
        if when is not None:
            self._wait(when, timeout)
        with self._lock:
            if self._has_consumed(item_id) or not self._storage.holds(item_id):
                self._late_row(item_id)
            if not self._plain:
                row = self._row(item_id)
                assert row is not None
                return self._codec.attribute(row, name)
            return self._cell(item_id, self._codec.place(name))

    def _late_row(self, item_id: int) -> Row:
        """An item that an active store's source may still bring."""
        if item_id >= self._storage.next_id and self._store.pull_until(item_id):
            row = self._row(item_id)
            if row is not None:
                return row
        raise missing(item_id)

    @abstractmethod
    def _cell(self, item_id: int, place: int) -> Value:
        """One value of an item that is there."""


class RandomReader(ReaderById):
    pattern = ReadPattern.RANDOM

    def __init__(self, store: StoreInstance, name: str, consumer: Consumer, notify: Notify | None) -> None:
        super().__init__(store, name, consumer, notify)
        self._row = self._storage.row

    def _cell(self, item_id: int, place: int) -> Value:
        return self._storage.cell(item_id, place)


class ClusteredReader(ReaderById):
    pattern = ReadPattern.CLUSTERED

    def __init__(self, store: StoreInstance, name: str, consumer: Consumer, notify: Notify | None) -> None:
        super().__init__(store, name, consumer, notify)
        self._account.resize(self._storage.block_bytes)
        self._block: Block | None = None
        self._version = -1
        self._row = self._row_nearby

    def _row_nearby(self, item_id: int) -> Row | None:
        block = self._near(item_id)
        return None if block is None else block.row(item_id)

    def _cell(self, item_id: int, place: int) -> Value:
        block = self._near(item_id)
        assert block is not None
        return block.cell(item_id, place)

    def _near(self, item_id: int) -> Block | None:
        """The block with this id: the last one, or another through the id index."""
        storage, block = self._storage, self._block
        if item_id < storage.first_id or item_id >= storage.next_id:
            return None
        if block is None or self._version != storage.version or not block.first <= item_id < block.stop:
            self._block = block = storage.block(item_id)
            self._version = storage.version
        return block


class SequentialReader(Reader):
    """`last_id` is the id of the item that was read last, -1 before the first."""

    pattern = ReadPattern.SEQUENTIAL

    def __init__(self, store: StoreInstance, name: str, consumer: Consumer, notify: Notify | None) -> None:
        super().__init__(store, name, consumer, notify)
        self.last_id = -1
        self._account.resize(self._storage.rows_at_once * self._codec.row_bytes)
        self.seek(max(self._storage.first_id, consumer.floor))

    def get_next_item(self, *, when: Value = None, timeout: float | None = None) -> Item | None:
        """The item after the last one; None if it has not come yet."""
        if when is not None:
            self._wait(when, timeout)
        row = self._next()
        return row if self._plain or row is None else self._codec.show(row)

    def get_next_attribute(
        self, name: str, default: Value = None, *, when: Value = None, timeout: float | None = None
    ) -> Value:
        """One attribute of the item after the last one; `default` if it has not come yet."""
        self._wait(when, timeout)
        row = self._next()
        return default if row is None else self._codec.attribute(row, name)

    def seek(self, item_id: int) -> None:
        """Goes on from this id, forth or back."""
        self._ids: Sequence[int] = ()
        self._rows: Sequence[Row] = ()
        self._at = 0
        self._behind = item_id
        self._changes = self._version = -1

    def _next(self) -> Row | None:
        storage = self._storage
        while True:
            at = self._at
            if at < len(self._rows) and self._version == storage.version:
                self._at = at + 1
                item_id = self._ids[at]
                if storage.changes == self._changes or self._is_there(item_id):
                    self.last_id = item_id
                    return self._rows[at]
            else:
                with self._lock:
                    if not self._advance():
                        return None

    def _is_there(self, item_id: int) -> bool:
        """Whether an item that was taken out of its block is still to be shown."""
        storage = self._storage
        if not storage.in_order:
            return not storage.was_removed(item_id) and not self._has_consumed(item_id)
        if item_id < storage.first_id or item_id < self._consumer.floor:
            return False
        self._changes = storage.changes  # then all after it are there
        return True

    def _advance(self) -> bool:
        """Takes the next rows out of their block; False if there are none."""
        storage = self._storage
        start = self._ids[self._at] if self._at < len(self._ids) else self._behind
        start = max(start, storage.first_id, self._consumer.floor)
        if start >= storage.next_id and not self._store.pull_until(start):
            self._rows, self._ids, self._at, self._behind = (), (), 0, start
            return False
        block = storage.block(start)
        new = block.growing() if isinstance(block, NewRows) else None
        if new is not None:
            self._ids, self._rows, self._at = range(block.first, _NO_END), new, start - block.first
        else:
            self._ids, self._rows, self._behind = block.rows(start, storage.rows_at_once)
            self._at = 0
        self._changes = storage.changes if self._consumer.marks.isdisjoint(self._ids[: len(self._rows)]) else -1
        self._version = storage.version
        return True


READERS: dict[ReadPattern, type[Reader]] = {
    ReadPattern.SEQUENTIAL: SequentialReader,
    ReadPattern.RANDOM: RandomReader,
    ReadPattern.CLUSTERED: ClusteredReader,
}
