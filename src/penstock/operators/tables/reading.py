"""One table as a look-up reads it: by its key, by an index on expressions over its columns, or row by row.

A look-up by equalities that can fail has two ways: the shorter one for rows whose keys can be computed, and the one on
which pairs are compared for the others (`plan.tables.narrowing`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.errors import QueryError
from penstock.expressions.batch import Batch
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.expressions.vector import Evaluated
from penstock.operators.chunk import Chunk
from penstock.operators.columns import validity
from penstock.operators.grouping import Grouping
from penstock.operators.resources import Resources
from penstock.operators.rows import emptied, joined_rows, taken
from penstock.operators.stretches import stretches
from penstock.operators.tables.index import ValueIndex
from penstock.operators.tables.matched import Matched
from penstock.plan.reads import GroupingKey
from penstock.plan.tables.nodes import Lookup, Narrowed, is_key

PAIRS = 1 << 20
"""So many pairs of an event and a row are made at a time."""


class Piece(NamedTuple):
    """Rows, and the sequences of the events that they come from. `odd` says for which of them a condition behind all
    look-ups, by which rows were to be found, fails: these are not left out by what comes after it (None: for none)."""

    rows: Chunk
    sequences: Int64s
    odd: Bools | None = None

    def taken(self, places: Int64s) -> Piece:
        if len(places) == self.rows.rows:
            return self
        odd = None if self.odd is None else self.odd[places]
        return Piece(taken(self.rows, places), self.sequences[places], odd)


class _RowFinder:
    """How rows are found: by an index, or without one by the primary key."""

    def __init__(self, keys: Sequence[Expression], index: ValueIndex | None) -> None:
        self.keys = [compile_expression(key) for key in keys]
        self.kinds = [key.type for key in keys]
        self.index = index


class _Joined(NamedTuple):
    """Rows with those of the table: which row each comes from, and which are odd because of the table's."""

    rows: Chunk
    asked: Int64s
    odd: Bools | None = None


