"""The rows of a table that go to disk, in the order in which the pages take them: by the hash of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from penstock.arrays import Int32s, Int64s, UInt64s
from penstock.operators.tables.cold_records import ColdRecords, Rows
from penstock.store.budget import Account
from penstock.store.hashed_pages import HashedPages, Part
from penstock.store.keyed import Found, KeyedStore
from penstock.store.text_records import Records, cut_out, joined, taken

CHANGED = 2
"""The mark of a row that differs from what is on disk."""

_ORDERED_ROWS = 1 << 14
"""So many rows with texts in their keys go to disk together."""

_ORDER_BYTES, _RANGE_BITS = 24, 4
"""What the order of a row takes while rows are sorted. Where it has no room, rows are sorted range by range, by so many
bits of the hash."""


def found_rows(rows: Int32s) -> Found:
    return Found(rows, None, len(rows))


class LeavingRows:
    """Of a store whose column `columns` has the marks of rows. At most `at_once` rows are brought together."""

    def __init__(
        self, store: KeyedStore, columns: int, records: ColdRecords, pages: HashedPages, account: Account, at_once: int
    ) -> None:
        self._store = store
        self._columns = columns
        self._records = records
        self._pages = pages
        self._account = account
        self._at_once = at_once

    def changed(self, *, everything: bool) -> Iterator[Records]:
        """The rows that have changed, or all, in the order of the hashes of their keys."""
        if self._records.has_texts_in_key:
            yield from self._by_hash(everything=everything)
        else:
            yield from map(self.packed, self._changed_rows(everything=everything))

    def _changed_rows(self, *, everything: bool) -> Iterator[Int32s]:
        """The same, a partition at a time: without texts in keys, each has the hashes of a range."""
        store = self._store
        for part, count in enumerate(store.counts.tolist()):
            places = np.arange(count) if everything else np.flatnonzero(store.values_of(part, self._columns) & CHANGED)
            yield (part * store.capacity + places).astype(np.int32)

    def _by_hash(self, *, everything: bool) -> Iterator[Records]:
        """Rows with texts in their keys: partitions in memory are no ranges of hashes on disk."""
        count = sum(map(len, self._changed_rows(everything=everything)))
        held = self._account.nbytes
        bits = 0 if self._account.try_resize(held + _ORDER_BYTES * count) else _RANGE_BITS
        step = min(_ORDERED_ROWS, self._at_once)
        for at in range(1 << bits):
            rows, hashes = self._of_range(at, bits, everything=everything)
            order = np.argsort(hashes)
            for start in range(0, len(order), step):
                yield self.packed(rows[order[start : start + step]])
        self._account.resize(held)

    def _of_range(self, at: int, bits: int, *, everything: bool) -> tuple[Int32s, UInt64s]:
        """The rows whose hash on disk begins with such bits, and their hashes."""
        found, hashes = [np.empty(0, np.int32)], [np.empty(0, np.uint64)]
        for rows in self._changed_rows(everything=everything):
            own = self._pages.hashes(self._records.keys(self._store.key_words(found_rows(rows))).rows)
            within = own >> np.uint64(64 - bits) == at if bits else slice(None)
            found.append(rows[within])
            hashes.append(own[within])
        return np.concatenate(found), np.concatenate(hashes)

    def with_gone(self, parts: Iterable[Records], gone_keys: Int64s) -> Iterator[Part]:
        """Records and the keys that are gone, in the order of their hashes. Those of a part are not above those of the
        next one."""
        gone, end = self._pages.none(), self._pages.texts.end
        if len(gone_keys):
            gone = self._records.widened(self._records.keys(gone_keys))
            gone = taken(gone, np.argsort(self._pages.hashes(gone.rows)), end)
        gone_hashes, passed = self._pages.hashes(gone.rows), 0
        for records in parts:
            count = len(records.rows)
            if not count:
                continue
            hashes = self._pages.hashes(records.rows)
            upto = int(np.searchsorted(gone_hashes, hashes.max(), side="right"))
            both = joined([records, cut_out(gone, passed, upto, end)], end)
            order = np.argsort(np.concatenate([hashes, gone_hashes[passed:upto]]))
            yield taken(both, order, end), order >= count
            passed = max(passed, upto)
        yield cut_out(gone, passed, len(gone.rows), end), np.ones(len(gone.rows) - passed, np.bool_)

    def packed(self, rows: Int32s) -> Records:
        return self._records.packed(*self.columns_of(rows))

    def columns_of(self, rows: Int32s) -> Rows:
        found = found_rows(rows)
        columns = [self._store.column(place, found) for place in range(self._columns)]
        return self._store.key_words(found), tuple(columns)

    def gathered(self, parts: Iterable[Records], most_bytes: int) -> Iterator[Records]:
        """As many as have room together, in the order of their hashes."""
        waiting, nbytes = [self._pages.none()], 0
        for records in parts:
            waiting.append(records)
            nbytes += records.rows.nbytes + records.texts.nbytes
            if nbytes > most_bytes:
                yield self._sorted(waiting)
                waiting, nbytes = [self._pages.none()], 0
        yield self._sorted(waiting)

    def _sorted(self, parts: list[Records]) -> Records:
        records = joined(parts, self._pages.texts.end)
        return taken(records, np.argsort(self._pages.hashes(records.rows)), self._pages.texts.end)
