"""Rows of a table by the values of expressions over its columns, or all of them: what a look-up without the key needs.

Invariants:
1. An index is of the rows as they are numbered; when the store has changed, it is made again.
2. Rows of one value come in the order of their keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column, Expression, walk
from penstock.expressions.vector import Evaluated, Vector
from penstock.operators.columns import image
from penstock.operators.interner import Interner
from penstock.operators.tables.matched import Matched
from penstock.operators.tables.table import Table
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
        """For each place that has a value asked for: the index of that value in `words`, and the place."""
        found = self.values.find(words, valid, False).rows.astype(np.int64)
        known = np.flatnonzero(found >= 0)
        begins = self.begins[found[known]]
        counts = self.ends[found[known]] - begins
        asked = np.repeat(known, counts)
        within = np.arange(len(asked)) - np.repeat(np.cumsum(counts) - counts, counts)
        return asked, self.places[np.repeat(begins, counts) + within]


class Asked(NamedTuple):
    """Values that are asked for, as words: which have no NULL among them, and which have none among those of which odd
    rows are found (None: all)."""

    words: Int64s
    valid: Bools | None
    certain: Bools | None


class _Odd(NamedTuple):
    """Places without a value to be found by, and what they have of the values that cannot fail."""

    places: Int64s
    words: Int64s

    def pairs(self, asked: Asked) -> tuple[Int64s, Int64s]:
        """The index in `asked` and the place, for each place with the same `certain` values as the asking row."""
        count = len(asked.words)
        certain = asked.words[:, : self.words.shape[1]]
        origin, odd = np.repeat(np.arange(count), len(self.places)), np.tile(np.arange(len(self.places)), count)
        if self.words.shape[1]:
            same = (certain[origin] == self.words[odd]).all(axis=1)
            if asked.certain is not None:
                same &= asked.certain[origin]
            origin, odd = origin[same], odd[same]
        return origin, self.places[odd]


class Answer(NamedTuple):
    """`asked` has the number of the asking row for each row found; `odd` marks found rows that have no value."""

    asked: Int64s
    matched: Matched
    odd: Bools | None


class ValueIndex:
    """`by` are the expressions over the table's columns that are compared; none are all rows. With `odd` rows are found
    although an expression fails on them, or is NULL, `with_nulls`: by each row that asks for the same values of
    the first `certain` expressions."""

    def __init__(
        self,
        table: Table,
        by: tuple[Expression, ...],
        account: Account,
        texts: Account,
        *,
        odd: bool = False,
        with_nulls: bool = False,
        certain: int = 0,
    ) -> None:
        self._table = table
        self._values = [_Value(table, expression, texts) for expression in by]
        self._account = account
        self._finds_odd, self._with_nulls, self._certain = odd, with_nulls, certain
        self._made = -1
        self._rows = _sorted(np.empty((0, max(1, len(by))), np.int64), None)
        self._odd = _Odd(np.empty(0, np.int64), np.empty((0, certain), np.int64))

    def asked(self, columns: list[Evaluated], kinds: list[SqlType], rows: int) -> Asked:
        """Values that are asked for."""
        self._refresh()
        words = np.zeros((rows, max(1, len(columns))), np.int64)
        valid: Bools | None = None
        certain: Bools | None = None
        for w, (column, kind, value) in enumerate(zip(columns, kinds, self._values, strict=True)):
            words[:, w], known = image(column, kind, value.interner)
            if known is not None:
                valid = known if valid is None else valid & known
            if w < self._certain:
                certain = valid
        return Asked(words, valid, certain)

    @property
    def odd_rows(self) -> int:
        """How many rows of now are found although they have no value."""
        self._refresh()
        return len(self._odd.places)

    def look_up(self, values: Asked, numbers: Int64s | None, times: Int64s | None) -> Answer:
        """The rows of values, as of so many entries of the history each, without those that are over by then."""
        answer = self._look_up(values, numbers)
        if times is None or self._table.expiry is None:
            return answer
        alive = self._table.alive(answer.matched, times[answer.asked])
        if alive is answer.matched:
            return answer
        places = np.flatnonzero(alive.there)
        odd = None if answer.odd is None else answer.odd[places]
        return Answer(answer.asked[places], answer.matched.taken(places), odd)

    def _look_up(self, values: Asked, numbers: Int64s | None) -> Answer:
        self._refresh()
        asked, rows, is_odd = _found(self._rows, self._odd, values)
        table, history = self._table, self._table.history
        now = Found(rows.astype(np.int32), None, len(rows))
        past = numbers is not None and len(history) > 0
        if not past and not len(self._odd.places):
            return Answer(asked, Matched(table, now, None), None)
        keys = table.store.key_words(now)
        entries = np.empty(0, np.int64)
        if past:
            assert numbers is not None
            valid_now = numbers[asked] >= history.last_numbers(keys)
            asked, rows, keys, is_odd = asked[valid_now], rows[valid_now], keys[valid_now], is_odd[valid_now]
            old_asked, entries, old_odd = self._of_the_past(values, numbers)
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

    def _of_the_past(self, values: Asked, numbers: Int64s) -> tuple[Int64s, Int64s, Bools]:
        """The numbers of the asking rows, the entries of the history that had such a value then, and which are odd."""
        history = self._table.history
        entries = np.flatnonzero(history.existed(np.arange(len(history))))
        none = np.full(len(entries), -1, np.int32)
        matched = Matched(self._table, Found(none, None, len(entries)), entries)
        images, known, odd = self._images(matched, len(entries))
        asked, places, is_odd = _found(_sorted(images, known), odd, values)
        found = entries[places]
        since, until = history.intervals()
        then = (numbers[asked] >= since[found]) & (numbers[asked] <= until[found])
        return asked[then], found[then], is_odd[then]

    def _refresh(self) -> None:
        store = self._table.store
        self._table.cold.bring_all()
        if self._made == store.changes:
            return
        rows = store.all_rows()
        self._account.resize(len(rows) * (8 * max(1, len(self._values)) + _INDEX_BYTES))
        found = Found(rows, None, len(rows))
        order = self._table.ordered(store.key_words(found))
        rows = rows[order]
        for value in self._values:
            value.begin()
        matched = Matched(self._table, Found(rows, None, len(rows)), None)
        images, valid, odd = self._images(matched, len(rows))
        for value, image_of in zip(self._values, images.T, strict=False):
            value.hold(image_of, valid)
        index = _sorted(images, valid)
        self._account.resize(index.places.nbytes * 3 + index.values.nbytes + odd.places.nbytes + odd.words.nbytes)
        self._rows = index._replace(places=rows[index.places].astype(np.int64))
        self._odd = odd._replace(places=rows[odd.places].astype(np.int64))
        self._made = store.changes

    def _images(self, matched: Matched, rows: int) -> tuple[Int64s, Bools | None, _Odd]:
        """The values of rows as words, which rows have all of them, and which are odd."""
        columns, odd = [], np.zeros(rows, np.bool_)
        for value in self._values:
            column, failed = value.images(matched, rows)
            columns.append(column)
            if failed is not None:
                odd |= failed
            if self._with_nulls and column.valid is not None:
                odd |= ~column.valid
        for column in columns[: self._certain]:
            if column.valid is not None:
                odd &= column.valid
        words, valid = _joined(columns, rows)
        places = np.flatnonzero(odd) if self._finds_odd else np.empty(0, np.int64)
        return words, valid, _Odd(places, words[places, : self._certain])


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


def _found(index: _Sorted, odd: _Odd, values: Asked) -> tuple[Int64s, Int64s, Bools]:
    """The numbers of the asking rows; the places found, first those with the value, then odd ones; which are odd."""
    asked, places = index.pairs(values.words, values.valid)
    if not len(odd.places):
        return asked, places, np.zeros(len(places), np.bool_)
    origins, more = odd.pairs(values)
    both = np.concatenate([asked, origins])
    return both, np.concatenate([places, more]), np.arange(len(both)) >= len(asked)


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
