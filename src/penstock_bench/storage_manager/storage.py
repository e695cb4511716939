"""What every implementation of a store gives to the operations: rows under rising ids, in blocks.

There is one implementation for each way to keep items: `fifo_storage` (FIFO and NO-UPDATE), `random_storage` (RANDOM),
`keyed_storage` (IN-PLACE) and `database_storage` (persistent, every pattern).

Invariants:
1. Ids rise by one per item, from 0, and are never given twice.
2. A call that raises has changed nothing.
3. A block that was handed out shows the rows it had then, as long as `version` is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Set

from penstock.errors import StorageError
from penstock.instruments import Account, BlockDevice, Budget, Row, Value
from penstock_bench.storage_manager.indices import ValueIndices
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.properties import IndexSchema

NEW_ROWS = 256
"""Rows that were just buffered are tuples; about so many become columns at once."""


class Place:
    """What a store lives on: accounts of a budget, and a device for blocks, made when it is asked for."""

    def __init__(self, name: str, budget: Budget, device: Callable[[], BlockDevice]) -> None:
        self.device = device
        self._name = name
        self._budget = budget
        self._accounts: list[Account] = []

    def account(self, what: str) -> Account:
        account = self._budget.account(f"{self._name}: {what}")
        self._accounts.append(account)
        return account

    def give_back(self) -> None:
        """Closes all accounts."""
        for account in self._accounts:
            account.close()


class Block(ABC):
    """Some items that lie together: those of the ids in [first, stop) that are left."""

    first: int
    stop: int

    @abstractmethod
    def row(self, item_id: int) -> Row | None:
        """None if there is no such item."""

    @abstractmethod
    def cell(self, item_id: int, place: int) -> Value: ...

    @abstractmethod
    def rows(self, start: int, limit: int) -> tuple[Sequence[int], list[Row], int]:
        """Up to `limit` items from id `start` on: their ids, the rows, and the id to go on from."""


class NewRows(Block):
    """A block of rows that are not yet columns: the list may grow."""

    def __init__(self, first: int, rows: list[Row], dead: Set[int] = frozenset()) -> None:
        self.first = first
        self._rows = rows
        self._dead = dead

    @property
    def stop(self) -> int:  # type: ignore[override]
        return self.first + len(self._rows)

    def growing(self) -> list[Row] | None:
        """All its rows, those that are still to come as well; None if some are gone."""
        return None if self._dead else self._rows

    def row(self, item_id: int) -> Row | None:
        return None if item_id in self._dead else self._rows[item_id - self.first]

    def cell(self, item_id: int, place: int) -> Value:
        return self._rows[item_id - self.first][place]

    def rows(self, start: int, limit: int) -> tuple[Sequence[int], list[Row], int]:
        stop = min(self.stop, start + limit)
        ids, rows = range(start, stop), self._rows[start - self.first : stop - self.first]
        if not self._dead:
            return ids, rows, stop
        living = [(item_id, row) for item_id, row in zip(ids, rows, strict=True) if item_id not in self._dead]
        return [item_id for item_id, _ in living], [row for _, row in living], stop


_OTHER_PATTERN = "the store's update pattern is another, and its instance refuses the operation before"


class Storage(ABC):
    """`first_id` is that of the oldest item there may be, `next_id` that of the next to come. `version`
    counts changes of blocks, `changes` those of which items are shown. Rows are handled `rows_at_once` together; a
    block takes `block_bytes` at most."""

    codec: ItemCodec
    first_id: int
    next_id: int
    rows_at_once: int
    block_bytes: int
    in_order: bool = False
    """Whether items only ever leave before all that are left."""
    version: int = 0
    changes: int = 0

    @abstractmethod
    def append(self, row: Row) -> int: ...

    @abstractmethod
    def row(self, item_id: int) -> Row | None:
        """None if there is no such item."""

    def holds(self, item_id: int) -> bool:
        """Whether there is such an item."""
        return self.row(item_id) is not None

    def first_absent(self, item_ids: Sequence[int]) -> int | None:
        """The first of some ids of which there is no item; they rise."""
        return next((item_id for item_id in item_ids if not self.holds(item_id)), None)

    def was_removed(self, item_id: int) -> bool:
        """Whether an item that was in some block of this version is gone."""
        return item_id < self.first_id

    @abstractmethod
    def cell(self, item_id: int, place: int) -> Value:
        """One value of an item that there is."""

    @abstractmethod
    def block(self, item_id: int) -> Block:
        """The block with an id in [first_id, next_id)."""

    @abstractmethod
    def add_index(self, schema: IndexSchema) -> None: ...

    @abstractmethod
    def find(self, schema: IndexSchema, values: Sequence[Value]) -> Iterator[tuple[int, Row]]:
        """The items that an index there is finds for values that `Matcher.admit` let in, in the order of their ids."""

    def release_upto(self, item_id: int) -> None:
        """Items before the id are gone: FIFO."""
        raise AssertionError(_OTHER_PATTERN)

    def remove(self, item_ids: Sequence[int]) -> None:
        """These items, which there are, are gone: RANDOM. The ids rise."""
        raise AssertionError(_OTHER_PATTERN)

    def replace(self, item_id: int, row: Row) -> None:
        """The item has other values now: IN-PLACE."""
        raise AssertionError(_OTHER_PATTERN)

    @abstractmethod
    def sync(self) -> None:
        """Makes everything durable, if the store is persistent."""

    @abstractmethod
    def close(self) -> None:
        """Ends its use. The caller that made its `Place` gives the `Place` back."""

    @abstractmethod
    def destroy(self) -> None:
        """Like `close`, and nothing of it is left anywhere."""

    @abstractmethod
    def consumers(self) -> dict[str, list[int]]:
        """What each reader that was there before has consumed, in a store that was there before."""

    @abstractmethod
    def note_consumer(self, name: str, consumed: Sequence[int] = (), *, alone: bool = False) -> None:
        """There is such a reader, and it has consumed these; alone: what was noted of it before is outdated."""

    @abstractmethod
    def forget_consumer(self, name: str) -> None:
        """There is no such reader any more."""

    def items(self) -> Iterator[tuple[int, Row]]:
        """All items in the order of their ids."""
        start = self.first_id
        while start < self.next_id:
            ids, rows, start = self.block(start).rows(start, NEW_ROWS)
            yield from zip(ids, rows, strict=True)


class TransientStorage(Storage):
    """A storage whose value indices are in memory."""

    def __init__(self, codec: ItemCodec, indices: ValueIndices) -> None:
        self.codec = codec
        self._indices = indices

    def sync(self) -> None:
        """Nothing outlives the store."""

    def close(self) -> None:
        """All it has is its place's."""

    def destroy(self) -> None:
        """See `close`."""

    def consumers(self) -> dict[str, list[int]]:
        return {}

    def note_consumer(self, name: str, consumed: Sequence[int] = (), *, alone: bool = False) -> None:
        """The store instance knows them as long as there is anything to know."""

    def forget_consumer(self, name: str) -> None:
        """See `note_consumer`."""

    def add_index(self, schema: IndexSchema) -> None:
        self._indices.add(schema, self.items())

    def find(self, schema: IndexSchema, values: Sequence[Value]) -> Iterator[tuple[int, Row]]:
        matcher, candidates = self._indices.candidates(schema, values)
        for item_id in candidates:
            row = self.row(item_id)
            if row is not None and matcher.matches(row, values):
                yield item_id, row


def missing(item_id: int) -> StorageError:
    return StorageError(f"there is no item {item_id}: it expired, was consumed, or never came")
