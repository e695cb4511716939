"""Records on a block device by their keys, in pages in the order of the keys' hash: what a table has beyond memory.

    directory   first hash | first hash | first hash ...      in memory: where each page is, and what it has
    device      page       | page       | page       ...      records in the order of their hash, then their texts

A page belongs to a range of hashes. Keys that are looked for are put in the same order, so each page is read once for
all of them. Changes are merged in this order, too: pages without any stay as they are, one that is full is cut, one
with few records is put together with the next.

Invariants:
1. The first range begins at 0. A page has a record at least. All records of one hash are in one page.
2. A page is written once. One that changes has a new place; the old one is freed, which the device honours after the
   next commit.
3. A page is larger than `PAGE_BYTES` only for a few wide records, one long text, or many records of one hash.

Why: docs/decisions/cold-rows-by-hash.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.store import hashed_kernels as kernels
from penstock.store.blobs import Blob, write_blob
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.store.hashed_kernels import Hashes
from penstock.store.text_records import NO_BYTES, NO_TEXTS, Records, TextWords, cut_out, joined, taken, taken_of_two

PAGE_BYTES = 1 << 15
"""The most bytes of a page: keys that are looked for one by one read one each."""

_LEAST_ROWS = 8
"""A page of wide records has more bytes than that."""

_FEW = 4
"""A page with less than this part of the rows that it could have is put together with the next one."""

_ENTRY = np.dtype(
    [
        ("first", np.uint64),
        ("address", np.int64),
        ("nbytes", np.int64),
        ("step", np.int64),
        ("rows", np.int64),
        ("oldest", np.int64),
    ]
)

Directory = NDArray[Any]
Part = tuple[Records, Bools]
"""Records in the order of their hash, with different keys, and which of them say that their key is gone."""


@component("HashedPages")
class HashedPages:
    """Records are of `width` words, of which the first `words` are the key, and have `texts`. With `clock` this word is
    a time, and the directory knows the least of each page."""

    def __init__(
        self,
        width: int,
        words: int,
        clock: int | None,
        device: BlockDevice,
        account: Account,
        texts: TextWords = NO_TEXTS,
    ) -> None:
        self.width, self.words, self.clock, self.texts = width, words, clock, texts
        self._device = device
        self._account = account
        self._directory: Directory = np.empty(0, _ENTRY)
        self._firsts: Hashes = np.empty(0, np.uint64)

    @property
    def rows(self) -> int:
        return int(self._directory["rows"].sum())

    @property
    def stored_bytes(self) -> int:
        """What the pages have on the device."""
        return int(self._directory["nbytes"].sum())

    @property
    def oldest(self) -> Int64s:
        """The least time of each page."""
        times: Int64s = self._directory["oldest"]
        return times

    @property
    def least(self) -> int | None:
        """The least time of all; None if there is no record."""
        return int(self.oldest.min()) if len(self) else None

    def __len__(self) -> int:
        return len(self._directory)

    def hashes(self, rows: Int64s) -> Hashes:
        """The hashes of records, or of keys alone."""
        found: Hashes = np.empty(len(rows), np.uint64)
        kernels.hash_all(rows, self.words, found)
        return found

    def places(self, hashes: Hashes) -> Int64s:
        """The page to whose range each hash belongs."""
        places: Int64s = np.searchsorted(self._firsts, hashes, side="right") - 1
        return np.maximum(places, 0)

    def page(self, place: int) -> Records:
        """The records of a page."""
        if self.texts.end < 0:
            return Records(self._rows(place), NO_BYTES)
        entry = self._directory[place]
        payload, words = _blob(entry).read(self._device), int(entry["rows"]) * self.width
        rows = np.frombuffer(payload, np.int64, words).reshape(-1, self.width)
        return Records(rows, np.frombuffer(payload, np.uint8, offset=8 * words))

    def _rows(self, place: int) -> Int64s:
        """The same without texts."""
        payload = _blob(self._directory[place]).read(self._device)
        rows: Int64s = np.frombuffer(payload, np.int64).reshape(-1, self.width)
        return rows

    def none(self) -> Records:
        return Records(np.empty((0, self.width), np.int64), NO_BYTES)

    def find(self, keys: Records) -> tuple[Records, Int64s]:
        """The records of keys that are there, in any order, and whose key each is."""
        if not len(self) or not len(keys.rows):
            return self.none(), np.empty(0, np.int64)
        hashes = self.hashes(keys.rows)
        order = np.argsort(hashes)
        find = self._find_rows if self.texts.end < 0 else self._find_by_texts
        return find(keys, hashes[order], order)

    def _find_rows(self, keys: Records, hashes: Hashes, order: Int64s) -> tuple[Records, Int64s]:
        """The same for keys in such an order of their hashes, and records without texts."""
        rows, found = np.empty((len(order), self.width), np.int64), np.empty(len(order), np.bool_)
        in_order = keys.rows[order]
        for place, begin, stop in _stretches(self.places(hashes)):
            kernels.find(self._rows(place), in_order, hashes, begin, stop, rows, found)
        return Records(rows[found], NO_BYTES), order[found]

    def _find_by_texts(self, keys: Records, hashes: Hashes, order: Int64s) -> tuple[Records, Int64s]:
        where = np.empty(len(order), np.int64)
        parts = []
        for place, begin, stop in _stretches(self.places(hashes)):
            page = self.page(place)
            kernels.find_by_texts(*page, *keys, hashes, order, begin, stop, self.words, *self.texts, where)
            there = where[begin:stop]
            parts.append(taken(page, there[there >= 0], self.texts.end))
        return joined(parts, self.texts.end), order[where >= 0]

    def merge(self, parts: Iterable[Part]) -> None:
        """Puts records in, or in place of those with their keys, and takes others out; the parts are in the order of
        their hashes, too. `settle` then charges what is known of the pages."""
        merge = _Merge(self)
        for records, gone in parts:
            merge.put(records, gone)
        self._directory = merge.end()
        self._firsts = np.ascontiguousarray(self._directory["first"])

    def settle(self) -> None:
        """Has what is known of the pages on the account."""
        self._account.resize(self._nbytes)

    def settles(self) -> bool:
        """The same, if there is room for it."""
        return self._account.try_resize(self._nbytes)

    @property
    def _nbytes(self) -> int:
        return self._directory.nbytes + self._firsts.nbytes

    def clear(self) -> None:
        for entry in self._directory:
            _blob(entry).free(self._device)
        self._directory, self._firsts = np.empty(0, _ENTRY), np.empty(0, np.uint64)
        self.settle()

    # What `_Merge` needs

    @property
    def entries(self) -> Directory:
        return self._directory

    def written(self, records: Records, first: int) -> list[Directory]:
        """Writes records as pages, whose ranges begin at a hash; returns their entries."""
        found, start = [], 0
        for wanted in self._cuts(records):
            stop = kernels.cut(records.rows, self.words, wanted)
            if stop <= start:
                continue
            own = cut_out(records, start, stop, self.texts.end)
            begins = first if start == 0 else int(self.hashes(own.rows[:1])[0])
            oldest = 0 if self.clock is None else int(own.rows[:, self.clock].min())
            blob = write_blob(
                self._device, own.rows.data if self.texts.end < 0 else b"".join([own.rows.data, own.texts.data])
            )
            found.append(np.array([(begins, *blob, len(own.rows), oldest)], _ENTRY))
            start = stop
        return found

    def _cuts(self, records: Records) -> list[int]:
        """Where pages should end."""
        count, most = len(records.rows), min(PAGE_BYTES, self._device.capacity)
        if self.texts.end < 0:
            rows = max(_LEAST_ROWS, most // (8 * self.width))
            step = -(-count // max(1, -(-count // rows)))
            return [*range(step, count, step), count] if count else []
        ends = np.arange(1, count + 1) * (8 * self.width) + records.rows[:, self.texts.end]
        cuts = [0]
        while cuts[-1] < count:
            before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
            pages = -(-(int(ends[-1]) - before) // most)
            wanted = before + (int(ends[-1]) - before) // pages + 8 * self.width
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, min(wanted, before + most), side="right"))))
        return cuts[1:]

    def is_small(self, records: Records) -> bool:
        nbytes = len(records.rows) * 8 * self.width + len(records.texts)
        return nbytes * _FEW < min(PAGE_BYTES, self._device.capacity)

    def free(self, place: int) -> None:
        _blob(self._directory[place]).free(self._device)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        names = _ENTRY.names or ()
        return {name: np.ascontiguousarray(self._directory[name]).view(np.int64) for name in names}

    def restore(self, snapshot: dict[str, Any]) -> None:
        directory = np.empty(len(snapshot["first"]), _ENTRY)
        for name in _ENTRY.names or ():
            directory[name] = np.ascontiguousarray(snapshot[name]).view(directory.dtype[name])
        self._directory, self._firsts = directory, np.ascontiguousarray(directory["first"])
        self.settle()


class _Merge:
    """Goes once over the pages. The page that is open is in memory, with what has come to it; those before it are
    written."""

    def __init__(self, pages: HashedPages) -> None:
        self._pages = pages
        self._old = pages.entries
        self._done: list[Directory] = []
        self._next = 0
        """The first page that has not been come to."""
        self._open: Records | None = None
        self._first = 0
        self._replaced: list[int] = []

    def put(self, records: Records, gone: Bools) -> None:
        if not len(records.rows):
            return
        pages = self._pages
        for place, begin, stop in _stretches(pages.places(pages.hashes(records.rows))):
            self._come_to(place)
            assert self._open is not None
            most, has_texts = len(self._open.rows) + stop - begin, pages.texts.end >= 0
            rows, where = np.empty((0 if has_texts else most, pages.width), np.int64), np.empty(most, np.int64)
            count = kernels.merge(*self._open, *records, gone, begin, stop, pages.words, *pages.texts, rows, where)
            if has_texts:
                self._open = taken_of_two(self._open, records, where[:count], pages.texts.end)
            else:
                self._open = Records(rows[:count], NO_BYTES)

    def _come_to(self, place: int) -> None:
        if self._open is not None:
            while self._next <= place and self._next < len(self._old) and self._pages.is_small(self._open):
                self._take_next()
            if self._next > place or not len(self._old):
                return
            self._close()
        self._done.append(self._old[self._next : place])
        self._next = place
        self._open = self._pages.none()
        self._first = int(self._old["first"][place]) if len(self._old) else 0
        if len(self._old):
            self._take_next()

    def _take_next(self) -> None:
        """The records of the next page, behind those that are open."""
        assert self._open is not None
        self._open = joined([self._open, self._pages.page(self._next)], self._pages.texts.end)
        self._replaced.append(self._next)
        self._next += 1

    def _close(self) -> None:
        assert self._open is not None
        self._done += self._pages.written(self._open, self._first)
        for place in self._replaced:
            self._pages.free(place)
        self._replaced.clear()
        self._open = None

    def end(self) -> Directory:
        """The directory of what there is then."""
        if self._open is not None:
            while self._next < len(self._old) and self._pages.is_small(self._open):
                self._take_next()
            self._close()
        self._done.append(self._old[self._next :])
        directory = np.concatenate(self._done)
        if len(directory):
            directory["first"][0] = 0
        return directory


def _blob(entry: Any) -> Blob:
    return Blob(int(entry["address"]), int(entry["nbytes"]), int(entry["step"]))


def _stretches(places: Int64s) -> Iterator[tuple[int, int, int]]:
    """Stretches of the same place: the place, and where the stretch begins and ends."""
    begins = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
    ends = [*begins[1:].tolist(), len(places)]
    yield from zip(places[begins].tolist(), begins.tolist(), ends, strict=True)
