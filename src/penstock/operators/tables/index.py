"""Rows of a table by the values of expressions over its columns, or all of them: what a look-up without the key needs.

Invariants:
1. An index is of the rows as they are numbered; when the store has changed, it is made again.
2. Rows of one value come in the order of their keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Argument, Bools, Int64s
from penstock.expressions.batch import Batch
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column, Expression, walk
from penstock.expressions.vector import Evaluated, Vector
from penstock.operators.columns import image
from penstock.operators.interner import Interner
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


class Answer(NamedTuple):
    """Who asked, once for each row found, and the rows; `odd` says which of them have no value to be found by."""

    asked: Int64s
    matched: Matched
    odd: Bools | None


class ValueIndex:
    """`by` are the expressions over the table's columns that are compared; none are all rows. With `odd` rows without a
    value are found by everyone: those on which an expression fails and, with `with_nulls`, those where it is NULL."""

    def __init__(
        self,
        table: Table,
        by: tuple[Expression, ...],
        account: Account,
        texts: Account,
        *,
        odd: bool = False,
        with_nulls: bool = False,
    ) -> None:
        self._table = table
        self._values = [_Value(table, expression, texts) for expression in by]
        self._account = account
        self._finds_odd, self._with_nulls = odd, with_nulls
        self._made = -1
        self._rows = _sorted(np.empty((0, max(1, len(by))), np.int64), None)
        self._odd = np.empty(0, np.int64)

    def words(self, columns: list[Evaluated], kinds: list[SqlType], rows: int) -> tuple[Int64s, Bools | None]:
        """Values that are asked for, as words."""
        self._refresh()
        words, valid = np.zeros((rows, max(1, len(columns))), np.int64), None
        for w, (column, kind, value) in enumerate(zip(columns, kinds, self._values, strict=True)):
            words[:, w], known = image(column, kind, value.interner)
            if known is not None:
                valid = known if valid is None else valid & known
        return words, valid

    @property
    def odd_rows(self) -> int:
        """How many rows of now everyone finds."""
        self._refresh()
        return len(self._odd)

    def look_up(self, words: Int64s, valid: Bools | None, numbers: Int64s | None) -> Answer:
        """The rows of values, as of so many entries of the history each."""
        self._refresh()
        asked, rows = self._rows.pairs(words, valid)
        is_odd = np.zeros(len(rows), np.bool_)
        if len(self._odd):
            asked, rows, is_odd = _with_odd(asked, rows, len(words), self._odd)
        table, history = self._table, self._table.history
        now = Found(rows.astype(np.int32), None, len(rows))
        past = numbers is not None and len(history) > 0
        if not past and not len(self._odd):
            return Answer(asked, Matched(table, now, None), None)
        keys = table.store.key_words(now)
        entries = np.empty(0, np.int64)
        if past:
            assert numbers is not None
            valid_now = numbers[asked] >= history.last_numbers(keys)
            asked, rows, keys, is_odd = asked[valid_now], rows[valid_now], keys[valid_now], is_odd[valid_now]
            old_asked, entries, old_odd = self._of_the_past(words, valid, numbers)
            asked, is_odd = np.concatenate([asked, old_asked]), np.concatenate([is_odd, old_odd])
            keys = np.concatenate([keys, history.keys_of(entries)])
        all_rows = np.concatenate([rows.astype(np.int32), np.full(len(entries), -1, np.int32)])
        all_entries = np.concatenate([np.full(len(rows), -1, np.int64), entries])
        order = table.ordered(keys, asked)
        found = Found(all_rows[order], None, len(order))
        return Answer(asked[order], Matched(table, found, all_entries[order]), is_odd[order])

    def settle(self) -> None:
        """Forgets texts that were asked for and that no row has."""
        for value in self._values:
            value.settle()

    def _of_the_past(self, words: Int64s, valid: Bools | None, numbers: Int64s) -> tuple[Int64s, Int64s, Bools]:
        """Who asked, the entries of the history that had such a value when it was asked for, and which are odd."""
        history = self._table.history
        entries = np.flatnonzero(history.existed(np.arange(len(history))))
        none = np.full(len(entries), -1, np.int32)
        matched = Matched(self._table, Found(none, None, len(entries)), entries)
        images, known, odd = self._images(matched, len(entries))
        asked, places = _sorted(images, known).pairs(words, valid)
        is_odd = np.zeros(len(places), np.bool_)
        if len(odd):
            asked, places, is_odd = _with_odd(asked, places, len(words), odd)
        found = entries[places]
        since, until = history.intervals()
        then = (numbers[asked] >= since[found]) & (numbers[asked] <= until[found])
        return asked[then], found[then], is_odd[then]

    def _refresh(self) -> None:
        store = self._table.store
        if self._made == store.changes:
            return
        rows = store.all_rows()
        self._account.resize(len(rows) * (8 * max(1, len(self._values)) + _INDEX_BYTES))
        everyone = Found(rows, None, len(rows))
        order = self._table.ordered(store.key_words(everyone))
        rows = rows[order]
        for value in self._values:
            value.begin()
        matched = Matched(self._table, Found(rows, None, len(rows)), None)
        images, valid, odd = self._images(matched, len(rows))
        for value, image_of in zip(self._values, images.T, strict=False):
            value.hold(image_of, valid)
        index = _sorted(images, valid)
        self._account.resize(index.places.nbytes * 3 + index.values.nbytes + odd.nbytes)
        self._rows = index._replace(places=rows[index.places].astype(np.int64))
        self._odd = rows[odd].astype(np.int64)
        self._made = store.changes

    def _images(self, matched: Matched, rows: int) -> tuple[Int64s, Bools | None, Int64s]:
        """The values of rows as words, which rows have all of them, and which are odd."""
        columns, odd = [], np.zeros(rows if self._finds_odd else 0, np.bool_)
        for value in self._values:
            column, failed = value.images(matched, rows)
            columns.append(column)
            if not self._finds_odd:
                continue
            if failed is not None:
                odd |= failed
            if self._with_nulls and column.valid is not None:
                odd |= ~column.valid
        return *_joined(columns, rows), np.flatnonzero(odd)


class _Value:
    """One expression that rows are found by. Texts that it makes have codes of their own; those of a column have the
    column's."""

    def __init__(self, table: Table, expression: Expression, texts: Account) -> None:
        self._table = table
        self._column = expression.name if isinstance(expression, Column) else None
        self._compiled = compile_expression(expression)
        self._kind = expression.type
        self._read = {node.name: node.type for node in walk(expression) if isinstance(node, Column)}
        self._made = Interner(texts) if self._column is None and self._kind is SqlType.STRING else None
        self.interner = self._made if self._column is None else table.interners.get(self._column)

    def images(self, matched: Matched, rows: int) -> tuple[Argument, Bools | None]:
        """Values of rows as words, and on which of them the expression fails."""
        if self._column is None:
            batch = Batch(self._read, {name: matched.column(name) for name in self._read}, rows)
            found = self._compiled(batch)
            failed = None if found.errors is None else found.errors.mask
            return Argument(*image(found, self._kind, self._made)), failed
        if self._column in self._table.definition.key:
            return Argument(matched.keys()[:, self._table.definition.key.index(self._column)], None), None
        column = matched.argument(self._column)
        if self._column in self._table.interners:
            return Argument(column.values.astype(np.int64), column.valid), None
        kind = self._table.others[self._table.places[self._column]].type
        return Argument(*image(Evaluated(Vector(*column), kind, len(column.values), ()), kind, None)), None

    def begin(self) -> None:
        """Values are about to be made again."""
        if self._made is not None:
            self._made.close()

    def hold(self, images: Int64s, valid: Bools | None) -> None:
        """The texts of all rows stay until then."""
        if self._made is not None:
            self._made.use((images if valid is None else images[valid]).astype(np.int32))

    def settle(self) -> None:
        if self._made is not None:
            self._made.sweep()


def _with_odd(asked: Int64s, places: Int64s, count: int, odd: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """What was found, and behind it each of the odd places for everyone; and which these are."""
    both = np.concatenate([asked, np.repeat(np.arange(count), len(odd))])
    is_odd = np.arange(len(both)) >= len(asked)
    return both, np.concatenate([places, np.tile(odd, count)]), is_odd


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
