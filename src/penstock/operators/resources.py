"""What an operator gets from its runtime: memory of the budget, stores, a place for rejects, user aggregates.

Each pipeline has a `Resources` of its own that remembers what it gave out, so that a dropped query leaves nothing
behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.aggregates.user import UserAggregate
from penstock.plan.nodes import Node
from penstock.rejects import Reject
from penstock.store.budget import Account
from penstock.store.derived_properties import Window, joined_rows, panes, reordering, stored_rows, table_rows
from penstock.store.device import BlockDevice
from penstock.store.fifo import ColumnSpec, FifoStore
from penstock.store.keyed import KeyedStore
from penstock.store.manager import StoreManager
from penstock.store.queues import RowQueues
from penstock.store.runs import RunStore
from penstock.store.slidem import UNLIMITED

if TYPE_CHECKING:
    from penstock.operators.tables.table import Table


_LEAST_BLOCK, _BLOCK_SHARE = 1024, 256
"""Rows on a device that others have, too, are in blocks of such a part of the memory."""


class Tables(Protocol):
    """The tables of an app, and where streams stand in the total order of events."""

    def table(self, name: str) -> Table: ...

    def position(self, stream: str) -> int: ...


class Resources:
    """`now` is the local clock's time and `passed` the number of rows that each stream has seen when the pipeline is
    made. What is put to `later` is called before the runtime returns. With a `device` the rows of joins and
    partitions go there, and not to one of their own."""

    def __init__(
        self,
        stores: StoreManager,
        reject: Reject,
        user_aggregates: Mapping[str, UserAggregate] | None = None,
        *,
        now: int = 0,
        passed: Mapping[str, int] | None = None,
        tables: Tables | None = None,
        later: list[Callable[[], None]] | None = None,
        device: BlockDevice | None = None,
    ) -> None:
        self._device = device
        self._accounts: list[Account] = []
        self.later: list[Callable[[], None]] = [] if later is None else later
        self._stores = stores
        self.reject = reject
        self.user_aggregates = user_aggregates or {}
        self.now = now
        self.passed = passed or {}
        self._tables = tables
        self._given: list[Callable[[], None]] = []

    def rows_before(self, node: Node) -> int:
        """How many rows came out of a node before this pipeline read it: of a stream, for the rest is its own."""
        name = node.stream_name
        return 0 if name is None else self.passed.get(name, 0)

    @property
    def tables(self) -> Tables:
        assert self._tables is not None, "plans with tables run where there are some"
        return self._tables

    def account(self, name: str, *, is_spare: bool = False) -> Account:
        account = self._stores.budget.account(name, is_spare=is_spare)
        self._given.append(account.close)
        self._accounts.append(account)
        return account

    @property
    def nbytes(self) -> int:
        """What is on the accounts that it gave out, stores with a device of their own aside."""
        return sum(account.nbytes for account in self._accounts)

    def fifo(self, name: str, columns: Sequence[ColumnSpec], windows: Sequence[Window] = ()) -> FifoStore:
        """Rows for windows over a stream, or panes for them."""
        store = self._stores.create(name, stored_rows(windows) if windows else panes(), columns)
        self._given.append(lambda: self._stores.drop(name))
        assert isinstance(store, FifoStore)
        return store

    def rows(self, name: str, columns: Sequence[ColumnSpec]) -> FifoStore:
        """Rows for the window of a join: they leave in order and are read from anywhere."""
        if self._device is not None:
            return self._rows_on(self._device, name, columns)
        store = self._stores.create(name, joined_rows(), columns)
        self._given.append(lambda: self._stores.drop(name))
        assert isinstance(store, FifoStore)
        return store

    def _rows_on(self, device: BlockDevice, name: str, columns: Sequence[ColumnSpec]) -> FifoStore:
        account = self.account(name)
        size = min(device.capacity, max(_LEAST_BLOCK, account.total // _BLOCK_SHARE))
        store = FifoStore(columns, device, account, block_size=size, pool_blocks=UNLIMITED, by_row=True)
        self._given.insert(0, lambda: store.release(store.head))
        return store

    def runs(self, name: str, time_column: str) -> RunStore:
        """Rows that wait for earlier ones."""
        store = self._stores.create(name, reordering(), time_column=time_column)
        self._given.append(lambda: self._stores.drop(name))
        assert isinstance(store, RunStore)
        return store

    def queues(self, name: str, columns: Sequence[ColumnSpec], window: Window) -> RowQueues:
        """Rows for a window per partition, or sessions."""
        if self._device is not None:
            queues = RowQueues(columns, self._device, self.account(name))
            self._given.insert(0, queues.discard)
            return queues
        store = self._stores.create(name, stored_rows([window]), columns)
        self._given.append(lambda: self._stores.drop(name))
        assert isinstance(store, RowQueues)
        return store

    def keyed(self, name: str, words: int, narrow: bool, columns: Sequence[ColumnSpec]) -> KeyedStore:
        """Rows of a table."""
        store = self._stores.create_keyed(name, table_rows(), words, narrow, columns)
        self._given.append(store.close)
        return store

    def device(self, name: str) -> BlockDevice:
        device = self._stores.create_device(name)
        self._given.append(lambda: self._stores.drop(name))
        return device

    def apart(
        self,
        reject: Reject | None = None,
        device: BlockDevice | None = None,
        later: list[Callable[[], None]] | None = None,
    ) -> Resources:
        """The same for something that lives and ends by itself, may reject otherwise, may have a device, and may call
        what is put to `later` itself."""
        return Resources(
            self._stores,
            reject or self.reject,
            self.user_aggregates,
            now=self.now,
            passed=self.passed,
            tables=self._tables,
            later=self.later if later is None else later,
            device=device,
        )

    def at_end(self, give_back: Callable[[], None]) -> None:
        """Has something else given back with the rest."""
        self._given.append(give_back)

    def close(self) -> None:
        """Gives everything back."""
        for give_back in self._given:
            give_back()
        self._given.clear()
