"""A table that stays in its database: rows are asked for when events need them, and kept for a while.

The keys of a batch that are not known are asked for together, in one question. What was found, and what was not, is
kept until it is older than the table's 'refresh' or there is more of it than its 'cache' allows; then all is forgotten.
Answers depend on when the database was asked, which the contract says.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.engine.clock import Clock
from penstock.engine.tables.database import TableDatabase
from penstock.lang.table_defs import TableDef
from penstock.lang.table_options import cache_of, refresh_of
from penstock.operators.resources import Resources
from penstock.operators.tables.last import last_of_each
from penstock.operators.tables.matched import Matched
from penstock.operators.tables.table import Table
from penstock.store.keyed import Found, KeyedStore

KEPT_FOR = 60_000_000
"""Microseconds for which rows are kept if the table does not say."""


class LookedUpTable(Table):
    """`questions` counts those that were asked of the database."""

    reads_by_key_only = True

    def __init__(self, definition: TableDef, resources: Resources, clock: Clock) -> None:
        super().__init__(definition, resources)
        self._database = TableDatabase(definition)
        self._clock = clock
        self._kept_for = refresh_of(definition) or KEPT_FOR
        self._most = cache_of(definition)
        self._since = clock.elapsed()
        name = f"table {definition.name}: keys without a row"
        self._absent = KeyedStore(len(definition.key), False, (), resources.account(name))
        self.questions = 0

    def look_up(self, words: Int64s, valid: Bools | None, numbers: Int64s | None) -> Matched:
        held = [(i, codes if valid is None else codes[valid]) for i, codes in self.texts.of_keys(words)]
        # What is forgotten meanwhile must not take the strings along that are asked for.
        for interner, codes in held:
            interner.use(codes)
        self._fetch(words, valid)
        matched = super().look_up(words, valid, numbers)
        for interner, codes in held:
            interner.release(codes)
        return matched

    def _fetch(self, words: Int64s, valid: Bools | None) -> None:
        now = self._clock.elapsed()
        if now - self._since >= self._kept_for:
            self.forget_rows()
            self._since = now
        missing = self._unknown(words, valid)
        if len(missing) and self.store.rows + self._absent.rows + len(missing) > self._most:
            self.forget_rows()
            missing = self._unknown(words, valid)
        if not len(missing):
            return
        asked = words[missing]
        asked = asked[np.lexsort(asked.T[::-1])]  # keys that are neighbours lie together in the database, too
        keys = self.key_batch(asked)
        unfit = self._database.unfit_rows(keys)  # not there, without a question
        if not unfit.all():
            self.questions += 1
            self.add(self._database.fetch(keys.filter(pa.array(~unfit))))
        gone = asked[self.store.find(asked, None, False).rows < 0]
        self._absent.put(gone)
        for interner, codes in self.texts.of_keys(gone):
            interner.use(codes)

    def _unknown(self, words: Int64s, valid: Bools | None) -> Int64s:
        """Where the keys are, each once, of which nothing is known."""
        unknown = (self.store.find(words, valid).in_order() < 0) & (self._absent.find(words, valid).in_order() < 0)
        if valid is not None:
            unknown &= valid
        places = np.flatnonzero(unknown)
        if not len(places):
            return places
        kept = last_of_each(words[places], None)
        return places if kept is None else places[kept]

    def forget_rows(self) -> None:
        """All that is kept, found and not found."""
        rows = self._absent.all_rows()
        absent = self._absent.key_words(Found(rows, None, len(rows)))
        for interner, codes in [*self.strings(), *self.texts.of_keys(absent)]:
            interner.release(codes)
        self.store.clear()
        self._absent.clear()

    def close(self) -> None:
        self._database.close()
