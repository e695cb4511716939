"""A store instance: the operations of the storage manager on one store, as its properties export them.

The producer uses the store itself; each consumer has a reader of its own (`readers`). An item that the producer deletes
has expired and is gone for all readers at once. An item that a reader deletes is consumed by that reader only; it goes
when all readers have consumed it.

Invariants:
1. One operation at a time is inside a store: every one holds `lock`, except reads from rows that a reader already has.
2. An operation that the properties do not export is refused and changes nothing.
3. A waiting read holds no lock; it is woken by every item that comes.

Made by `lifecycle`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from threading import Condition, RLock

from penstock.errors import BudgetError, StorageError
from penstock.instruments import ReadPattern, Row, Sharing, UpdatePattern, Value
from penstock_bench.storage_manager.consumption import MarkedConsumption, OrderedConsumption
from penstock_bench.storage_manager.indices import Matcher
from penstock_bench.storage_manager.items import Item
from penstock_bench.storage_manager.properties import Access, IndexSchema, Properties, Transient
from penstock_bench.storage_manager.readers import READERS, Notify, Reader
from penstock_bench.storage_manager.storage import Place, Storage, missing


class StoreInstance:
    """`source` is what an active store takes its items from."""

    def __init__(
        self, name: str, properties: Properties, storage: Storage, place: Place, source: Iterable[Item] | None
    ) -> None:
        self.name = name
        self.properties = properties
        self.storage = storage
        self.lock = RLock()
        self._arrival = Condition(self.lock)
        self.place = place
        self._source = None if source is None else iter(source)
        self._open = True
        self._readers: dict[str, Reader] = {}
        self._remembers = not isinstance(properties.persistence, Transient)
        self._ordered = OrderedConsumption(storage.consumers())
        marked = storage.consumers() if properties.update is UpdatePattern.RANDOM else {}
        self._marked = MarkedConsumption(marked, place.account("consumed items"))
        self._matchers: dict[IndexSchema, Matcher] = {}
        self._condition: IndexSchema | None = None
        self._held: tuple[Value, int] | None = None  # the last value for which the condition held, and as of when
        if properties.synchronization is not None:
            wanted = properties.synchronization
            self._condition = IndexSchema(((wanted.attribute, wanted.comparison),))
            self.register_index(self._condition)

    # --- inserting ----------------------------------------------------------------------------------------------------

    def buffer_item(self, item: Item) -> int:
        """Adds an item behind all others; returns its id. For passive stores."""
        if self._source is not None:
            raise StorageError(f"{self.name} is active and takes its items from its source; make it passive")
        return self._buffer(item)

    def run(self, limit: int | None = None) -> int:
        """An active store takes up to `limit` items from its source, all if None; returns how many came."""
        if self._source is None:
            raise StorageError(f"{self.name} is passive; hand items over with buffer_item")
        taken = 0
        while (limit is None or taken < limit) and self._pull():
            taken += 1
        return taken

    def _buffer(self, item: Item) -> int:
        return self._enter(self.storage.codec.admit(item))

    def _enter(self, row: Row) -> int:
        with self.lock:
            self._check_open()
            item_id = self.storage.append(row)
            if self._condition is not None:
                self._arrival.notify_all()
        if self.properties.access is Access.PUSH:
            for reader in list(self._readers.values()):
                if reader.notify is not None:
                    reader.notify(item_id, self.storage.codec.show(row))
        return item_id

    def _pull(self) -> bool:
        """One more item from the source, if there is one."""
        if self._source is None:
            return False
        for item in self._source:
            self._buffer(item)
            return True
        return False

    def pull_until(self, item_id: int) -> bool:
        """An active store takes items until it has this one; whether it is there."""
        while self.storage.next_id <= item_id and self._pull():
            pass
        return self.storage.next_id > item_id

    # --- updating: the producer ---------------------------------------------------------------------------------------

    def delete_up_to(self, item_id: int) -> None:
        """All items up to this one have expired. FIFO."""
        self._require(UpdatePattern.FIFO, "delete_up_to")
        with self.lock:
            self._release(self._known(item_id) + 1)

    def delete_items(self, item_ids: Sequence[int]) -> None:
        """These items have expired. RANDOM."""
        self._require(UpdatePattern.RANDOM, "delete_items")
        with self.lock:
            self._remove(self._present(item_ids))

    def update(self, index: IndexSchema, item: Item, values: Sequence[Value]) -> int:
        """Every item that the index finds for the values becomes this one; if there is none, it is added. Returns how
        many there were. IN-PLACE."""
        self._require(UpdatePattern.IN_PLACE, "update")
        if not index.is_key:
            raise StorageError("update needs an index that compares all its attributes for equality")
        row = self.storage.codec.admit(item)
        with self.lock:
            found = list(self.matching(index, values))
            for item_id, _ in found:
                self.storage.replace(item_id, row)
            if found:
                self.storage.changes += 1
                self._arrival.notify_all()
            else:
                self._enter(row)
        return len(found)

    # --- reading ------------------------------------------------------------------------------------------------------

    def reader(self, name: str, pattern: ReadPattern | None = None, notify: Notify | None = None) -> Reader:
        """A consumer with its own place in the store. A store that is not shared has one at a time; the readers of a
        persistent store are known by their names when it is opened again."""
        offered = self.properties.read
        pattern = offered[0] if pattern is None else pattern
        if pattern not in offered:
            kinds = ", ".join(kind.value for kind in offered)
            raise StorageError(f"{self.name} was made for {kinds} reads, not for {pattern.value} ones; add the pattern")
        self._check_open()
        if not name or name in self._readers or not name.isprintable():
            raise StorageError(f"{self.name} needs a new, printable name for a reader, not {name!r}")
        if self.properties.sharing is Sharing.NOT_SHARED and self._readers:
            raise StorageError(f"{self.name} is not shared and is read by {next(iter(self._readers))}; make it shared")
        if (notify is not None) != (self.properties.access is Access.PUSH):
            raise StorageError(
                "a reader of a store with push access says whom to notify, one with pull access does not"
            )
        with self.lock:
            consumption = self._marked if self.properties.update is UpdatePattern.RANDOM else self._ordered
            is_new = name not in consumption
            try:
                reader = READERS[pattern](self, name, consumption.join(name), notify)
            except BudgetError:
                if is_new:  # or it would be waited for
                    consumption.leave(name)
                raise
            self.storage.note_consumer(name)
            self._readers[name] = reader
        return reader

    def register_index(self, schema: IndexSchema) -> None:
        """Items can be found by these attributes from now on."""
        with self.lock:
            matcher = Matcher(schema, self.storage.codec)
            self.storage.add_index(schema)
            self._matchers[schema] = matcher

    def matching(self, index: IndexSchema, values: Sequence[Value]) -> Iterator[tuple[int, Row]]:
        """The rows that a registered index finds, with their ids."""
        matcher = self._matchers.get(index)
        if matcher is None:
            raise StorageError(
                f"there is no index on {', '.join(index.attributes)} with these comparisons; register it first"
            )
        with self.lock:
            return iter(list(self.storage.find(index, matcher.admit(values))))

    def wait_for(self, value: Value, timeout: float | None = None) -> None:
        """Returns when the synchronization condition holds for a value; an error after `timeout` seconds."""
        if self._condition is None:
            raise StorageError(f"{self.name} was made without a synchronization condition; name one in its properties")
        if self._held == (value, self.storage.changes):
            return
        values = self._matchers[self._condition].admit([value])
        ends = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            while next(iter(self.storage.find(self._condition, values)), None) is None:
                if self._pull():
                    continue
                left = None if ends is None else ends - time.monotonic()
                if self._source is not None or (left is not None and left <= 0):
                    attribute, comparison = self._condition.terms[0]
                    why = "the source has ended" if self._source is not None else f"{timeout} s have passed"
                    raise StorageError(f"{self.name} has no item with {attribute} {comparison.value} {value!r}: {why}")
                self._arrival.wait(left)
            self._held = value, self.storage.changes

    # --- consuming: the readers ---------------------------------------------------------------------------------------

    def consume_up_to(self, name: str, item_id: int) -> None:
        self._require(UpdatePattern.FIFO, "delete_up_to")
        storage = self.storage
        with self.lock:
            self._check_reader(name)
            floor = self._ordered.consume_upto(name, self._known(item_id) + 1)
            if floor > storage.first_id:
                storage.release_upto(floor)
            storage.changes += 1
            if self._remembers:
                storage.note_consumer(name, [self._ordered.join(name).floor - 1], alone=True)

    def consume_items(self, name: str, item_ids: Sequence[int]) -> None:
        self._require(UpdatePattern.RANDOM, "delete_items")
        with self.lock:
            self._check_reader(name)
            new = self._present(item_ids, self._marked.join(name).marks)
            done = self._marked.consume(name, new)
            if self._remembers:
                self.storage.note_consumer(name, new)
            self._remove(done)
            self.storage.changes += 1

    def remove_reader(self, name: str) -> None:
        """Its consumption no longer counts. With its last reader a store keeps what it has."""
        with self.lock:
            self._check_reader(name)
            del self._readers[name]
            self.storage.forget_consumer(name)
            if self.properties.update is UpdatePattern.RANDOM:
                self._remove(self._marked.leave(name))
            else:
                self._release(self._ordered.leave(name))

    # --- ending -------------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """What a persistent store has is durable from now on."""
        with self.lock:
            self.storage.sync()

    def close(self) -> None:
        """Gives the memory back; a persistent store can be opened again."""
        self._end(self.storage.close)

    def destroy(self) -> None:
        """Like `close`, and a persistent store's table is dropped."""
        self._end(self.storage.destroy)

    def _end(self, end: Callable[[], None]) -> None:
        with self.lock:
            self._readers.clear()
            self._open = False
            try:
                end()
            finally:
                self.place.give_back()

    def _check_open(self) -> None:
        if not self._open:
            raise StorageError(f"{self.name} was removed or closed; create it again")

    def _check_reader(self, name: str) -> None:
        if name not in self._readers:
            raise StorageError(f"the reader {name} of {self.name} was closed; make another")

    def _require(self, pattern: UpdatePattern, operation: str) -> None:
        if self.properties.update is not pattern:
            raise StorageError(
                f"{operation} is for stores with the update pattern {pattern.value}; {self.name} has "
                f"{self.properties.update.value}"
            )

    def _known(self, item_id: int) -> int:
        if item_id >= self.storage.next_id:
            raise missing(item_id)
        return item_id

    def _present(self, item_ids: Sequence[int], besides: Set[int] = frozenset()) -> list[int]:
        """The ids once each and rising, all of items that are there and not `besides`."""
        wanted = sorted(set(item_ids))
        absent = next((item_id for item_id in wanted if item_id in besides), None)
        if absent is None:
            absent = self.storage.first_absent(wanted)
        if absent is not None:
            raise missing(absent)
        return wanted

    def _release(self, floor: int) -> None:
        if floor > self.storage.first_id:
            self.storage.release_upto(floor)
            self.storage.changes += 1

    def _remove(self, item_ids: Collection[int]) -> None:
        if item_ids:
            self.storage.remove(sorted(item_ids))
            self._marked.forget(item_ids)
            self.storage.changes += 1
