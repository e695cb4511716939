"""One event at a table, by the table's key: the look-up and the change of a single row, as Python values.

The ordinary paths (`reading`, `writer`) define what is read and changed. Here are the same steps for one event, for a
table of numbers alone, where nothing unusual happens: the row of the key is there, and the statement sets columns of
it. For everything else `SingleWrite.make` answers False, and `SingleReading.join` raises an `UNCERTAIN`; neither has
changed anything then, and the ordinary path takes the event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.expressions.evaluate import UNCERTAIN, compile_row
from penstock.expressions.scalar import RowFunction, Values
from penstock.expressions.tree import Column, Expression, columns, transform
from penstock.lang.table_defs import ChangeKind, TableWrite
from penstock.operators.tables.history import SingleChange
from penstock.operators.tables.table import Table, TableReader
from penstock.plan.tables.nodes import Lookup
from penstock.types import SqlType

_KEYS = (SqlType.TINYINT, SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT, SqlType.DATE, SqlType.TIMESTAMP)
"""The types of keys that are their own words."""

Words = Callable[[Values], tuple[int, ...] | None]
"""The key of a row; None if there is a NULL in it."""


def is_plain(table: Table, keys: Sequence[Expression]) -> bool:
    """Whether a table of numbers is in memory, and asked by such keys."""
    kinds = [*(key.type for key in keys), *(field.type for field in table.definition.key_fields)]
    return not table.interners and not table.reads_by_key_only and all(kind in _KEYS for kind in kinds)


def renamed(expression: Expression, names: dict[str, str]) -> Expression:
    """The expression with other names of columns."""

    def change(node: Expression) -> Expression:
        return Column(names.get(node.name, node.name), node.type) if isinstance(node, Column) else node

    return transform(expression, change)


def _words(keys: Sequence[RowFunction]) -> Words:
    if len(keys) == 1:
        (only,) = keys
        return lambda values: None if (word := only(values)) is None else (word,)

    def words(values: Values) -> tuple[int, ...] | None:
        found = tuple([key(values) for key in keys])
        return None if None in found else found

    return words


class SingleWrite:
    """An UPSERT or UPDATE of one row: the only statement of a stream, at this position, and a table."""

    def __init__(self, table: Table, write: TableWrite, position: int) -> None:
        self._table = table
        self._position = position
        prefix, own = f"{write.alias}.", f"{table.definition.name}."

        def compiled(expression: Expression) -> RowFunction:
            stream = {name: name.removeprefix(prefix) for name in columns(expression) if name.startswith(prefix)}
            return compile_row(renamed(expression, stream))

        self._where = None if write.where is None else compiled(write.where)
        self._words = _words([compiled(key) for key in write.keys])
        self._places = [table.places[name] for name, _ in write.sets]
        if table.expiry is not None:
            self._places.append(table.expiry.place)
        self._functions = [compiled(expression) for _, expression in write.sets]
        looked_at = {name for _, expression in write.sets for name in columns(expression) if name.startswith(own)}
        keys = table.definition.key
        self._others = [(n, table.places[n.removeprefix(own)]) for n in looked_at if n.removeprefix(own) not in keys]
        self._keys = [(n, keys.index(n.removeprefix(own))) for n in looked_at if n.removeprefix(own) in keys]
        self._required = frozenset(table.places[field.name] for field in table.others if not field.nullable)

    @staticmethod
    def fits(table: Table, write: TableWrite) -> bool:
        is_set = write.kind in (ChangeKind.UPSERT, ChangeKind.UPDATE) and write.match is None
        return is_set and bool(write.keys) and is_plain(table, write.keys) and write.alias != table.definition.name

    def make(self, values: Values, time: int, sequence: int) -> bool:
        """Makes the change that an event asks for; answers whether that was done."""
        table = self._table
        if table.has_copy or table.cold.is_on:
            return False
        try:
            if self._where is not None and self._where(values) is not True:
                return True
            words = self._words(values)
            if words is None:
                return False
            row = table.store.find_one(words)
            if row < 0:
                return False
            before = table.row_values(row)
            expiry = table.expiry
            if expiry is not None and expiry.is_over(before, time):
                return False
            if self._others or self._keys:
                values = values.copy()
                for name, place in self._others:
                    values[name] = before[place]
                for name, place in self._keys:
                    values[name] = words[place]
            found = [function(values) for function in self._functions]
        except UNCERTAIN:
            return False
        if expiry is not None:
            found.append(time)
        if None in found:
            for place, value in zip(self._places, found, strict=True):
                if value is None and (place in self._required or not table.store.has_nulls(place)):
                    return False
        if table.keeps_history:
            table.cold.works += 1  # the row stays where it is; `at_work` takes longer than the change
            table.history.put_single(SingleChange((time, self._position, sequence), words, before))
            table.cold.works -= 1
        table.store.write_one(row, self._places, found)
        return True


class SingleReading:
    """The rows of one event with that of a table. `wanted` as for `TableReading`; `names` are the columns of the
    stream by the names that expressions have for them."""

    def __init__(
        self,
        reader: TableReader,
        table: Table,
        lookup: Lookup,
        wanted: dict[str, tuple[str, bool]],
        names: dict[str, str],
    ) -> None:
        self._reader = reader
        self._table = table
        self._left = lookup.left
        self._looks_back = any(back for _, back in wanted.values())
        self._words = _words([compile_row(renamed(key, names)) for key in lookup.keys])
        self._on = None if lookup.on is None else compile_row(renamed(lookup.on, names))
        keys = lookup.key
        self._keys = [(name, keys.index(column), back) for name, (column, back) in wanted.items() if column in keys]
        self._others = [(n, table.places[column], back) for n, (column, back) in wanted.items() if column not in keys]

    @staticmethod
    def fits(table: Table, lookup: Lookup) -> bool:
        return lookup.is_keyed and lookup.narrowed is None and is_plain(table, lookup.keys)

    def join(self, values: Values, moment: tuple[int, int, int]) -> Values | None:
        """The event beside the row as of the moment, with the row from before the event's own change; None if there is
        none, and the event does not remain."""
        table = self._table
        words = self._words(values)
        before = then = None
        if words is not None:
            row = table.store.find_one(words)
            before = then = table.row_values(row) if row >= 0 else None
            if len(table.history):
                now = then
                then = table.row_as_of(words, now, moment, before=False)
                before = table.row_as_of(words, now, moment, before=True) if self._looks_back else then
            if (expiry := table.expiry) is not None:
                time = max(moment[0], self._reader.since)
                before = None if before is None or expiry.is_over(before, time) else before
                then = None if then is None or expiry.is_over(then, time) else then
        if then is None and not self._left:
            return None
        joined = values.copy()
        for name, place, back in self._others:
            source = before if back else then
            joined[name] = None if source is None else source[place]
        for name, place, back in self._keys:
            joined[name] = None if words is None or (before if back else then) is None else words[place]
        if then is not None and self._on is not None and self._on(joined) is not True:
            if not self._left:
                return None
            for name, _, _ in (*self._others, *self._keys):
                joined[name] = None
        return joined
