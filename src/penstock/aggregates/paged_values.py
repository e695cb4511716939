"""The distinct values of slots where there are too many for memory: how often each is in the window, on a device.

    values enter and leave ─▶ log ── an evaluation ──▶ pages: (owner, value) ─▶ how often      ─▶ +1, 0 or -1
                              (by partition)           each is read once for all that waits       for each

A value that comes or goes is looked for only when somebody asks how many there are. Until then it waits in a log; so a
window that slides pays for a page and not for an event. Where windows are evaluated at every event, all values of a
call are sorted by page, each page plays its own in their order, and what each of them changed is put back in the order
of events: no page is read twice in a call, and the counts are those of every single event.

Invariants:
1. `distinct` of a slot, which the caller keeps, is the number of its values that are not stale in the pages: what waits
   has no part in it.
2. `stale` entries of pages belong to slots that were reset. A page drops its own when it is read.
3. What takes memory here beyond pages that may go at any moment was less than what the table took that came before.
4. No partition keeps more than `_most` operations waiting: they are read as a whole.

Owned by one `distinct.DistinctState`, which has all of it on its account.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import value_page_kernels as kernels
from penstock.aggregates import value_table as values
from penstock.aggregates.state import Snapshot
from penstock.aggregates.value_log import ValueLog
from penstock.aggregates.value_pages import ValuePages
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.store.own_memory import zeros

LEAST_WORK, MOST_WORK = 384 << 10, 48 << 20
"""Bytes for the log and the work on pages: less than the one does not do, and more than the other is no better."""

_BUFFER_BYTES = 16384
_LEAST_PARTITIONS, _MOST_PARTITIONS = 4, 256

_WORK_BYTES = 160
"""What an operation takes while the operations of its partition are played: read, sorted, and in a page of its own."""

_NO_CHANGES = np.empty(0, np.int32)


@component("PagedValues")
class PagedValues:
    """`nbytes` of memory are for the log and for the work on pages."""

    def __init__(self, device: BlockDevice, account: Account, nbytes: int) -> None:
        self._account = account
        self._work = nbytes // 2
        self._most = max(1, self._work // _WORK_BYTES)
        partitions = max(_LEAST_PARTITIONS, min(_MOST_PARTITIONS, nbytes // 2 // _BUFFER_BYTES))
        partitions = 1 << (partitions.bit_length() - 1)
        account.charge(nbytes)
        self._log = ValueLog(device, partitions, nbytes // 2)
        self._held = nbytes
        self._pages = ValuePages(device, account, partitions, self._work)
        self.stale = 0
        self._cells: Int64s = zeros((0, 3), np.int64)
        self._played: Int64s = np.empty((0, 3), np.int64)

    @property
    def work_nbytes(self) -> int:
        """What is there whatever pages are in memory."""
        return self._held

    @property
    def nbytes(self) -> int:
        return self._held + self._pages.nbytes

    @property
    def entries(self) -> int:
        """Those that are stale are among them."""
        return self._pages.entries

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that is not stale, and nothing waits."""
        return self.entries <= self.stale and not self._log.waiting.any()

    def fill(self, entries: Int64s) -> None:
        """Takes over all entries of a table. They are sorted in their place."""
        pages = self._pages.fitting(len(entries))
        level = 1 << (pages.bit_length() - 1)
        begins: Int64s = np.zeros(pages + 1, np.int64)
        kernels.count_pages(entries, pages, level, begins)
        kernels.sort_by_page(entries, pages, level, begins, begins.copy())
        self._pages.fill(entries, pages, begins)

    def append(self, operations: Int64s, distinct: Int64s, generations: Int64s) -> None:
        """Values come and go, without an evaluation."""
        self._log.append(operations, self._partitions_of(operations))
        for partition in np.flatnonzero(self._log.waiting > self._most).tolist():
            self._settle(partition, None, distinct, generations, _NO_CHANGES)
        self._pages.fit()

    def play(self, operations: Int64s, distinct: Int64s, generations: Int64s) -> Slots:
        """Values come and go; returns what each of them changes. What waited has changed `distinct` before that."""
        changes = np.zeros(len(operations), np.int32)
        waiting = self._log.waiting
        if waiting.any():
            order, begins = sorted_numbers(self._partitions_of(operations), self._log.partitions)
            for partition in np.flatnonzero((waiting > 0) | (np.diff(begins) > 0)).tolist():
                own = order[begins[partition] : begins[partition + 1]]
                self._settle(partition, (operations[own], own), distinct, generations, changes)
        else:
            self._play(operations, np.arange(len(operations)), distinct, generations, changes)
        if 2 * self.stale > self.entries:
            for page in range(self._pages.pages):
                self._play_page(page, operations, _NO_NUMBERS, _NO_NUMBERS, distinct, generations, changes)
        self._pages.fit()
        self._pages.settle()
        return changes

    def _partitions_of(self, operations: Int64s) -> Int64s:
        """A partition has the pages whose numbers end in its bits."""
        numbers = np.empty(len(operations), np.int64)
        kernels.find_partitions(operations, self._log.partitions - 1, numbers)
        return numbers

    def _settle(
        self,
        partition: int,
        last: tuple[Int64s, Int64s] | None,
        distinct: Int64s,
        generations: Int64s,
        changes: Slots,
    ) -> None:
        """Plays what waits in a partition, and then the last operations, which have their targets with them."""
        operations = self._log.read(partition)
        targets = np.full(len(operations), -1, np.int64)
        if last is not None:
            operations, targets = np.concatenate([operations, last[0]]), np.concatenate([targets, last[1]])
        self._play(operations, targets, distinct, generations, changes)
        self._log.forget(partition)

    def _play(self, operations: Int64s, targets: Int64s, distinct: Int64s, generations: Int64s, changes: Slots) -> None:
        numbers = np.empty(len(operations), np.int64)
        kernels.find_pages(operations, self._pages.pages, self._pages.level, numbers)
        order, begins = sorted_numbers(numbers, self._pages.pages)
        for page in np.flatnonzero(np.diff(begins)).tolist():
            own = order[begins[page] : begins[page + 1]]
            self._play_page(page, operations, own, targets, distinct, generations, changes)

    def _play_page(
        self,
        page: int,
        operations: Int64s,
        order: Int64s,
        targets: Int64s,
        distinct: Int64s,
        generations: Int64s,
        changes: Slots,
    ) -> None:
        entries = self._pages.read(page)
        most = len(entries) + len(order)
        cells = values.cells_for(most)
        if cells > len(self._cells):
            self._cells = zeros((cells, 3), np.int64)
        if most > len(self._played):
            self._played = np.empty((most + most // 4, 3), np.int64)
        dropped = np.zeros(1, np.int64)
        count = kernels.play_page(
            entries,
            self._cells[:cells],
            generations,
            operations,
            order,
            targets,
            distinct,
            changes,
            self._played,
            dropped,
        )
        self.stale -= int(dropped[0])
        self._pages.entries += count - len(entries)
        self._pages.write(page, self._played[:count])

    def into_table(self, table: Int64s, generations: Int64s) -> int:
        """Puts all values into a table that has room for them; returns how many there are. Nothing waits."""
        return sum(kernels.enter_live(self._pages.read(page), table, generations) for page in range(self._pages.pages))

    def page_out(self) -> bool:
        """Gives up pages that are in memory; whether there were some."""
        return self._pages.page_out()

    def close(self) -> None:
        """Nothing stays, on the device or on the account."""
        for partition in range(self._log.partitions):
            self._log.forget(partition)
        self._pages.close()
        self._account.release(self._held)
        self._held = 0

    def snapshot(self) -> Snapshot:
        return {"stale": self.stale, "log": self._log.snapshot(), "pages": self._pages.snapshot()}

    def restore(self, snapshot: Snapshot) -> None:
        self.stale = snapshot["stale"]
        self._log.restore(snapshot["log"], self._partitions_of)
        self._pages.restore(snapshot["pages"])


_NO_NUMBERS = np.empty(0, np.int64)


def work_of(account: Account) -> int:
    """Memory for values on pages where nothing says how much they took before."""
    return max(min(LEAST_WORK, account.total // 4), min(MOST_WORK, account.total // 8))


def sorted_numbers(numbers: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """In which order equal numbers are side by side, and where the run of each number below `count` begins."""
    begins: Int64s = np.zeros(count + 1, np.int64)
    kernels.count_numbers(numbers, begins)
    order = np.empty(len(numbers), np.int64)
    kernels.order_numbers(numbers, begins[:-1].copy(), order)
    return order, begins
