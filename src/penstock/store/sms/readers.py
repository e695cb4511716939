"""Readers of a store, each with its own read pattern, block cache and consumption.

    sequential   one item after the other: rows leave their block some hundred at a time, no id index is asked
    random       any item: the id index is asked every time, no cache, since any block may be next
    clustered    any item, often near the last one: the last block is tried first, then the id index

Invariants:
1. A reader shows an item only as long as it is in the store and the reader has not consumed it.
2. A reader holds at most one block, and gives it up when the storage's `version` says that blocks have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import StorageError
from penstock.store.sms.consumption import Consumer
from penstock.store.sms.items import Item, Row, Value
from penstock.store.sms.properties import IndexSchema, ReadPattern, place_of
from penstock.store.sms.storage import Block, missing

if TYPE_CHECKING:
    from penstock.store.sms.instance import StoreInstance

Notify = Callable[[int, Item], None]
"""What a store with push access calls for every new item, with its id."""


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

    def get_item(self, item_id: int, *, when: Value = None, timeout: float | None = None) -> Item:
        if when is not None:
            self._wait(when, timeout)
        with self._lock:
            row = self._find(item_id)
        return row if self._plain else self._codec.show(row)

    def get_attribute(self, item_id: int, name: str, *, when: Value = None, timeout: float | None = None) -> Value:
        if when is not None:
            self._wait(when, timeout)
        schema = self._codec.schema
        with self._lock:
            if schema is None:
                return self._codec.attribute(self._find(item_id), name)
            return self._find_cell(item_id, place_of(schema, name))

    def _find(self, item_id: int) -> Row:
        if item_id >= self._storage.next_id:
            self._store.pull_until(item_id)
        row = None if self._has_consumed(item_id) else self._row(item_id)
        if row is None:
            raise missing(item_id)
        return row

    @abstractmethod
    def _row(self, item_id: int) -> Row | None: ...

    @abstractmethod
    def _find_cell(self, item_id: int, place: int) -> Value: ...


class RandomReader(ReaderById):
    pattern = ReadPattern.RANDOM

    def _row(self, item_id: int) -> Row | None:
        return self._storage.row(item_id)

    def _find_cell(self, item_id: int, place: int) -> Value:
        if not self._storage.holds(item_id) or self._has_consumed(item_id):
            self._find(item_id)
        return self._storage.cell(item_id, place)


class ClusteredReader(ReaderById):
    pattern = ReadPattern.CLUSTERED

    def __init__(self, store: StoreInstance, name: str, consumer: Consumer, notify: Notify | None) -> None:
        super().__init__(store, name, consumer, notify)
        self._block: Block | None = None
        self._version = -1

    def _row(self, item_id: int) -> Row | None:
        block = self._near(item_id)
        return None if block is None else block.row(item_id)

    def _find_cell(self, item_id: int, place: int) -> Value:
        block = self._near(item_id)
        if block is None or self._has_consumed(item_id) or block.row(item_id) is None:
            self._find(item_id)
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
        self._account = store.place.account(f"reader {name}")
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
        self._rows: list[Row] = []
        self._at = 0
        self._behind = item_id
        self._changes = self._version = -1

    def close(self) -> None:
        super().close()
        self._account.close()

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
        return not self._storage.was_removed(item_id) and not self._has_consumed(item_id)

    def _advance(self) -> bool:
        """Takes the next rows out of their block; False if there are none."""
        storage = self._storage
        start = self._ids[self._at] if self._at < len(self._rows) else self._behind
        start = max(start, storage.first_id, self._consumer.floor)
        if start >= storage.next_id and not self._store.pull_until(start):
            self._rows, self._ids, self._at, self._behind = [], (), 0, start
            return False
        marks = self._consumer.marks
        ids, rows, self._behind = storage.block(start).rows(start, storage.rows_at_once)
        if not marks.isdisjoint(ids):
            kept = [at for at, item_id in enumerate(ids) if item_id not in marks]
            ids, rows = [ids[at] for at in kept], [rows[at] for at in kept]
        self._ids, self._rows, self._at = ids, rows, 0
        self._changes, self._version = storage.changes, storage.version
        return True


READERS: dict[ReadPattern, type[Reader]] = {
    ReadPattern.SEQUENTIAL: SequentialReader,
    ReadPattern.RANDOM: RandomReader,
    ReadPattern.CLUSTERED: ClusteredReader,
}