class TableReading:
    """`wanted` are the columns to bring: for each name that of the table's column, and whether it is the one from
    before the event's own changes. `read_behind` are those that are read once rows are found (None: all)."""

    def __init__(
        self,
        name: str,
        lookup: Lookup,
        wanted: dict[str, tuple[str, bool]],
        read_behind: Set[str] | None,
        resources: Resources,
    ) -> None:
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
        self._read_behind = read_behind
        self._looks_back = any(before for _, before in wanted.values())
        self._failed = Grouping(GroupingKey(None, (), ()), [resources.reject])
        self._on = Grouping(GroupingKey(lookup.on, (), ()), [resources.reject])
        self._way = _RowFinder(lookup.keys, None if lookup.is_keyed else self._index(name, lookup.by, None, resources))
        self._shorter: _RowFinder | None = None
        self._narrowed = lookup.narrowed
        if (shorter := lookup.narrowed) is not None:
            by_key = is_key(shorter.by, lookup.key)
            index = None if by_key else self._index(f"{name}-narrowed", shorter.by, shorter, resources)
            self._shorter = _RowFinder(shorter.keys, index)

    def _index(
        self, name: str, by: tuple[Expression, ...], shorter: Narrowed | None, resources: Resources
    ) -> ValueIndex:
        account = resources.account(f"{name}: index of {self._lookup.table}")
        texts = resources.account(f"{name}: texts of the index of {self._lookup.table}")
        if shorter is None:
            return ValueIndex(self.table, by, account, texts)
        nulls, certain = shorter.with_nulls, len(self._lookup.by)
        return ValueIndex(self.table, by, account, texts, odd=True, with_nulls=nulls, certain=certain)

    def join(self, piece: Piece, position: int, behind: int) -> list[Piece]:
        """The rows with those of the table, as of their times and so much more."""
        with self.table.cold.at_work:
            return self._join(piece, position, behind)

    def _join(self, piece: Piece, position: int, behind: int) -> list[Piece]:
        self._behind = behind
        count = piece.rows.rows
        if not count:
            return []
        pieces = []
        odd = None if self._shorter is None else self._odd(self._shorter, piece)
        most = PAIRS
        if self.table.cold.is_on:
            most = min(PAIRS, self.table.cold.rows_at_once(count, piece.rows.columns.nbytes))
        for start, stop in stretches(self._pairs(odd, count), most):
            part = piece.taken(np.arange(start, stop))
            if self._asks_disk:
                self.table.cold.prepare([part.rows])
            if self._shorter is None or odd is None:
                pieces.append(self._by(self._shorter or self._way, part, position))
            else:
                pieces.append(self._both_ways(self._shorter, part, odd[start:stop], position))
        return pieces

    @property
    def _asks_disk(self) -> bool:
        """Whether keys are looked for on disk, and nothing else."""
        return self.table.cold.is_on and self._way.index is None and self._shorter is None

    def _pairs(self, odd: Bools | None, count: int) -> Int64s:
        """How many pairs are made for each row, as far as it is known before: all rows of the table where these are
        compared, and those that every row finds."""
        compared = 1 if self._lookup.by or self._way.index is None else max(1, self.table.store.rows)
        if self._shorter is None:
            return np.full(count, compared)
        found = 1 if self._shorter.index is None else max(1, self._shorter.index.odd_rows)
        return np.full(count, found) if odd is None else np.where(odd, compared, found)

    def _odd(self, shorter: _RowFinder, piece: Piece) -> Bools | None:
        """The rows that cannot go the shorter way; None if all can."""
        assert self._narrowed is not None
        odd = np.zeros(piece.rows.rows, np.bool_)
        if piece.odd is not None and not self._lookup.left:
            odd |= piece.odd
        for key in shorter.keys:
            found = key(piece.rows.columns)
            if found.errors is not None:
                odd |= found.errors.mask
            if self._narrowed.with_nulls:
                known = validity(found.values)
                if known is not None:
                    odd |= ~known
        return odd if odd.any() else None

    def _both_ways(self, shorter: _RowFinder, piece: Piece, odd: Bools, position: int) -> Piece:
        """Rows that cannot go the shorter way are compared; all remain in their places."""
        ways = [(shorter, np.flatnonzero(~odd)), (self._way, np.flatnonzero(odd))]
        parts = [(places, self._joined(way, piece.taken(places), position)) for way, places in ways if len(places)]
        asked = np.concatenate([places[part.asked] for places, part in parts])
        rows = parts[0][1].rows if len(parts) == 1 else joined_rows(parts[0][1].rows, parts[1][1].rows)
        odd_rows = [_mask(part.odd, len(part.asked)) | odd[places[part.asked]] for places, part in parts]
        order = np.argsort(asked, kind="stable")
        joined = _Joined(taken(rows, order), asked[order], np.concatenate(odd_rows)[order])
        return self._piece(piece, joined)

    def _by(self, way: _RowFinder, piece: Piece, position: int) -> Piece:
        return self._piece(piece, self._joined(way, piece, position))

    def _piece(self, piece: Piece, joined: _Joined) -> Piece:
        odd = None if piece.odd is None else piece.odd[joined.asked]
        if joined.odd is not None and not self._lookup.left:
            odd = joined.odd if odd is None else odd | joined.odd
        return Piece(joined.rows, piece.sequences[joined.asked], odd)

    def _joined(self, way: _RowFinder, piece: Piece, position: int) -> _Joined:
        find = self._by_key if way.index is None else self._by_index
        return find(way, piece.rows, piece.sequences, position)

    def _numbers(self, times: Int64s, sequences: Int64s, position: int, *, before: bool) -> Int64s | None:
        history = self.table.history
        if not len(history):
            return None
        return history.numbers(times + self._behind, position, sequences, before=before)

    def _alive(self, matched: Matched, times: Int64s) -> Matched:
        moments = self._moments(times)
        return matched if moments is None else self.table.alive(matched, moments)

    def _moments(self, times: Int64s) -> Int64s | None:
        """As of when rows of these times see which rows of the table are over; None if none ever is."""
        return None if self.table.expiry is None else np.maximum(times + self._behind, self.reader.since)

    def _computed(self, way: _RowFinder, rows: Chunk) -> tuple[list[Evaluated], Bools | None]:
        """The keys, and which rows have all of them; the others are rejected."""
        columns = []
        keep: Bools | None = None
        for key in way.keys:
            found = key(rows.columns)
            keep = self._failed.without(rows, keep, found.errors)
            columns.append(found)
        return columns, keep

    def _without_keys(self, rows: Chunk) -> Chunk:
        """Without the columns of which nothing was wanted but keys: they need not be taken along."""
        assert isinstance(rows.columns, Batch)
        return rows if self._read_behind is None else Chunk(rows.times, rows.columns.only(self._read_behind))

    def _by_key(self, way: _RowFinder, rows: Chunk, sequences: Int64s, position: int) -> _Joined:
        columns, keep = self._computed(way, rows)
        rows = self._without_keys(rows)
        only_known = not self.table.reads_by_key_only and not self.table.cold.is_on
        words, valid = self.table.words(columns, way.kinds, only_known=only_known)
        self.table.cold.bring(words, valid)
        matched = self.table.look_up(words, valid, self._numbers(rows.times, sequences, position, before=False))
        matched = self._alive(matched, rows.times)
        earlier = None
        if self._looks_back and not self.table.reads_by_key_only:
            numbers = self._numbers(rows.times, sequences, position, before=True)
            earlier = self._alive(self.table.look_up(words, valid, numbers), rows.times)
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
        places = np.flatnonzero(there)
        whole = Chunk(rows.times, joined)
        return _Joined(whole if len(places) == rows.rows else taken(whole, places), places)

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

    def _by_index(self, way: _RowFinder, rows: Chunk, sequences: Int64s, position: int) -> _Joined:
        assert way.index is not None
        columns, keep = self._computed(way, rows)
        rows = self._without_keys(rows)
        values = way.index.asked(columns, way.kinds, rows.rows)
        numbers = self._numbers(rows.times, sequences, position, before=False)
        asked, matched, odd = way.index.look_up(values, numbers, self._moments(rows.times))
        pairs = taken(rows, asked)
        earlier = None
        if self._looks_back:
            numbers = self._numbers(rows.times, sequences, position, before=True)
            earlier = self._before(matched, None if numbers is None else numbers[asked])
            earlier = self._alive(earlier, pairs.times)
        joined = Chunk(pairs.times, self._beside(pairs, matched, earlier))
        self.table.settle()
        way.index.settle()
        if self._lookup.on is not None:
            met = self._on.passes(joined)
            if met is not None and not met.all():
                joined, asked = taken(joined, np.flatnonzero(met)), asked[met]
                odd = None if odd is None else odd[met]
        if not self._lookup.left:
            return _Joined(joined, asked, odd)
        return self._with_unmatched(rows, joined, asked, keep)

    def _before(self, matched: Matched, numbers: Int64s | None) -> Matched:
        """The same rows as they were before the events' own changes."""
        return self.table.look_up(matched.keys(), None, numbers)

    def _with_unmatched(self, rows: Chunk, joined: Chunk, asked: Int64s, keep: Bools | None) -> _Joined:
        """Events without a row remain, in their places."""
        lonely = np.ones(rows.rows, np.bool_)
        lonely[asked] = False
        if keep is not None:
            lonely &= keep
        if not lonely.any():
            return _Joined(joined, asked)
        # The rows behind the pairs are the events themselves, beside nothing.
        alone = taken(rows, np.flatnonzero(lonely))
        nothing = self.table.nothing(alone.rows)
        both = joined_rows(joined, Chunk(alone.times, self._beside(alone, nothing, nothing)))
        all_asked = np.concatenate([asked, np.flatnonzero(lonely)])
        order = np.argsort(all_asked, kind="stable")
        return _Joined(taken(both, order), all_asked[order])

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


def _mask(odd: Bools | None, rows: int) -> Bools:
    return np.zeros(rows, np.bool_) if odd is None else odd
