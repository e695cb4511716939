"""Pages of values in the order of (slot, key), and the directory that knows them without reading them.

    directory   first, count | first, count | first, count ...     in memory
    device      entries      | entries      | entries ...          each: (slot, key) ─▶ how often

A *place* is the number of a row of the directory. The page of a row may have any number (`packed_pages`). A page that
has been asked of late stays in memory.

Invariants:
1. A page has the values from its first (slot, key) up to that of the next one; those of the first page begin with the
   least that there may be. All values that are equal are in one page.
2. COUNT of a page is how many values it has, with what waits for it. WAITING operations of the partition PARTITION are
   for it. ENTRIES and the page itself are without these.
3. Rows keep their places until `change_directory`: pages that are divided, empty or small follow then.

Owned by `paged_order.PagedOrder`.

Why: docs/decisions/ordered-pages.md
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np

from penstock.aggregates import ordered_page_kernels as kernels
from penstock.aggregates.ordered_page_kernels import (
    ASKED,
    COUNT,
    DIRECTORY_WORDS,
    ENTRIES,
    KEY,
    LEAST_KEY,
    PAGE,
    PARTITION,
    SLOT,
    WAITING,
)
from penstock.aggregates.packed_pages import NO_ENTRIES, PackedPages, mean_entries
from penstock.aggregates.state import Snapshot
from penstock.aggregates.value_table import LOAD, OWNER, VALUE
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.store.device import BlockDevice

_REMEMBERED = 4
"""A page that was asked in so many turns is still kept in memory."""


@component("OrderedPages")
class OrderedPages:
    """Its owner has `work` bytes on the account for the work on pages."""

    def __init__(self, device: BlockDevice, account: Account, work: int) -> None:
        self._mean = mean_entries(device.capacity, work)
        self._pages = PackedPages(device, account)
        self._directory = ChargedArray(account, np.int64, (DIRECTORY_WORDS,))
        self._sums = ChargedArray(account, np.int64)
        self.length = 0
        self._made = 0
        self._free: list[int] = []
        """Pages that there were, and of these the numbers that are not in use."""
        self._turn = _REMEMBERED
        self._changed: dict[int, Int64s] = {}
        """Rows that take the place of one in the directory."""
        self._has_small = False

    @staticmethod
    def bytes_for(device: BlockDevice, values: int, work: int) -> int:
        """What so many values take here, at most, when they come."""
        pages = values // mean_entries(device.capacity, work) + 1
        return 2 * (8 * DIRECTORY_WORDS + 8 * 3 + 8) * pages

    @property
    def nbytes(self) -> int:
        return self._pages.nbytes + self._directory.nbytes + self._sums.nbytes

    @property
    def rows(self) -> Int64s:
        """The directory. It moves when pages are divided."""
        rows: Int64s = self._directory.array[: self.length]
        return rows

    def fit(self) -> None:
        """Room for the sums of counts; the account may refuse it."""
        self._sums.fit(self.length + 1)

    def sums(self) -> Int64s:
        """The sums of the counts of today."""
        kernels.sum_up_pages(self._directory.array, self.length, self._sums.array)
        return self._sums.array

    def places_of(self, operations: Int64s) -> Int64s:
        places = np.empty(len(operations), np.int64)
        kernels.find_places(self._directory.array, self.length, operations, places)
        return places

    # Pages that are asked

    def remember(self, asked: Bools) -> None:
        """Some pages are asked; those that were not for long go out of memory."""
        self._turn += 1
        rows = self.rows
        rows[asked, ASKED] = self._turn
        for page in rows[rows[:, ASKED] == self._turn - _REMEMBERED, PAGE].tolist():
            self._pages.put_out(page)

    @property
    def remembered(self) -> Bools:
        """The pages that have been asked of late."""
        remembered: Bools = self.rows[:, ASKED] > self._turn - _REMEMBERED
        return remembered

    def _is_remembered(self, row: Int64s) -> bool:
        return bool(row[ASKED] > self._turn - _REMEMBERED)

    def read(self, place: int) -> Int64s:
        """The entries of a page, good until the next one is read."""
        row = self._directory.array[place]
        return self._pages.read(int(row[PAGE]), self._is_remembered(row))

    # All values at once

    def fill(self, counts: Int64s, read: Callable[[int, Int64s], None]) -> None:
        """Takes over all values: `counts` of each slot, and `read` gives the keys from a rank on."""
        total, part = int(counts.sum()), 2 * self._mean
        most = total // self._mean + 1
        self._directory.fit(most)
        self._pages.reserve(most)
        keys, entries = np.empty(part, np.int64), np.empty((2 * part, 3), np.int64)
        cursor: Int64s = np.zeros(2, np.int64)
        held = 0
        for start in range(0, total, part):
            taken = keys[: min(part, total - start)]
            read(start, taken)
            held = kernels.run_lengths(taken, counts, cursor, entries, held)
            while held > self._mean:
                self._put_last(entries[: self._mean])
                held -= self._mean
                entries[:held] = entries[self._mean : self._mean + held].copy()
        self._put_last(entries[:held])

    def _put_last(self, entries: Int64s) -> None:
        page = self.length
        self._pages.write(page, entries, keep=False)
        first = entries[0].tolist() if page else (0, LEAST_KEY, 0)
        self._directory.array[page] = first[OWNER], first[VALUE], page, entries[:, LOAD].sum(), len(entries), 0, 0, 0
        self.length = self._made = page + 1

    def list_keys(self, keys: Int64s) -> None:
        """All keys in their order; nothing waits."""
        at = 0
        for page in self.rows[:, PAGE].tolist():
            at = kernels.list_keys(self._pages.read(page), keys, at)

    # Pages that are divided, empty or small

    def put(self, place: int, entries: Int64s) -> None:
        """All entries of a page, for which nothing waits. It is divided if it has become long, and its place is to go
        if there are none."""
        pieces = round(len(entries) / self._mean) if len(entries) > 2 * self._mean else 1
        if pieces > 1 and not self._has_room(pieces - 1):
            pieces = 1  # it stays long then
        row = self._directory.array[place]
        keep = self._is_remembered(row)
        begins = np.arange(pieces + 1) * len(entries) // pieces
        rows = np.repeat(row.reshape(1, -1), pieces, axis=0)
        for piece in range(pieces):
            own = entries[begins[piece] : begins[piece + 1]]
            if piece:
                rows[piece, PAGE] = self._new_page()
                rows[piece, [SLOT, KEY]] = own[0, [OWNER, VALUE]]
            rows[piece, [COUNT, ENTRIES]] = own[:, LOAD].sum(), len(own)
            self._pages.write(int(rows[piece, PAGE]), own, keep)
        self._has_small |= 2 * len(entries) <= self._mean
        if pieces == 1 and len(entries):
            self._directory.array[place] = rows[0]
        else:
            self._changed[place] = rows if len(entries) else rows[:0]
            if not len(entries):
                self._free.append(int(row[PAGE]))

    def _has_room(self, pages: int) -> bool:
        """Whether there may be so many pages more."""
        length = self.length + pages + sum(len(rows) for rows in self._changed.values())
        with contextlib.suppress(BudgetError):
            self._directory.fit(length)
            self._sums.fit(length + 1)
            self._pages.reserve(self._made + pages)
            return True
        return False

    def _new_page(self) -> int:
        if self._free:
            return self._free.pop()
        self._made += 1
        return self._made - 1

    def change_directory(self) -> None:
        """Rows that have changed take their places, and small pages are united."""
        if self._changed:
            parts, begin = [], 0
            for place in sorted(self._changed):
                parts += [self.rows[begin:place], self._changed[place]]
                begin = place + 1
            self._take_rows(np.concatenate([*parts, self.rows[begin:]]))
            self._changed = {}
        if self._has_small:
            self._unite()
            self._has_small = False

    def _take_rows(self, rows: Int64s) -> None:
        if not len(rows):
            rows = np.array([[0, LEAST_KEY, self._new_page(), 0, 0, 0, 0, 0]])
        self.length = len(rows)
        self._directory.array[: self.length] = rows
        self._directory.array[0, [SLOT, KEY]] = 0, LEAST_KEY

    def _unite(self) -> None:
        """Neighbours that are one page in size, and for which nothing waits, become one."""
        rows = self.rows
        fit = rows[:-1, ENTRIES] + rows[1:, ENTRIES] <= self._mean
        fit &= rows[:-1, PARTITION] == rows[1:, PARTITION]
        fit &= (rows[:-1, WAITING] == 0) & (rows[1:, WAITING] == 0)
        gone = np.zeros(len(rows), np.bool_)
        for place in np.flatnonzero(fit)[::-1].tolist():
            left, right = rows[place], rows[place + 1]
            if left[ENTRIES] + right[ENTRIES] > self._mean:
                continue
            entries = np.concatenate([self._pages.read(page).copy() for page in (left[PAGE], right[PAGE])])
            self._pages.write(int(right[PAGE]), NO_ENTRIES)
            self._free.append(int(right[PAGE]))
            left[[COUNT, ENTRIES]] += right[[COUNT, ENTRIES]]
            left[ASKED] = max(left[ASKED], right[ASKED])
            self._pages.write(int(left[PAGE]), entries, self._is_remembered(left))
            gone[place + 1] = True
        self._take_rows(rows[~gone])

    # Slots, memory and durability

    def with_values_of(self, slots: Slots) -> Bools:
        """The pages that may have values of some slots."""
        marked = np.zeros(self.length, np.bool_)
        kernels.mark_places(self._directory.array, self.length, slots, marked)
        return marked

    def is_within(self, place: int, slots: Bools) -> bool:
        """Whether all values of a page belong to one of these slots."""
        if place == 0 or place + 1 == self.length:
            return False
        slot, following = self.rows[place : place + 2, SLOT].tolist()
        return slot == following and bool(slots[slot])

    def page_out(self) -> bool:
        """Gives up pages that are in memory; whether there were some."""
        return self._pages.page_out()

    def settle(self) -> None:
        """Gives back what was granted for more pages than there are in memory."""
        self._pages.settle()

    def close(self) -> None:
        """Nothing stays, on the device or on the account."""
        self._pages.close()
        self._directory.clear()
        self._sums.clear()

    def snapshot(self) -> Snapshot:
        return {"turn": self._turn, "directory": self.rows, "places": self._pages.saved_places(self._made)}

    def restore(self, snapshot: Snapshot) -> None:
        rows = snapshot["directory"]
        self._directory.fit(len(rows))
        self._made = len(snapshot["places"])
        self._take_rows(rows)
        self._turn = snapshot["turn"]
        self._free = np.setdiff1d(np.arange(self._made), rows[:, PAGE]).tolist()
        self._pages.take_places(snapshot["places"])
