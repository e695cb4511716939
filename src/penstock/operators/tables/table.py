"""A table: rows by their primary key as they are now, and as they were, for readers of the past. Rows are in memory, or
on disk and in memory while they are in use.

Invariants:
1. `heard` says how far each stream that writes the table has come. A change is made once no earlier change can come
   (`operators.ports`); a reader of a later moment waits (`operators.tables.lookup`).
2. Changes are made in the total order of (time, stream position, sequence). The previous row goes to the history as
   long as there are readers. `collect` forgets entries that all readers have passed.
3. With a time to live, `expiry` says which rows a moment still sees (`alive`), and each row has a hidden column,
   `WRITTEN`, behind the others.
4. Strings that rows give up during a run of changes are released at the end of the run, when the history holds its own
   uses (`operators.tables.texts`).

Why: docs/decisions/table-history.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int32s, Int64s
from penstock.components import component
from penstock.errors import BudgetError
from penstock.expressions.batch import Data
from penstock.expressions.vector import ColumnView, Evaluated, Vector, to_arrow
from penstock.lang.table_defs import TableDef
from penstock.lang.table_options import ttl_of
from penstock.operators.chunk import Chunk
from penstock.operators.columns import from_images, image, to_argument, to_data
from penstock.operators.interner import Interner
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.tables.cold import ColdRows
from penstock.operators.tables.expiry import WRITTEN, Expiry
from penstock.operators.tables.history import BEFORE_ALL, Entries, History
from penstock.operators.tables.last import last_of_each
from penstock.operators.tables.matched import Matched, these
from penstock.operators.tables.texts import SavedTexts, TableTexts, Uses, present
from penstock.operators.tables.whole import whole_table
from penstock.store.blocks import ColumnSpec
from penstock.store.keyed import Found
from penstock.store.keyed_pages import KeyedPages
from penstock.types import Field, SqlType

END = -START
"""Later than every event."""

_WIDE = (SqlType.BIGINT, SqlType.TIMESTAMP, SqlType.FLOAT, SqlType.DOUBLE)
LOADED_ROWS = 1 << 18
_NOT_EVERYWHERE = (SqlType.STRING, SqlType.DATE, SqlType.TIMESTAMP)
"""Types with values that some database cannot keep."""


class TableReader:
    """A reader of a table. It does not read any more as of times below `passed`, nor as of that time before `place`, a
    stream position and a sequence. Rows that were over when it began, at `since`, it does not see."""

    __slots__ = ("passed", "place", "since")

    def __init__(self, since: int) -> None:
        self.passed = START
        self.place = BEFORE_ALL
        self.since = since


class _FoundKeys(NamedTuple):
    """Keys that were asked for last, all of which there are, and their rows in such a layout of the store."""

    words: Int64s
    rows: Int32s
    layout: int


def _without_time_to_live(saved: dict[str, Any]) -> dict[str, Any]:
    """In version 1 no table had one."""
    return {**saved, "expiry": None}


def _in_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """In version 2 all rows were in memory."""
    return {**saved, "cold": None}


@component("Table", 3, _without_time_to_live, _in_memory)
class Table:
    reads_by_key_only = False

    def __init__(self, definition: TableDef, resources: Resources) -> None:
        self.definition = definition
        self._keys: tuple[Field, ...] = definition.key_fields
        self.others: tuple[Field, ...] = definition.other_fields
        ttl = ttl_of(definition)
        if ttl is not None:
            self.others += (Field(WRITTEN, SqlType.BIGINT, nullable=False),)
        self.places = {field.name: place for place, field in enumerate(self.others)}
        self._flags = [place for place, field in enumerate(self.others) if field.type is SqlType.BOOLEAN]
        name = f"table {definition.name}"
        self.texts = TableTexts(self._keys, self.others, resources.account(f"{name}: strings"))
        self.interners = self.texts.interners
        specs = [ColumnSpec(f.name, f.type.storage, f.nullable) for f in self.others]
        narrow = not any(field.type in _WIDE for field in self._keys)
        self.store = resources.keyed(name, len(self._keys), narrow, specs)
        self.expiry = None if ttl is None else Expiry(ttl, self.places[WRITTEN], self.store)
        self.history = History(len(self._keys), specs, resources.account(f"{name}: rows of the past"))
        device = resources.device(f"table-{definition.name}")
        self._pages = KeyedPages(self.store, device)
        written = None if self.expiry is None else self.expiry.place
        self.cold = ColdRows(definition.name, self.store, self.texts, written, device, resources)
        self.heard: dict[int, int] = {}
        self._readers: list[TableReader] = []
        self._collected = ((START, BEFORE_ALL), -1)
        """What readers had passed, and how many changes there were, when `collect` looked last."""
        self._known = _FoundKeys(np.empty((0, len(self._keys)), np.int64), np.empty(0, np.int32), -1)
        self.on_change: Callable[[Int64s], None] | None = None
        self.unfit_for_copy: Callable[[pa.Array, SqlType], Bools | None] | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.definition.schema.arrow

    def complete_before(self, position: int) -> int:
        """The time before which all changes have been made that rows at this stream position see. A stream behind it
        may still change the table at that time; the changes of the position's own stream come with its rows."""
        others = [watermark + (place > position) for place, watermark in self.heard.items() if place != position]
        return min(others, default=END)

    # Readers

    def reader(self) -> TableReader:
        reader = TableReader(START if self.expiry is None else self.expiry.now)
        self._readers.append(reader)
        return reader

    def forget(self, reader: TableReader) -> None:
        self._readers.remove(reader)
        self.collect()

    @property
    def keeps_history(self) -> bool:
        return bool(self._readers)

    def collect(self) -> None:
        """Forgets the past that all readers have passed."""
        least = min([(reader.passed, reader.place) for reader in self._readers], default=(END, BEFORE_ALL))
        now = least, self.history.stop
        if now == self._collected:
            return
        self._collected = now
        gone = self.history.collect(*least)
        if gone is not None and self.interners:
            for interner, codes in self._strings_of(gone):
                interner.release(codes)

    # Rows whose time is over

    def alive(self, matched: Matched, times: Int64s) -> Matched:
        """What was looked up, without rows that are over as of the times."""
        assert self.expiry is not None
        if not matched.there.any():
            return matched
        gone = matched.there & (matched.argument(WRITTEN).values <= times - self.expiry.ttl)
        return matched.without(gone) if gone.any() else matched

    def expire(self) -> None:
        """Frees rows that no event will see."""
        assert self.expiry is not None
        if not self.expiry.is_due:
            return
        passed = [reader.passed for reader in self._readers]
        with self.cold.at_work:
            swept = self.expiry.sweep((*self.heard.values(), *passed), self._free)
            if swept is not None and self.cold.is_on:
                self.expiry.expired += self.cold.sweep(*swept)

    def _free(self, over: Found) -> None:
        words = self.store.key_words(over)
        for part in self.parts_of(words):
            self.cold.bring(part, new=True)
            self.remove(part)
        self.changed(None)
        self.store.shrink()

    def parts_of(self, words: Int64s) -> list[Int64s]:
        """Keys, as many at a time as have room in memory together."""
        step = self.cold.keys_at_once
        return [words[start : start + step] for start in range(0, len(words), step)]

    # Values in and out

    def words(
        self, columns: list[Evaluated], kinds: list[SqlType], *, only_known: bool = False
    ) -> tuple[Int64s, Bools | None]:
        """Key values as words, and which have no NULL in them (None: all). Strings that the table does not know have
        codes of their own until `settle`, or with `only_known` count as NULL: no row has them."""
        found: list[Int64s] = []
        valid: Bools | None = None
        for column, kind, field in zip(columns, kinds, self._keys, strict=True):
            images, known = image(column, kind, self.interners.get(field.name), only_known=only_known)
            if known is not None:
                images = np.where(known, images, 0)
                valid = known if valid is None else valid & known
            found.append(images)
        return np.stack(found, axis=1), valid

    def settle(self) -> None:
        """Forgets strings that nothing uses; none is at work."""
        self.texts.settle()

    def key_data(self, name: str, words: Int64s, valid: Bools | None) -> Data:
        return self.key_values(name, words[:, self.definition.key.index(name)], valid)

    def key_values(self, name: str, word: Int64s, valid: Bools | None) -> Data:
        field = self._keys[self.definition.key.index(name)]
        return from_images(word, valid, field.type, self.interners.get(name))

    def data(self, name: str, column: Argument) -> Data:
        field = self.others[self.places[name]]
        return to_data(column.values, column.valid, field.type, self.interners.get(name))

    def stored(self, name: str, column: Evaluated, kind: SqlType) -> Argument:
        """A computed column as it is stored; its strings have uses once it is written."""
        return to_argument(column, kind, self.interners.get(name))

    def unfit(self, name: str, column: Argument) -> Bools | None:
        """Which values of a column the table's copy in a database cannot keep; None if there are none."""
        kind = self.others[self.places[name]].type
        return None if self.unfit_for_copy is None else self._unfit(self.data(name, column), kind, len(column.values))

    def unfit_keys(self, words: Int64s) -> Bools | None:
        """The same of keys."""
        if self.unfit_for_copy is None:
            return None
        found: Bools | None = None
        for field in self._keys:
            unfit = self._unfit(self.key_data(field.name, words, None), field.type, len(words))
            found = found if unfit is None else unfit if found is None else found | unfit
        return found

    def _unfit(self, data: Data, kind: SqlType, rows: int) -> Bools | None:
        if self.unfit_for_copy is None or kind not in _NOT_EVERYWHERE:
            return None
        return self.unfit_for_copy(to_arrow(data, kind, rows) if isinstance(data, Vector) else data, kind)

    # Looking up: keys are brought before (`cold`)

    def look_up(self, words: Int64s, valid: Bools | None, numbers: Int64s | None) -> Matched:
        """The rows of keys as of so many entries of the history each; None is now."""
        found = self._find(words, valid)
        if numbers is None or not len(self.history):
            return Matched(self, found, None)
        entries = self.history.as_of(words, numbers)
        if valid is not None:
            entries[~valid] = -1
        return Matched(self, found, entries)

    def _find(self, words: Int64s, valid: Bools | None) -> Found:
        """Where the keys are. Several statements and queries of the same events mostly ask for the same keys."""
        known = self._known
        if valid is None and known.layout == self.store.layout and np.array_equal(words, known.words):
            return these(known.rows)
        found = self.store.find(words, valid)
        if found.order is None and found.rows.min(initial=0) >= 0:
            self._known = _FoundKeys(words, found.rows, self.store.layout)
        return found

    def rows_at(self, rows: Int32s) -> Matched:
        """Rows of now, by their numbers."""
        return Matched(self, these(rows), None)

    def nothing(self, rows: int) -> Matched:
        """No row, so many times."""
        return Matched(self, these(np.full(rows, -1, np.int32)), None)

    # One row, of a table without texts (`operators.tables.single`)

    def row_values(self, row: int) -> list[Any]:
        """The columns besides the key of a row of now, as Python values."""
        values = self.store.read_one(row)
        return self._typed(values) if self._flags else values

    def row_as_of(
        self, words: tuple[int, ...], now: list[Any] | None, moment: tuple[int, int, int], *, before: bool
    ) -> list[Any] | None:
        """The row of a key as of a moment, or `before` it, where the history has entries; `now` is that of now."""
        change = self.history.row_before(words, moment, before=before)
        if change is None:
            return now
        return None if change.row is None else self._typed(change.row)

    def _typed(self, values: list[Any]) -> list[Any]:
        for place in self._flags:
            if values[place] is not None:
                values[place] = bool(values[place])
        return values

    @property
    def has_copy(self) -> bool:
        """Whether what changes is noted for a copy in a database."""
        return self.on_change is not None or self.unfit_for_copy is not None

    # Changing

    def write(self, words: Int64s, columns: Mapping[str, Argument], known: Int32s | None = None) -> None:
        """Sets columns of rows, which are added where there are none; all keys differ. `known` are the rows of now, -1
        where there is none. `changed` ends it."""
        rows, fresh = self.store.put(words, known)
        self.cold.note_written(words, rows, fresh)
        if self.on_change is not None:
            self.on_change(words)
        if fresh.any():
            self._known = _FoundKeys(words, rows, self.store.layout)
            new = rows[fresh]
            if self.texts.in_key:
                for interner, codes in self.texts.of_keys(words[fresh]):
                    interner.use(codes)
            for place, field in enumerate(self.others):
                if field.name not in columns:
                    self.store.write(place, new, np.zeros(len(new), field.type.storage), np.zeros(len(new), np.bool_))
        for name, column in columns.items():
            place = self.places[name]
            if name in self.interners:
                interner = self.interners[name]
                interner.use(present(column))
                self.texts.give_up([(interner, present(self.store.column(place, these(rows[~fresh]))))])
            self.store.write(place, rows, column.values, column.valid)

    def remove(self, words: Int64s) -> None:
        """Takes out rows that are there; all keys differ. `changed` ends it."""
        found = self.store.find(words, None, False)
        self.cold.note_removed(words, found.rows)
        if self.on_change is not None:
            self.on_change(words)
        if self.interners:
            columns = [self.store.column(place, found) for place in range(len(self.others))]
            self.texts.give_up(self.texts.of_rows(words, columns))
        self.store.remove(words)

    def begin_anew(self, words: Int64s) -> None:
        """Takes out rows that are over, before new ones with their keys are written; all keys differ."""
        assert self.expiry is not None
        self.expiry.expired += len(words)
        self.remove(words)

    def changed(self, entries: Entries | None) -> None:
        """Ends a run of changes: `entries` are what was there before, for readers of the past."""
        if entries is not None and self.keeps_history and len(entries.existed):
            for interner, codes in self._strings_of(entries):
                interner.use(codes)
            self.history.append(entries)
        self.settle()

    def _strings_of(self, entries: Entries) -> Iterator[tuple[Interner, Int32s]]:
        yield from self.texts.of_keys(entries.keys)
        for field, column in zip(self.others, entries.columns, strict=True):
            if field.name in self.interners:
                there = entries.existed if column.valid is None else entries.existed & column.valid
                yield self.interners[field.name], column.values[there]

    # As a whole

    def all_rows(self) -> Found:
        return these(self.store.all_rows())

    def batch(self, found: Found) -> pa.RecordBatch:
        """Rows as they are now, as Arrow."""
        return pa.RecordBatch.from_arrays(Matched(self, found, None).arrays(), schema=self.schema)

    def key_batch(self, words: Int64s) -> pa.RecordBatch:
        """Keys as Arrow, whether they have a row or not."""
        arrays = []
        for field in self._keys:
            data = self.key_data(field.name, words, None)
            arrays.append(to_arrow(data, field.type, len(words)) if isinstance(data, Vector) else data)
        return pa.RecordBatch.from_arrays(arrays, names=list(self.definition.key))

    def ordered(self, words: Int64s, before: Int64s | None = None) -> Int64s:
        """In which order keys stand: by the first column, then the others; numbers up, strings by their bytes. What
        stands `before` counts more."""
        ranks = {name: self.interners[name].ranks()[words[:, w]] for w, name in self.texts.in_key.items()}
        return self.ordered_by(words, ranks, before)

    def ordered_by(self, words: Int64s, ranks: Mapping[str, Int64s], before: Int64s | None = None) -> Int64s:
        """The same, if the texts of keys have such ranks."""
        sort_keys = [] if before is None else [before]
        for w, field in enumerate(self._keys):
            values = words[:, w]
            if field.name in ranks:
                values = ranks[field.name]
            elif field.type.is_floating:
                values = np.where(values < 0, np.int64(-(2**63)) - values, values)
            sort_keys.append(values)
        return np.lexsort(sort_keys[::-1])

    def to_arrow(self) -> pa.Table:
        """All rows as they are now, in the order of their keys."""
        with self.cold.at_work:
            return whole_table(self)

    def load(self, batches: Iterable[pa.RecordBatch], rows: int | None = None) -> None:
        """Replaces everything by rows that were read; the last row of a key counts."""
        self.clear()
        if rows is not None and (self.store.can_take(rows) or not self.cold.can_go()):
            self.store.reserve(rows)
        for batch in batches:
            step = min(LOADED_ROWS, self.cold.rows_at_once(batch.num_rows, batch.nbytes))
            for start in range(0, batch.num_rows, step):
                self.add(batch.slice(start, step))

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows that were read, in place of those with their keys; of several rows of a key the last counts."""
        columns = {f.name: ColumnView(batch.column(f.name), f.type) for f in self.definition.schema}
        self.cold.prepare([Chunk(np.empty(batch.num_rows, np.int64), batch)])
        with self.cold.at_work:
            words, valid = self.words([columns[f.name] for f in self._keys], [f.type for f in self._keys])
            keep = last_of_each(words, valid)
            stored = {f.name: self.stored(f.name, columns[f.name], f.type) for f in self.others}
            if keep is not None:
                words = words[keep]
                stored = {name: column.at(keep) for name, column in stored.items()}
            self.cold.bring(words, new=True)
            self.write(words, stored)
            self.changed(None)

    def strings(self) -> Iterator[Uses]:
        """The strings of all rows, one code for each use."""
        found = self.all_rows()
        columns = [self.store.column(place, found) for place in range(len(self.others))]
        yield from self.texts.of_rows(self.store.key_words(found), columns)

    def clear(self) -> None:
        self.store.clear()
        self.cold.clear()
        self.texts.clear()

    # Durability

    def snapshot(self) -> dict[str, Any]:
        self.settle()  # events that asked for nothing may have left texts
        return {
            "rows": self._pages.snapshot(),
            "cold": self.cold.snapshot() if self.cold.is_on else None,
            "strings": self.texts.snapshot(),
            "history": self.history.snapshot(),
            "expiry": None if self.expiry is None else self.expiry.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        with self.cold.at_work:
            if snapshot["cold"] is not None:
                self.cold.restore(snapshot["cold"])
            try:
                self._pages.restore(snapshot["rows"])
                self.texts.restore(snapshot["strings"])
            except BudgetError:
                if not self.cold.can_go():
                    raise
                self._restore_to_disk(snapshot)
        self.history.restore(snapshot["history"])
        if self.expiry is not None:
            self.expiry.restore(snapshot["expiry"])

    def _restore_to_disk(self, snapshot: dict[str, Any]) -> None:
        """Rows, or their texts, have no room in memory. What else uses texts is restored after it."""
        self.store.clear()
        self.texts.clear()
        saved = SavedTexts(self.texts, snapshot["strings"])
        self.cold.take(self._pages.parts(snapshot["rows"]), saved)
        self.texts.restore(saved.left())
        self.texts.settle()
        self.texts.shrink()
