"""The rows of a table that were looked up, as they are now or as they were at the moments that were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int32s, Int64s
from penstock.columns import Argument
from penstock.expressions.batch import Data
from penstock.expressions.vector import Vector, to_arrow
from penstock.store.keyed import Found

if TYPE_CHECKING:
    from penstock.operators.tables.table import Table


def these(rows: Int32s) -> Found:
    return Found(rows, None, len(rows))


class Matched:
    """Rows that were looked up, one for each key asked for; `there` says which keys have one. `entries` are those that
    the history has, -1 where the row of now is meant."""

    def __init__(self, table: Table, found: Found, entries: Int64s | None) -> None:
        self._table = table
        self._found = found
        self._old = np.flatnonzero(entries >= 0) if entries is not None else np.empty(0, np.int64)
        self._entries = entries[self._old] if entries is not None else self._old
        self._arguments: dict[str, Argument] = {}
        self.there: Bools = found.in_order() >= 0
        if len(self._old):
            self.there[self._old] = table.history.existed(self._entries)
        self._everywhere = bool(self.there.all())

    def column(self, name: str) -> Data:
        """A column of the table, NULL where there is no row."""
        table = self._table
        if name in table.definition.key:
            return table.key_values(name, self._key_word(name), None if self._everywhere else self.there)
        return table.data(name, self.argument(name))

    def arrays(self) -> list[pa.Array]:
        """All columns of the table, as Arrow."""
        found = []
        for field in self._table.definition.schema:
            data = self.column(field.name)
            found.append(to_arrow(data, field.type, self._found.keys) if isinstance(data, Vector) else data)
        return found

    def _key_word(self, name: str) -> Int64s:
        place = self._table.definition.key.index(name)
        word = self._table.store.key_word(place, self._found).astype(np.int64)
        if len(self._old):
            word[self._old] = self._table.history.place(place, self._entries).values
        return word

    def without(self, gone: Bools) -> Matched:
        """The same, with no row where one is `gone`."""
        matched = Matched(self._table, self._found, self._all_entries())
        matched.there = self.there & ~gone
        matched._everywhere = bool(matched.there.all())
        return matched

    def taken(self, places: Int64s) -> Matched:
        """Some of the rows, all of which there are."""
        entries = self._all_entries()
        found = these(self.rows[places])
        return Matched(self._table, found, None if entries is None else entries[places])

    def _all_entries(self) -> Int64s | None:
        if not len(self._old):
            return None
        entries = np.full(self._found.keys, -1, np.int64)
        entries[self._old] = self._entries
        return entries

    def keys(self) -> Int64s:
        """The keys of the rows; where there is none, 0."""
        words = self._table.store.key_words(self._found)
        if len(self._old):
            words[self._old] = self._table.history.keys_of(self._entries)
        return words

    @property
    def rows(self) -> Int32s:
        """Where the rows of now are, -1 where there is none."""
        return self._found.in_order()

    def argument(self, name: str) -> Argument:
        """A column besides the key, as it is stored."""
        if name not in self._arguments:
            self._arguments[name] = self._read(name)
        return self._arguments[name]

    def _read(self, name: str) -> Argument:
        table = self._table
        place = table.places[name]
        if len(self._old) == self._found.keys:
            values, valid = table.history.column(place, self._entries)
        else:
            values, valid = self._mixed(place)
        if not self._everywhere:
            valid = self.there if valid is None else valid & self.there
        elif valid is not None and valid.all():
            valid = None
        return Argument(values, valid)

    def _mixed(self, place: int) -> Argument:
        """Rows of now, and of the past."""
        table = self._table
        values, valid = table.store.column(place, self._found)
        if len(self._old):
            old = table.history.column(place, self._entries)
            values[self._old] = old.values
            if valid is None and old.valid is not None:
                valid = np.ones(len(values), np.bool_)
            if valid is not None:
                valid[self._old] = True if old.valid is None else old.valid
        return Argument(values, valid)
