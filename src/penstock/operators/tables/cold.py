"""The rows of a table that are beyond memory: on disk, by key; those that are in use come to memory for a while.

    keys of a chunk ─▶ those not in memory, in the order of the pages ─▶ their rows, from disk
    memory is short ─▶ rows that have changed, and keys that are gone ─▶ merged into the pages

A table begins in memory. When its next rows have no room, or others need the memory, all rows go to disk. From then on
its store has the rows that were used of late, with a mark on each. `bring` is called before a chunk of look-ups or
changes with all keys that it concerns; then the chunk finds in the store whatever there is.

Invariants:
1. A key that is on disk is also in the store, with the mark `_COPY`, or among `_gone`, or its row on disk is that of
   now.
2. A row of the store without `_CHANGED` is on disk as it is.
3. Rows do not leave the store while one is `at_work`: what was found has their numbers.
4. Rows on disk have their texts with them. A row that leaves the store gives up its uses of texts in memory, and so do
   keys that leave `_gone`. Uses are released when no code is at work (`prepare`, `_give_up`, and the table's `settle`).

Why: docs/decisions/cold-rows-by-hash.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int32s, Int64s
from penstock.columns import Argument
from penstock.components import component
from penstock.operators.chunk import Chunk
from penstock.operators.resources import Resources
from penstock.operators.tables.cold_order import CHANGED, LeavingRows, found_rows
from penstock.operators.tables.cold_records import ColdRecords, Rows
from penstock.operators.tables.texts import SavedTexts, TableTexts
from penstock.store.blocks import ColumnSpec
from penstock.store.device import BlockDevice
from penstock.store.hashed_pages import HashedPages, Part
from penstock.store.keyed import Found, KeyedStore
from penstock.store.text_records import Records, taken

_COPY, _CHANGED, _USED = 1, CHANGED, 4
"""Marks: the key is on disk, or may be; the row differs from what is there; it was asked for again."""

_MARKS = ColumnSpec("#marks", np.dtype(np.uint8), False)

_SHARE, _LEFT = 2, 64 << 20
"""Once rows are on disk, those in memory leave this part of it to all others, or so many bytes."""

_LEAST = 16
"""A table of less than this part of the memory does not go to disk because others need memory."""

_CHUNKS = 8
"""So many chunks of look-ups or changes, at least, have room in memory together."""

_ROW_BYTES = 9
"""What a row in memory takes for the index, its mark and some room, besides its values."""

_KEPT = 2
"""At most this part of the rows in memory stays there when room is made."""

_TEXT_BYTES = 64
"""What a text in memory takes besides its bytes, about."""


class AtWork:
    """Rows that are brought stay within such blocks."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


