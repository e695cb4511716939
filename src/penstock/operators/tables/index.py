"""Rows of a table by the values of columns besides its key, or all of them: what a look-up without the key needs.

Invariants:
1. An index is of the rows as they are numbered; when the store has changed, it is made again.
2. Rows of one value come in the order of their keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s
from penstock.expressions.vector import Evaluated, Vector
from penstock.operators.columns import image
from penstock.operators.tables.table import Matched, Table
from penstock.store.budget import Account
from penstock.store.keyed import Found, KeyedStore
from penstock.types import SqlType

_INDEX_BYTES = 96
"""What an index takes for each row while it is made, besides the words of its values."""


class _Sorted(NamedTuple):
    """Places of something (rows or entries) sorted by a value's number, and where each number begins and ends."""

    values: KeyedStore
    places: Int64s
    begins: Int64s
    ends: Int64s

    def pairs(self, words: Int64s, valid: Bools | None) -> tuple[Int64s, Int64s]:
        """For each place that has the value asked for: who asked, and the place."""
        found = self.values.find(words, valid, False).rows.astype(np.int64)
        known = np.flatnonzero(found >= 0)
        begins = self.begins[found[known]]
        counts = self.ends[found[known]] - begins
        asked = np.repeat(known, counts)
        within = np.arange(len(asked)) - np.repeat(np.cumsum(counts) - counts, counts)
        return asked, self.places[np.repeat(begins, counts) + within]


class ValueIndex:
    """`columns` are those that are compared; none are all rows."""

    def __init__(self, table: Table, columns: tuple[str, ...], account: Account) -> None:
        self._table = table
        self._columns = columns
        self._account = account
        self._made = -1
        self._rows = _sorted(np.empty((0, max(1, len(columns))), np.int64), None)

    def words(self, columns: list[Evaluated], kinds: list[SqlType], rows: int) -> tuple[Int64s, Bools | None]:
        """Values that are asked for, as words."""
        words, valid = np.zeros((rows, max(1, len(columns))), np.int64), None
        for w, (column, kind, name) in enumerate(zip(columns, kinds, self._columns, strict=True)):
            words[:, w], known = image(column, kind, self._table.interners.get(name))
            if known is not None:
                valid = known if valid is None else valid & known
        return words, valid

    def look_up(self, words: Int64s, valid: Bools | None, numbers: Int64s | None) -> tuple[Int64s, Matched]:
        """Who asked, once for each row found, and the rows, as of so many entries of the history each."""
        self._refresh()
        asked, rows = self._rows.pairs(words, valid)
        table, history = self._table, self._table.history
        now = Found(rows.astype(np.int32), None, len(rows))
        if numbers is None or not len(history):
            return asked, Matched(table, now, None)
        keys = table.store.key_words(now)
        valid_now = numbers[asked] >= history.last_numbers(keys)
        asked, rows, keys = asked[valid_now], rows[valid_now], keys[valid_now]
        old_asked, entries = self._of_the_past(words, valid, numbers)
        none = np.full(len(rows), -1, np.int64)
        all_asked = np.concatenate([asked, old_asked])
        all_rows = np.concatenate([rows.astype(np.int32), np.full(len(entries), -1, np.int32)])
        all_entries = np.concatenate([none, entries])
        order = table.ordered(np.concatenate([keys, history.keys_of(entries)]), all_asked)
        found = Found(all_rows[order], None, len(order))
        return all_asked[order], Matched(table, found, all_entries[order])

    def _of_the_past(self, words: Int64s, valid: Bools | None, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Who asked, and the entries of the history that had such a value when it was asked for."""
        history = self._table.history
        entries = np.flatnonzero(history.existed(np.arange(len(history))))
        columns = [self._stored(name, self._of_entries(name, entries)) for name in self._columns]
        index = _sorted(*_joined(columns, len(entries)))
        asked, places = index.pairs(words, valid)
        found = entries[places]
        since, until = history.intervals()
        then = (numbers[asked] >= since[found]) & (numbers[asked] <= until[found])
        return asked[then], found[then]

    def _of_entries(self, name: str, entries: Int64s) -> Argument:
        key = self._table.definition.key
        if name in key:
            return self._table.history.place(key.index(name), entries)
        return self._table.history.column(self._table.places[name], entries)

    def _refresh(self) -> None:
        store = self._table.store
        if self._made == store.changes:
            return
        rows = store.all_rows()
        self._account.resize(len(rows) * (8 * max(1, len(self._columns)) + _INDEX_BYTES))
        everyone = Found(rows, None, len(rows))
        order = self._table.ordered(store.key_words(everyone))
        rows = rows[order]
        found = Found(rows, None, len(rows))
        matched = Matched(self._table, found, None)
        columns = []
        for name in self._columns:
            if name in self._table.definition.key:
                place = self._table.definition.key.index(name)
                columns.append(Argument(store.key_words(found)[:, place], None))
            else:
                columns.append(self._stored(name, matched.argument(name)))
        index = _sorted(*_joined(columns, len(rows)))
        self._account.resize(index.places.nbytes * 3 + index.values.nbytes)
        self._rows = index._replace(places=rows[index.places].astype(np.int64))
        self._made = store.changes

    def _stored(self, name: str, column: Argument) -> Argument:
        """A stored column as images."""
        if name in self._table.interners or name in self._table.definition.key:
            return Argument(column.values.astype(np.int64), column.valid)
        kind = self._table.others[self._table.places[name]].type
        return Argument(*image(Evaluated(Vector(*column), kind, len(column.values), ()), kind, None))


def _joined(columns: list[Argument], rows: int) -> tuple[Int64s, Bools | None]:
    words, valid = np.zeros((rows, max(1, len(columns))), np.int64), None
    for w, column in enumerate(columns):
        words[:, w] = column.values
        if column.valid is not None:
            valid = column.valid if valid is None else valid & column.valid
    return words, valid


def _sorted(words: Int64s, valid: Bools | None) -> _Sorted:
    kept = np.arange(len(words)) if valid is None else np.flatnonzero(valid)
    store, rows, _ = KeyedStore.numbering(words[kept])
    numbers = rows.astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    every = np.arange(store.partitions * store.capacity)
    begins = np.searchsorted(numbers[order], every)
    return _Sorted(store, kept[order], begins, np.searchsorted(numbers[order], every, side="right"))
