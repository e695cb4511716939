"""One table as a look-up reads it: by its key, by an index on other columns, or row by row."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.errors import QueryError
from penstock.expressions.batch import Batch
from penstock.expressions.evaluate import compile_expression
from penstock.operators.chunk import Chunk
from penstock.operators.grouping import Grouping
from penstock.operators.resources import Resources
from penstock.operators.rows import emptied, joined_rows, taken
from penstock.operators.tables.index import ValueIndex
from penstock.operators.tables.table import Matched
from penstock.plan.reads import GroupingKey
from penstock.plan.tables.nodes import Lookup

PAIRS = 1 << 20
"""So many pairs of an event and a row are made at a time."""

Piece = tuple[Chunk, Int64s]
"""Rows, and the sequences of the events that they come from."""


class TableReading:
    """`wanted` are the columns to bring: for each name that of the table's column, and whether it is the one from
    before the event's own changes."""

    def __init__(self, name: str, lookup: Lookup, wanted: dict[str, tuple[str, bool]], resources: Resources) -> None:
        self.table = resources.tables.table(lookup.table)
        if self.table.reads_by_key_only and not lookup.is_keyed:
            raise QueryError(
                f"'{lookup.table}' stays in its database and is looked up by its key ({', '.join(lookup.key)})",
                hint="compare the whole key, or leave out 'mode' = 'lookup' to have the table loaded",
            )
        self.reader = self.table.reader()
        resources.at_end(lambda: self.table.forget(self.reader))
        self._lookup = lookup
        self._behind = 0
        self._wanted = wanted
        self._looks_back = any(before for _, before in wanted.values())
        self._keys = [compile_expression(key) for key in lookup.keys]
        self._kinds = [key.type for key in lookup.keys]
        self._failed = Grouping(GroupingKey(None, (), ()), [resources.reject])
        self._on = Grouping(GroupingKey(lookup.on, (), ()), [resources.reject])
        self._index = None
        if not lookup.is_keyed:
            self._index = ValueIndex(self.table, lookup.by, resources.account(f"{name}: index of {lookup.table}"))

    def join(self, rows: Chunk, sequences: Int64s, position: int, behind: int) -> list[Piece]:
        """The rows with those of the table, as of their times and so much more."""
        self._behind = behind
        if not rows.rows:
            return []
        if self._index is None:
            return [self._by_key(rows, sequences, position)]
        size = rows.rows if self._lookup.by else max(1, PAIRS // max(1, self.table.store.rows))
        pieces = []
        for start in range(0, rows.rows, size):
            places = np.arange(start, min(start + size, rows.rows))
            part = rows if len(places) == rows.rows else taken(rows, places)
            pieces.append(self._by_index(part, sequences[places], position))
        return pieces

    def _numbers(self, times: Int64s, sequences: Int64s, position: int, *, before: bool) -> Int64s | None:
        history = self.table.history
        if not len(history):
            return None
        return history.numbers(times + self._behind, position, sequences, before=before)

    def _by_key(self, rows: Chunk, sequences: Int64s, position: int) -> Piece:
        columns = []
        keep: Bools | None = None
        for key in self._keys:
            found = key(rows.columns)
            keep = self._failed.without(rows, keep, found.errors)
            columns.append(found)
        words, valid = self.table.words(columns, self._kinds, only_known=not self.table.reads_by_key_only)
        matched = self.table.look_up(words, valid, self._numbers(rows.times, sequences, position, before=False))
        earlier = None
        if self._looks_back and not self.table.reads_by_key_only:
            numbers = self._numbers(rows.times, sequences, position, before=True)
            earlier = self.table.look_up(words, valid, numbers)
        joined = self._beside(rows, matched, earlier)
        self.table.settle()
        there = matched.there
        if self._lookup.on is not None:
            there = self._with_met(Chunk(rows.times, joined), there)
            if self._lookup.left and not there.all():
                joined = self._emptied(joined, there)
        if self._lookup.left:
            there = np.ones(rows.rows, np.bool_)
        if keep is not None:
            there = there & keep
        if there.all():
            return Chunk(rows.times, joined), sequences
        places = np.flatnonzero(there)
        return taken(Chunk(rows.times, joined), places), sequences[places]

    def _with_met(self, joined: Chunk, there: Bools) -> Bools:
        """The rows of which ON holds. It is asked only where there is a row: what is not evaluated cannot fail."""
        places = np.flatnonzero(there)
        whole = len(places) == joined.rows
        met = self._on.passes(joined if whole else taken(joined, places))
        if met is None or whole:
            return there if met is None else met
        there = np.zeros(joined.rows, np.bool_)
        there[places[met]] = True
        return there

    def _by_index(self, rows: Chunk, sequences: Int64s, position: int) -> Piece:
        assert self._index is not None
        columns = []
        keep: Bools | None = None
        for key in self._keys:
            found = key(rows.columns)
            keep = self._failed.without(rows, keep, found.errors)
            columns.append(found)
        words, valid = self._index.words(columns, self._kinds, rows.rows)
        asked, matched = self._index.look_up(words, valid, self._numbers(rows.times, sequences, position, before=False))
        pairs = taken(rows, asked)
        earlier = None
        if self._looks_back:
            numbers = self._numbers(rows.times, sequences, position, before=True)
            earlier = self._before(matched, None if numbers is None else numbers[asked])
        joined = Chunk(pairs.times, self._beside(pairs, matched, earlier))
        self.table.settle()
        if self._lookup.on is not None:
            met = self._on.passes(joined)
            if met is not None and not met.all():
                joined, asked = taken(joined, np.flatnonzero(met)), asked[met]
        if not self._lookup.left:
            return joined, sequences[asked]
        return self._with_unmatched(rows, joined, asked, sequences, keep)

    def _before(self, matched: Matched, numbers: Int64s | None) -> Matched:
        """The same rows as they were before the events' own changes."""
        return self.table.look_up(matched.keys(), None, numbers)

    def _with_unmatched(
        self, rows: Chunk, joined: Chunk, asked: Int64s, sequences: Int64s, keep: Bools | None
    ) -> Piece:
        """Events without a row remain, in their places."""
        lonely = np.ones(rows.rows, np.bool_)
        lonely[asked] = False
        if keep is not None:
            lonely &= keep
        if not lonely.any():
            return joined, sequences[asked]
        # The rows behind the pairs are the events themselves, beside nothing.
        alone = taken(rows, np.flatnonzero(lonely))
        nothing = self.table.nothing(alone.rows)
        both = joined_rows(joined, Chunk(alone.times, self._beside(alone, nothing, nothing)))
        order = np.argsort(np.concatenate([asked, np.flatnonzero(lonely)]), kind="stable")
        return taken(both, order), sequences[np.concatenate([asked, np.flatnonzero(lonely)])[order]]

    def _beside(self, rows: Chunk, matched: Matched, earlier: Matched | None) -> Batch:
        batch = rows.columns
        assert isinstance(batch, Batch)
        brought = {
            name: (earlier if before and earlier is not None else matched).column(column)
            for name, (column, before) in self._wanted.items()
        }
        return batch.with_columns(brought)

    def _emptied(self, batch: Batch, there: Bools) -> Batch:
        """The table's columns NULL where there is no row."""
        return batch.with_columns({name: emptied(batch.data(name), there) for name in self._wanted})
