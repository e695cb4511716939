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
4. Texts that a row on disk names stay in the table's interners as long as the row is that of now.

Why: docs/decisions/cold-rows-by-hash.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.arrays import Bools, Int32s, Int64s
from penstock.columns import Argument
from penstock.components import component
from penstock.operators.resources import Resources
from penstock.store.blocks import ColumnSpec
from penstock.store.device import BlockDevice
from penstock.store.hashed_pages import HashedPages, Part
from penstock.store.keyed import Found, KeyedStore
from penstock.store.records import RecordLayout

_COPY, _CHANGED, _USED = 1, 2, 4
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

Rows = tuple[Int64s, tuple[Argument, ...]]
"""The keys of rows, and the columns besides."""


@component("ColdRows")
class ColdRows:
    """`written` is the place of the column with the time of a row's last change, if rows have a time to live. `can_go`
    is set by what writes the table: only then rows may go to disk."""

    def __init__(
        self, name: str, store: KeyedStore, words: int, written: int | None, device: BlockDevice, resources: Resources
    ) -> None:
        self._name = name
        self._store = store
        self._words = words
        self._resources = resources
        self._columns = len(store.specs)
        keys = [ColumnSpec(f"key {w}", np.dtype(np.int64), False) for w in range(words)]
        self._layout = RecordLayout([*keys, *store.specs])
        clock = None if written is None else self._layout.word_of(words + written)
        self._account = resources.account(f"table {name}: where its rows are on disk")
        self._account.give_up = self._give_up
        self.pages = HashedPages(self._layout.words, words, clock, device, self._account)
        self.is_on = False
        self.can_go: Callable[[], bool] = _never
        self._gone: KeyedStore | None = None
        self._is_whole = False
        """Whether all rows are in the store."""
        self.works = 0
        """How many are `at_work`."""
        self._swept = 0
        self._blind = False
        """Whether rows on disk were not looked at when rows were brought last."""
        self._brought: Int64s | None = None
        """Keys that were brought last, as long as no row leaves the store."""
        self._most = self._account.total - min(self._account.total // _SHARE, _LEFT)
        values = 8 * words + sum(spec.dtype.itemsize + spec.nullable for spec in store.specs)
        self._row_bytes = values + _ROW_BYTES
        self.keys_at_once = max(16, self._most // (_CHUNKS * (values + 8 * self._layout.words)))
        """So many keys are brought together at most."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Rows that are brought stay meanwhile."""
        self.works += 1
        try:
            yield
        finally:
            self.works -= 1

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
        records, found = self.pages.find(missing)
        self._put(records[found])
        self._brought = words if valid is None else None

    def bring_all(self) -> None:
        """Has all rows in memory; `BudgetError` where they have no room."""
        if not self.is_on or self._is_whole:
            return
        with self.at_work():
            self._store.ask(self.pages.rows)
            for place in range(len(self.pages)):
                self._put(self._alone(self.pages.page(place)))
        self._is_whole = True

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
        room = self._store.can_take(rows, self._most)
        return room and (self._gone is None or not gone or self._gone.can_take(gone, self._most // _CHUNKS))

    def _put(self, records: Int64s) -> None:
        """Rows from disk."""
        if not len(records):
            return
        words, columns = self._unpacked(records)
        rows, _ = self._store.put(words)
        for place, column in enumerate(columns):
            self._store.write(place, rows, *column)
        self._mark(rows, np.full(len(rows), _COPY, np.uint8))

    def _alone(self, records: Int64s) -> Int64s:
        """Records of a page that are rows of now, and not in the store."""
        words = np.ascontiguousarray(records[:, : self._words])
        keep = self._store.find(words, None, False).rows < 0
        if self._gone is not None and self._gone.rows:
            keep &= self._gone.find(words, None, False).rows < 0
        return records[keep]

    def alone(self) -> Iterator[Rows]:
        """The rows that are not in the store, a page at a time."""
        if self.is_on and not self._is_whole:
            for place in range(len(self.pages)):
                records = self._alone(self.pages.page(place))
                if len(records):
                    yield self._unpacked(records)

    def _unpacked(self, records: Int64s) -> Rows:
        columns = self._layout.unpack(np.ascontiguousarray(records))
        words = np.stack([column.values for column in columns[: self._words]], axis=1)
        return words, columns[self._words :]

    # Marks

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
            self._gone.remove(words[back])
        self._mark(rows, marks)

    def note_removed(self, words: Int64s, rows: Int32s) -> None:
        """Rows are about to leave the table, and the store."""
        if self.is_on:
            there = np.flatnonzero(rows >= 0)
            copies = there[(self._marks(rows[there]) & _COPY) > 0]
            if len(copies):
                self._gone_keys().put(words[copies])

    def _gone_keys(self) -> KeyedStore:
        if self._gone is None:
            account = self._resources.account(f"table {self._name}: keys that are gone")
            self._gone = KeyedStore(self._words, False, (), account)
        return self._gone

    # Rows go to disk

    def _begin(self) -> None:
        """From now on rows are on disk."""
        self._merge(self._changed(everything=True))
        self._store.clear()
        self._store.add_column(_MARKS)
        self.pages.settle()
        self._gone_keys()
        self.is_on = True

    def _give_up(self) -> bool:
        """Others need memory."""
        if self.works:
            return False
        held = self._store.nbytes
        with self.at_work():
            if self.is_on:
                self._empty()
            elif held * _LEAST > self._account.total and self.can_go():
                self._begin()
        return self._store.nbytes < held

    def _empty(self) -> None:
        """All rows go to disk, and the memory is given back."""
        self._save()
        self._store.clear()
        self.pages.settle()
        self._is_whole, self._brought = False, None

    def flush(self) -> None:
        """Changes go to disk. Of the rows in memory those stay that were asked for again, unless they are too many."""
        store = self._store
        if any((self._marks_of(part) & _USED).any() for part in range(store.partitions)):
            self._save()
            if self.pages.settles():
                self._keep_used()
                return
        self._empty()
        rows = self._most // self._row_bytes
        if store.is_free(rows):
            store.reserve(rows)  # what grows is copied, and needs more memory meanwhile

    def _keep_used(self) -> None:
        """All but the rows that were asked for again leave the store; what has changed is on disk."""
        store = self._store
        for part in range(store.partitions):
            used = (self._marks_of(part) & _USED) > 0
            used[np.flatnonzero(used)[len(used) // _KEPT :]] = False
            places = np.flatnonzero(~used)
            store.remove(store.key_words(_found((part * store.capacity + places).astype(np.int32))))
            self._marks_of(part)[:] = _COPY
        store.dirty[:] = True
        self._is_whole, self._brought = False, None

    def _save(self) -> None:
        """What has changed goes to disk."""
        self._merge(self._changed(everything=False))

    def _merge(self, parts: Iterable[Int64s]) -> None:
        """Rows go to disk, and keys that are gone leave it."""
        self.pages.merge(self._with_gone(parts))
        if self._gone is not None:
            self._gone.clear()

    def _changed(self, *, everything: bool) -> Iterator[Int64s]:
        """The rows that have changed, or all, a partition at a time: each has the hashes of a range."""
        store = self._store
        for part, count in enumerate(store.counts.tolist()):
            places = np.arange(count) if everything else np.flatnonzero(self._marks_of(part) & _CHANGED)
            yield self._packed((part * store.capacity + places).astype(np.int32))

    def _with_gone(self, parts: Iterable[Int64s]) -> Iterator[Part]:
        """Records and the keys that are gone, in the order of their hashes. Those of a part are below those of the
        next one."""
        gone = np.empty((0, self._layout.words), np.int64)
        if self._gone is not None and self._gone.rows:
            gone = np.zeros((self._gone.rows, self._layout.words), np.int64)
            gone[:, : self._words] = self._gone.key_words(_found(self._gone.all_rows()))
        gone_hashes = self.pages.hashes(gone)
        order = np.argsort(gone_hashes)
        gone, gone_hashes = gone[order], gone_hashes[order]
        for records in parts:
            if not len(records):
                continue
            hashes = self.pages.hashes(records)
            count = int(np.searchsorted(gone_hashes, hashes.max(), side="right"))
            both = np.concatenate([records, gone[:count]])
            order = np.argsort(np.concatenate([hashes, gone_hashes[:count]]))
            yield both[order], (np.arange(len(both)) >= len(records))[order]
            gone, gone_hashes = gone[count:], gone_hashes[count:]
        yield gone, np.ones(len(gone), np.bool_)

    def _packed(self, rows: Int32s) -> Int64s:
        found = _found(rows)
        keys = [Argument(self._store.key_word(w, found), None) for w in range(self._words)]
        return self._layout.pack([*keys, *(self._store.column(place, found) for place in range(self._columns))])

    def clear(self) -> None:
        """There is no row any more."""
        self.pages.clear()
        if self._gone is not None:
            self._gone.clear()
        self._is_whole, self._brought = False, None

    # Rows whose time is over

    def sweep(self, limit: int, share: float) -> Iterator[Rows]:
        """Takes rows that were written up to a time from the disk, of a share of the pages in turn, and gives those
        that are not in memory, too."""
        count = len(self.pages)
        if not count:
            return
        turns = min(count, max(1, int(share * count)))
        places = np.sort((self._swept + np.arange(turns)) % count)
        self._swept = (self._swept + turns) % count
        parts: list[Part] = []
        clock = self.pages.clock
        for place in places[self.pages.oldest[places] <= limit].tolist():
            page = self.pages.page(place)
            over = page[page[:, clock] <= limit]
            words = np.ascontiguousarray(over[:, : self._words])
            parts.append((over, np.ones(len(over), np.bool_)))
            rows = self._store.find(words, None, False).rows
            if (rows >= 0).any():  # it is on disk no more as it is
                rows, _ = self._store.put(words[rows >= 0])
                self._mark(rows, self._marks(rows) | _CHANGED)
            alone = self._alone(over)
            if len(alone):
                yield self._unpacked(alone)
        self.pages.merge(parts)
        self.pages.settle()

    # Durability

    def snapshot(self) -> dict[str, Any]:
        gone = self._gone_keys()
        return {"pages": self.pages.snapshot(), "gone": gone.key_words(_found(gone.all_rows()))}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Before the rows of the store are restored."""
        self.is_on = True
        self._store.add_column(_MARKS)
        self._gone_keys().put(np.ascontiguousarray(snapshot["gone"]).reshape(-1, self._words))
        self.pages.restore(snapshot["pages"])

    def take(self, parts: Iterable[Rows]) -> None:
        """The rows of a store that has no room here, partition by partition, go to disk. They may have marks."""
        if not self.is_on:
            self._begin()
        self._merge(map(self._of_saved, parts))
        self.pages.settle()

    def _of_saved(self, rows: Rows) -> Int64s:
        words, columns = rows
        keys = [Argument(words[:, w], None) for w in range(self._words)]
        records = self._layout.pack([*keys, *columns[: self._columns]])
        return records if len(columns) == self._columns else records[(columns[-1].values & _CHANGED) > 0]


def _never() -> bool:
    return False


def _found(rows: Int32s) -> Found:
    return Found(rows, None, len(rows))