@component("ColdRows")
class ColdRows:
    """`written` is the place of the column with the time of a row's last change, if rows have a time to live. `can_go`
    is set by what writes the table: only then rows may go to disk."""

    def __init__(
        self,
        name: str,
        store: KeyedStore,
        texts: TableTexts,
        written: int | None,
        device: BlockDevice,
        resources: Resources,
    ) -> None:
        self._name = name
        self._store = store
        self._texts = texts
        self._words = store.words
        self._resources = resources
        self._columns = len(store.specs)
        self._records = records = ColdRecords(texts, store.words, store.specs)
        clock = None if written is None else records.word_of(written)
        self._account = resources.account(f"table {name}: where its rows are on disk")
        self._account.on_need(self._give_up)
        self.pages = HashedPages(records.width, records.words, clock, device, self._account, records.text_words)
        self.is_on = False
        self.can_go: Callable[[], bool] = _never
        self._gone: KeyedStore | None = None
        self._is_whole = False
        """Whether all rows are in the store."""
        self.at_work = AtWork()
        self._swept = 0
        self._blind = False
        """Whether rows on disk were not looked at when rows were brought last."""
        self._brought: Int64s | None = None
        """Keys that were brought last, as long as no row leaves the store."""
        self._most = self._account.total - min(self._account.total // _SHARE, _LEFT)
        values = 8 * store.words + sum(spec.dtype.itemsize + spec.nullable for spec in store.specs)
        self._row_bytes = values + _ROW_BYTES + _TEXT_BYTES * len(texts.interners)
        chunk_bytes = values + 8 * records.width + 2 * _TEXT_BYTES * len(texts.interners)
        self.keys_at_once = max(16, self._most // (_CHUNKS * chunk_bytes))
        """So many keys are brought together at most."""
        self._leaving = LeavingRows(store, self._columns, records, self.pages, self._account, self.keys_at_once)

    # Rows come to memory

    def bring(self, words: Int64s, valid: Bools | None = None, *, new: bool = False, blind: bool = False) -> None:
        """Has the rows of keys in memory, as far as there are such. With `new` all keys may get rows, and there is room
        for them. With `blind` they all do, whatever there was: then nothing is read."""
        if not self.is_on:
            if not new or not self.can_go() or self._fit(words):
                return
            self._begin()
        if not new and (self._is_whole or (self._brought is not None and np.array_equal(words, self._brought))):
            return
        self._blind = blind
        absent = self._absent(words, valid)
        if not self._make_room(len(absent), len(words) if new else 0):
            absent = self._absent(words, valid)
        if self._is_whole or blind:
            return
        missing = words[absent]
        if self._gone is not None and self._gone.rows:
            missing = missing[self._gone.find(missing, None, False).rows < 0]
        records, _ = self.pages.find(self._records.keys(missing))
        self._put(records)
        self._brought = words if valid is None and not self._texts.interners else None

    def bring_all(self) -> None:
        """Has all rows in memory; `BudgetError` where they have no room."""
        if not self.is_on or self._is_whole:
            return
        with self.at_work:
            self._store.ask(self.pages.rows)
            for place in range(len(self.pages)):
                self._put(self._alone(self.pages.page(place)))
        self._is_whole = True

    @property
    def is_short_of_texts(self) -> bool:
        """Whether there may be no room for the texts of a chunk."""
        return bool(self._texts.interners) and (self.is_on or 2 * self._account.free < self._account.total)

    def prepare(self, chunks: Sequence[Chunk]) -> None:
        """Has room for the texts of chunks, and for those that their rows have on disk. No code is at work."""
        if self.is_short_of_texts and (self.is_on or self.can_go()):
            self._make_text_room(sum(chunk.rows for chunk in chunks), sum(chunk.columns.nbytes for chunk in chunks))

    def _make_text_room(self, rows: int, nbytes: int) -> None:
        texts = self._texts
        wanted = texts.room_for(rows, nbytes)
        if not self.is_on:
            if self._store.rows and not texts.can_take(wanted):
                with self.at_work:
                    self._begin()
                self._forget_texts()
            return
        wanted = texts.room_for(rows, nbytes + rows * self._mean_bytes)
        for make_room in (self.flush, self._empty):
            if texts.nbytes + self._store.nbytes + wanted <= self._most and texts.can_take(wanted):
                return
            make_room()
            self._forget_texts()

    def rows_at_once(self, rows: int, nbytes: int) -> int:
        """How many rows of a chunk, of so many bytes, are one run: the texts that it asks for stay till its end."""
        if not self._texts.interners:
            return min(rows, self.keys_at_once)
        return max(1, min(rows, self.keys_at_once, rows * (self._most // _CHUNKS) // max(1, nbytes)))

    @property
    def _mean_bytes(self) -> int:
        """What a row has on disk."""
        return self.pages.stored_bytes // max(1, self.pages.rows)

    def _forget_texts(self) -> None:
        """The texts of rows that have left the store leave memory. No code is at work."""
        self._texts.settle()
        self._texts.shrink()

    def _fit(self, words: Int64s) -> bool:
        """Whether rows of keys have room in memory, with all others."""
        if self._store.is_free(len(words)):
            return True
        new = words[self._store.find(words, None, False).rows < 0]
        if not len(new):
            return True
        return self._store.can_take(int(KeyedStore.numbering(new)[2].sum()))

    def _absent(self, words: Int64s, valid: Bools | None) -> Int64s:
        """Which keys are not in the store; the others are noted as used."""
        rows = self._store.find(words, valid, False).rows
        there = rows[rows >= 0]
        if len(there):
            self._mark(there, self._marks(there) | _USED)
        return np.flatnonzero(rows < 0 if valid is None else (rows < 0) & valid)

    def _make_room(self, rows: int, gone: int) -> bool:
        """Room for so many rows, and keys that go. Answers whether it was there, and no row has left the store."""
        if self._has_room(rows, gone):
            return True
        self.flush()
        if not self._has_room(rows, gone):
            self._empty()
            self._store.ask(rows)
            if self._gone is not None:
                self._gone.ask(gone)
        return False

    def _has_room(self, rows: int, gone: int) -> bool:
        room = self._store.can_take(rows, self._most - self._texts.nbytes)
        return room and (self._gone is None or not gone or self._gone.can_take(gone, self._most // _CHUNKS))

    def _put(self, records: Records) -> None:
        """Rows from disk."""
        if not len(records.rows):
            return
        words, columns = self._records.rows(records)
        rows, fresh = self._store.put(words)
        if self._texts.interners:
            own = words[fresh], [column.at(np.flatnonzero(fresh)) for column in columns]
            for interner, codes in self._texts.of_rows(*own):
                interner.use(codes)
        for place, column in enumerate(columns):
            self._store.write(place, rows, *column)
        self._mark(rows, np.full(len(rows), _COPY, np.uint8))

    def _alone(self, records: Records) -> Records:
        """Records of a page that are rows of now, and not in the store."""
        words = self._records.known_keys(records)
        keep = self._store.find(words, None, False).rows < 0
        if self._gone is not None and self._gone.rows:
            keep &= self._gone.find(words, None, False).rows < 0
        return taken(records, np.flatnonzero(keep), self.pages.texts.end)

    def alone(self) -> Iterator[tuple[Int64s, tuple[Argument, ...], dict[str, pa.StringArray]]]:
        """The rows that are not in the store, a page at a time; texts stand in arrays of their own."""
        if self.is_on and not self._is_whole:
            for place in range(len(self.pages)):
                records = self._alone(self.pages.page(place))
                if len(records.rows):
                    yield self._records.read(records)

    def _marks(self, rows: Int32s) -> Any:
        return self._store.column(self._columns, Found(rows, None, len(rows))).values

    def _mark(self, rows: Int32s, marks: Any) -> None:
        self._store.write(self._columns, rows, marks, None)

    def _marks_of(self, partition: int) -> Any:
        return self._store.values_of(partition, self._columns)

    def note_written(self, words: Int64s, rows: Int32s, fresh: Bools) -> None:
        """Rows of the store have other values now; those that are `fresh` were not there before."""
        if not self.is_on:
            return
        marks = self._marks(rows) | _CHANGED
        if self._blind:
            marks[fresh] |= _COPY
        if self._gone is not None and self._gone.rows and fresh.any():
            new = np.flatnonzero(fresh)
            back = new[self._gone.find(words[new], None, False).rows >= 0]
            marks[back] |= _COPY
            self._texts.give_up(self._texts.of_keys(words[back]))
            self._gone.remove(words[back])
        self._mark(rows, marks)

    def note_removed(self, words: Int64s, rows: Int32s) -> None:
        """Rows are about to leave the table, and the store."""
        if self.is_on:
            there = np.flatnonzero(rows >= 0)
            copies = there[(self._marks(rows[there]) & _COPY) > 0]
            if len(copies):
                _, fresh = self._gone_keys().put(words[copies])
                for interner, codes in self._texts.of_keys(words[copies][fresh]):
                    interner.use(codes)

    def _gone_keys(self) -> KeyedStore:
        if self._gone is None:
            account = self._resources.account(f"table {self._name}: keys that are gone")
            self._gone = KeyedStore(self._words, False, (), account)
        return self._gone

    # Rows go to disk

    def _begin(self) -> None:
        """From now on rows are on disk."""
        self._merge(self._leaving.changed(everything=True))
        self._leave(self._store.all_rows())
        self._store.clear()
        self._store.add_column(_MARKS)
        self.pages.settle()
        self._gone_keys()
        self.is_on = True

    def _give_up(self) -> bool:
        """Others need memory."""
        if self.at_work.count:
            return False
        held, unused = self._store.nbytes + self._texts.nbytes, self._account.unused
        with self.at_work:
            if self.is_on:
                self._empty()
            elif held * _LEAST > self._account.total and self.can_go():
                self._begin()
            self._forget_texts()
        return self._account.unused > unused  # pages that settle give memory back, too

    def _empty(self) -> None:
        """All rows go to disk, and the memory is given back."""
        self._save()
        self._leave(self._store.all_rows())
        self._store.clear()
        self.pages.settle()
        self._is_whole, self._brought = False, None

    def _leave(self, rows: Int32s) -> None:
        """Rows that are about to leave the store give up their uses of texts."""
        if self._texts.interners:
            self._texts.give_up(self._texts.of_rows(*self._leaving.columns_of(rows)))

    def flush(self) -> None:
        """Changes go to disk. Of the rows in memory those stay that were asked for again, unless they are too many."""
        store = self._store
        if any((self._marks_of(part) & _USED).any() for part in range(store.partitions)):
            self._save()
            if self.pages.settles():
                self._keep_used()
                return
        self._empty()
        rows = self._most // (self._row_bytes + (self._mean_bytes if self._texts.interners else 0))
        if store.is_free(rows):
            store.reserve(rows)  # what grows is copied, and needs more memory meanwhile

    def _keep_used(self) -> None:
        """All but the rows that were asked for again leave the store; what has changed is on disk."""
        store = self._store
        for part in range(store.partitions):
            used = (self._marks_of(part) & _USED) > 0
            used[np.flatnonzero(used)[len(used) // _KEPT :]] = False
            rows = (part * store.capacity + np.flatnonzero(~used)).astype(np.int32)
            self._leave(rows)
            store.remove(store.key_words(found_rows(rows)))
            self._marks_of(part)[:] = _COPY
        store.dirty[:] = True
        self._is_whole, self._brought = False, None

    def _save(self) -> None:
        """What has changed goes to disk."""
        self._merge(self._leaving.changed(everything=False))

    def _merge(self, parts: Iterable[Records]) -> None:
        """Rows go to disk, and keys that are gone leave it."""
        gone = self._gone_keys()
        keys = gone.key_words(found_rows(gone.all_rows()))
        self.pages.merge(self._leaving.with_gone(parts, keys))
        self._texts.give_up(self._texts.of_keys(keys))
        gone.clear()

    def clear(self) -> None:
        """There is no row any more."""
        self.pages.clear()
        if self._gone is not None:
            self._gone.clear()
        self._is_whole, self._brought = False, None

    # Rows whose time is over

    def sweep(self, limit: int, share: float) -> int:
        """Takes rows that were written up to a time from the disk, of a share of the pages in turn. Returns how many of
        them are not in memory, too."""
        count = len(self.pages)
        if not count:
            return 0
        turns = min(count, max(1, int(share * count)))
        places = np.sort((self._swept + np.arange(turns)) % count)
        self._swept = (self._swept + turns) % count
        parts: list[Part] = []
        clock, end, alone = self.pages.clock, self.pages.texts.end, 0
        for place in places[self.pages.oldest[places] <= limit].tolist():
            page = self.pages.page(place)
            over = taken(page, np.flatnonzero(page.rows[:, clock] <= limit), end)
            words = self._records.known_keys(over)
            parts.append((over, np.ones(len(words), np.bool_)))
            rows = self._store.find(words, None, False).rows
            if (rows >= 0).any():  # it is on disk no more as it is
                rows, _ = self._store.put(words[rows >= 0])
                self._mark(rows, self._marks(rows) | _CHANGED)
            alone += len(self._alone(over).rows)
        self.pages.merge(parts)
        self.pages.settle()
        return alone

    # Durability

    def snapshot(self) -> dict[str, Any]:
        gone = self._gone_keys()
        return {
            "pages": self.pages.snapshot(),
            "gone": gone.key_words(found_rows(gone.all_rows())),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Before the rows of the store are restored."""
        self.is_on = True
        self._store.add_column(_MARKS)
        self._gone_keys().put(np.ascontiguousarray(snapshot["gone"]).reshape(-1, self._words))
        self.pages.restore(snapshot["pages"])

    def take(self, parts: Iterable[Rows], saved: SavedTexts) -> None:
        """The rows of a store that has no room here, partition by partition, go to disk. They may have marks. The texts
        are those of a snapshot."""
        if not self.is_on:
            self._begin()
        with self._records.decoded_by(saved.decode):
            records = (self._of_saved(rows, saved) for rows in parts)
            if self._records.has_texts_in_key:
                for some in self._leaving.gathered(records, self._most // _CHUNKS):
                    self._merge([some])
            else:
                self._merge(records)
        self.pages.settle()

    def _of_saved(self, rows: Rows, saved: SavedTexts) -> Records:
        words, columns = rows
        saved.give_up(words, columns)
        if len(columns) > self._columns:
            changed = np.flatnonzero(columns[-1].values & _CHANGED)
            words, columns = words[changed], tuple(column.at(changed) for column in columns)
        return self._records.packed(words, columns[: self._columns])


def _never() -> bool:
    return False
