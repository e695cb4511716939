"""Pages of values on a block device: the entries of `value_table`, packed (`value_packing`), by linear hashing.

    page 0   page 1   page 2 ...      each a blob, or in memory as long as there is room for it

A page is read and written as a whole and has no fixed length: pages are added one by one as entries come, and given up
as they go, so that a page holds about so many entries that it fits one block. What is read is good until the next
page is. Any fixed set of pages is as good as any
other to be kept in memory, for the hash spreads all accesses alike: a page that is in memory stays there.

Invariants:
1. `_places[page]` are the address, the bytes and the step of its blob; no bytes for an empty page. Where the address is
   NOWHERE, what is in memory is newer than any blob, and there is none.
2. `resident_nbytes` bytes of pages are in memory, and `_granted` are on the account for them, as many or more.
3. A blob is freed after what takes its place is written or kept.

Owned by `paged_values.PagedValues`.
"""

from __future__ import annotations

import contextlib

import numpy as np

from penstock.aggregates import value_packing as packing
from penstock.aggregates import value_page_kernels as kernels
from penstock.aggregates.state import Snapshot
from penstock.arrays import Int64s
from penstock.columns import Values
from penstock.components import component
from penstock.errors import BudgetError
from penstock.store.blobs import Blob, write_blob
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.store.device import BlockDevice

NOWHERE = -1

_LEAST_ENTRIES = 64
"""A page has so many entries on average, however small blocks are."""

_PACKED_BYTES, _WORK_BYTES = 12, 240
"""What an entry takes on the device, in general, and while its page is played, where pages differ by the half."""

_GRANTED_AT_ONCE = 1 << 20
"""Bytes that are asked for when more pages stay in memory."""

_OBJECT_BYTES = 160
"""What a page in memory takes besides its entries."""


def mean_entries(capacity: int, work: int) -> int:
    """Of a page, so that pages that are still to be divided, with twice as many as others, fit a block, and the memory
    for the work on a page."""
    return max(_LEAST_ENTRIES, min(capacity * 9 // 20 // _PACKED_BYTES, work // _WORK_BYTES))


_NO_ENTRIES = np.empty((0, 3), np.int64)


@component("ValuePages")
class ValuePages:
    """There are never fewer pages than at first, a power of two. Its owner has `work` bytes on the account for work."""

    def __init__(self, device: BlockDevice, account: Account, pages: int, work: int) -> None:
        self._device = device
        self._account = account
        self._least = pages
        self._mean = mean_entries(device.capacity, work)
        self._resident: dict[int, Values] = {}
        self._places = ChargedArray(account, np.int64, (3,))
        self._room: Int64s = np.empty((0, 3), np.int64)
        self._packing: Int64s = np.empty(0, np.int64)
        self._granted = 0
        self.resident_nbytes = 0
        self.entries = 0
        self._set_pages(pages)

    def _set_pages(self, pages: int) -> None:
        """The account may refuse it."""
        self._places.fit(pages)
        self.pages = pages
        self.level = 1 << (pages.bit_length() - 1)

    @property
    def nbytes(self) -> int:
        return self._places.nbytes + self._granted

    def fitting(self, entries: int) -> int:
        """How many pages so many entries need."""
        return max(self._least, entries // self._mean + 1)

    def read(self, page: int) -> Int64s:
        """The entries of a page, to be read only."""
        content = self._resident.get(page)
        if content is None:
            blob = self._blob(page)
            if blob is None:
                return _NO_ENTRIES
            content = np.frombuffer(blob.read(self._device), np.uint8)
        count = packing.entries_in(content)
        if count > len(self._room):
            self._room = np.empty((count + count // 4, 3), np.int64)
        return packing.unpacked(content, self._room)

    def write(self, page: int, entries: Int64s) -> None:
        """Takes a copy. The page stays in memory if it is there already or there is room."""
        before = self._blob(page)
        held = self._resident.pop(page, None)
        if held is not None:
            self._note_resident(-held.nbytes)
        if not len(entries):
            self._places.array[page] = 0
        else:
            content = self._packed(entries)
            if self._may_keep(content.nbytes):
                self._resident[page] = content.copy()
                self._note_resident(content.nbytes)
                self._places.array[page] = NOWHERE, content.nbytes, 0
            else:
                self._places.array[page] = self._written(content if self._device.copies else content.copy())
        if before is not None:
            before.free(self._device)

    def _blob(self, page: int) -> Blob | None:
        address, nbytes, step = self._places.array[page].tolist()
        return Blob(address, nbytes, step) if nbytes and address != NOWHERE else None

    def _packed(self, entries: Int64s) -> Values:
        """Good until the next ones are packed."""
        words = packing.HEAD + packing.MOST_WORDS * len(entries)
        if words > len(self._packing):
            self._packing = np.empty(words + words // 4, np.int64)
        return packing.packed(entries, self._packing)

    def _written(self, content: Values) -> Blob:
        return write_blob(self._device, content.data)

    def _note_resident(self, nbytes: int) -> None:
        self.resident_nbytes += nbytes + (_OBJECT_BYTES if nbytes > 0 else -_OBJECT_BYTES)

    def _may_keep(self, nbytes: int) -> bool:
        """Half of the memory that others could have is for pages."""
        needed = self.resident_nbytes + nbytes + _OBJECT_BYTES
        if needed <= self._granted:
            return True
        more = max(min(_GRANTED_AT_ONCE, self._account.total // 64), nbytes + _OBJECT_BYTES)
        if self._account.free < self._granted + 2 * more:
            return False
        self._account.charge(more)
        self._granted += more
        return True

    def fill(self, entries: Int64s, pages: int, begins: Int64s) -> None:
        """All entries at once, sorted by page."""
        self._set_pages(pages)
        self.entries = len(entries)
        for page in range(pages):
            part = entries[begins[page] : begins[page + 1]]
            if len(part):
                content = self._packed(part)
                self._places.array[page] = self._written(content if self._device.copies else content.copy())

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
        self.write(last, _NO_ENTRIES)

    def settle(self) -> None:
        """Gives back what was granted for more pages than there are in memory."""
        more = self._granted - self.resident_nbytes
        if more > 2 * _GRANTED_AT_ONCE or not self.resident_nbytes:
            self._granted -= more
            self._account.release(more)

    def write_out(self) -> None:
        """All pages are on the device; those in memory stay there, too."""
        for page, content in self._resident.items():
            if self._places.array[page, 0] == NOWHERE:
                self._places.array[page] = self._written(content)

    def page_out(self) -> bool:
        """No page is in memory any more; whether that gives memory back."""
        if not self._granted:
            return False
        self.write_out()
        self._resident.clear()
        self.resident_nbytes = 0
        self.settle()
        return True

    def clear(self) -> None:
        """No entries."""
        self._resident.clear()
        self.resident_nbytes = self.entries = 0
        for page in range(self.pages):
            blob = self._blob(page)
            if blob is not None:
                blob.free(self._device)
        self._places.array[:] = 0
        self._set_pages(self._least)
        self.settle()

    def close(self) -> None:
        self.clear()
        self._places.clear()

    def snapshot(self) -> Snapshot:
        """The pages by their addresses: the device keeps them until the checkpoint after the next one."""
        self.write_out()
        return {"least": self._least, "entries": self.entries, "places": self._places.array[: self.pages].copy()}

    def restore(self, snapshot: Snapshot) -> None:
        self._least = snapshot["least"]
        self.entries = snapshot["entries"]
        places = snapshot["places"]
        self._set_pages(len(places))
        self._places.array[: len(places)] = places
