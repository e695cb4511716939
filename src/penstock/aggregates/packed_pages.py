"""Values in pages on a block device, packed (`value_packing`): a page is known by its number.

    page 0   page 1   page 2 ...      each a blob, or in memory as long as there is room for it

A page is read and written as a whole and has no fixed length. What is read is good until the next page is.

Invariants:
1. `_places[page]` are the address, the bytes and the step of its blob; no bytes for an empty page. Where the address is
   NOWHERE, what is in memory is newer than any blob, and there is none.
2. `resident_nbytes` bytes of pages are in memory, and `_granted` are on the account for them, as many or more.
3. A blob is freed after what takes its place is written or kept.

Which entries belong to a page is said by `value_pages` (by hash) and `ordered_pages` (in order).
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import value_packing as packing
from penstock.arrays import Int64s
from penstock.columns import Values
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


NO_ENTRIES = np.empty((0, 3), np.int64)


class PackedPages:
    """The pages of one state."""

    def __init__(self, device: BlockDevice, account: Account) -> None:
        self._device = device
        self._account = account
        self._resident: dict[int, Values] = {}
        self._places = ChargedArray(account, np.int64, (3,))
        self._room: Int64s = np.empty((0, 3), np.int64)
        self._packing: Int64s = np.empty(0, np.int64)
        self._granted = 0
        self.resident_nbytes = 0

    @property
    def nbytes(self) -> int:
        return self._places.nbytes + self._granted

    def reserve(self, pages: int) -> None:
        """Room for so many pages; the account may refuse it."""
        self._places.fit(pages)

    def read(self, page: int, keep: bool = False) -> Int64s:
        """The entries of a page, to be read only. The page stays in memory if it should and there is room."""
        content = self._resident.get(page)
        if content is None:
            blob = self._blob(page)
            if blob is None:
                return NO_ENTRIES
            content = np.frombuffer(blob.read(self._device), np.uint8)
            if keep and self._may_keep(content.nbytes):
                self._resident[page] = content = content.copy()
                self._note_resident(content.nbytes)
        count = packing.entries_in(content)
        if count > len(self._room):
            self._room = np.empty((count + count // 4, 3), np.int64)
        return packing.unpacked(content, self._room)

    def write(self, page: int, entries: Int64s, keep: bool = True) -> None:
        """Takes a copy. The page stays in memory if it should and there is room."""
        before = self._blob(page)
        held = self._resident.pop(page, None)
        if held is not None:
            self._note_resident(-held.nbytes)
        if not len(entries):
            self._places.array[page] = 0
        else:
            content = self._packed(entries)
            if keep and self._may_keep(content.nbytes):
                self._resident[page] = content.copy()
                self._note_resident(content.nbytes)
                self._places.array[page] = NOWHERE, content.nbytes, 0
            else:
                self._write_packed(page, content)
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

    def _write_packed(self, page: int, content: Values) -> None:
        self._places.array[page] = self._written(content if self._device.copies else content.copy())

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

    def put_out(self, page: int) -> None:
        """A page is not in memory any more."""
        content = self._resident.pop(page, None)
        if content is not None:
            self._note_resident(-content.nbytes)
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
        """No page has entries."""
        self._resident.clear()
        self.resident_nbytes = 0
        for page in range(len(self._places)):
            blob = self._blob(page)
            if blob is not None:
                blob.free(self._device)
        self._places.array[:] = 0
        self.settle()

    def close(self) -> None:
        """Nothing stays, on the device or on the account."""
        self.clear()
        self._places.clear()

    def saved_places(self, pages: int) -> Int64s:
        """The pages by their addresses: the device keeps them until the checkpoint after the next one."""
        self.write_out()
        places: Int64s = self._places.array[:pages].copy()
        return places

    def take_places(self, places: Int64s) -> None:
        """What was saved, where there are no pages yet."""
        self.reserve(len(places))
        self._places.array[: len(places)] = places
