"""Pages of values by linear hashing: the entries of `value_table`, on a block device.

Pages are added one by one as entries come, and given up as they go, so that a page holds about so many entries that it
fits one block. Any fixed set of pages is as good as any other to be kept in memory, for the hash spreads all accesses
alike: a page that is in memory stays there (`packed_pages`).

Owned by `paged_values.PagedValues`.
"""

from __future__ import annotations

import contextlib

import numpy as np

from penstock.aggregates import value_page_kernels as kernels
from penstock.aggregates.packed_pages import NO_ENTRIES, PackedPages, mean_entries
from penstock.aggregates.state import Snapshot
from penstock.arrays import Int64s
from penstock.components import component
from penstock.errors import BudgetError
from penstock.store.budget import Account
from penstock.store.device import BlockDevice


@component("ValuePages")
class ValuePages(PackedPages):
    """There are never fewer pages than at first, a power of two. Its owner has `work` bytes on the account for work."""

    def __init__(self, device: BlockDevice, account: Account, pages: int, work: int) -> None:
        super().__init__(device, account)
        self._least = pages
        self._mean = mean_entries(device.capacity, work)
        self.entries = 0
        self._set_pages(pages)

    def _set_pages(self, pages: int) -> None:
        """The account may refuse it."""
        self.reserve(pages)
        self.pages = pages
        self.level = 1 << (pages.bit_length() - 1)

    def fitting(self, entries: int) -> int:
        """How many pages so many entries need."""
        return max(self._least, entries // self._mean + 1)

    def fill(self, entries: Int64s, pages: int, begins: Int64s) -> None:
        """All entries at once, sorted by page."""
        self._set_pages(pages)
        self.entries = len(entries)
        for page in range(pages):
            part = entries[begins[page] : begins[page + 1]]
            if len(part):
                self.write(page, part, keep=False)

    def fit(self) -> None:
        """As many pages as the entries need, more or less."""
        wanted = self.fitting(self.entries)
        with contextlib.suppress(BudgetError):  # pages are a little longer then
            while self.pages < wanted:
                self._divide_one()
        while wanted < self.pages // 2:
            self._unite_two()

    def _divide_one(self) -> None:
        new = self.pages
        divided = new - self.level
        entries = self.read(divided)
        self._set_pages(new + 1)
        self._places.array[new] = 0
        kept, moved = np.empty_like(entries), np.empty_like(entries)
        staying = kernels.divide(entries, divided, self.pages, self.level, kept, moved)
        self.write(new, moved[: len(entries) - staying])
        self.write(divided, kept[:staying])

    def _unite_two(self) -> None:
        last = self.pages - 1
        self._set_pages(last)
        into = last - self.level
        self.write(into, np.concatenate([self.read(into).copy(), self.read(last)]))
        self.write(last, NO_ENTRIES)

    def clear(self) -> None:
        """No entries."""
        super().clear()
        self.entries = 0
        self._set_pages(self._least)

    def snapshot(self) -> Snapshot:
        return {"least": self._least, "entries": self.entries, "places": self.saved_places(self.pages)}

    def restore(self, snapshot: Snapshot) -> None:
        self._least = snapshot["least"]
        self.entries = snapshot["entries"]
        self._set_pages(len(snapshot["places"]))
        self.take_places(snapshot["places"])
