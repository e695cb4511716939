"""Persistent: items are rows of a table in a database, whatever the patterns are.

    <table>            item_id, and a column for each attribute (without a schema one column, the item as text)
    <table> readers    which readers there are and what they have consumed; under the name '' the next item id

The storage manager decides when items go to the database: new ones, removals and what readers have consumed are sent
together, after some hundred of them, before a look-up by value, and by `sync`. What was sent is durable.

Invariants:
1. Items before `_new_first` are in the table, the others in `_new`.
2. Items in `_dead` or before `first_id` may still be in the table, but are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.errors import StorageError
from penstock.instruments import Account, Database, Row, Value
from penstock_bench.storage_manager.database_statements import ITEM_ID, Statements
from penstock_bench.storage_manager.indices import Matcher
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.properties import IndexSchema
from penstock_bench.storage_manager.storage import NEW_ROWS, Block, NewRows, Storage

_NEXT_ID = ""
"""No reader has this name; its entry is the next id."""


class DatabaseStorage(Storage):
    """`new_items` is the account of what is not yet sent."""

    def __init__(self, database: Database, table: str, codec: ItemCodec, new_items: Account) -> None:
        if table != table.strip() or not table:
            raise StorageError(f"{table!r} is not a name for a table")
        if codec.layout.find(ITEM_ID) is not None:
            raise StorageError(f"in a database the column {ITEM_ID} holds the items' ids; name the attribute otherwise")
        self.codec = codec
        self.rows_at_once = NEW_ROWS
        self.block_bytes = NEW_ROWS * codec.row_bytes
        self._dead: set[int] = set()
        self._database = database
        self._table, self._readers = table, f"{table} readers"
        self._statements = Statements(database, table, self._readers, codec)
        self._matchers: dict[IndexSchema, Matcher] = {}
        self._new: list[Row] = []
        self._released = False
        self._notes: dict[str, set[int]] = {}
        self._outdated: set[str] = set()
        new_items.resize(NEW_ROWS * codec.row_bytes)
        self._create()
        ((next_id,),) = database.query(self._statements.next_id, (_NEXT_ID,))
        ((first_id,),) = database.query(self._statements.first_id)
        self.next_id = next_id
        self._new_first: int = next_id
        self.first_id = next_id if first_id is None else first_id

    def append(self, row: Row) -> int:
        self._database.to_database(row)  # refuses what it could not take later
        if len(self._new) >= NEW_ROWS:
            self.sync()
        self._new.append(row)
        item_id = self.next_id
        self.next_id = item_id + 1
        return item_id

    def row(self, item_id: int) -> Row | None:
        if item_id in self._dead or not self.first_id <= item_id < self.next_id:
            return None
        if item_id >= self._new_first:
            return self._new[item_id - self._new_first]
        for found in self._database.query(self._statements.one, (item_id,)):
            return self._shown(found[1:])
        return None

    def was_removed(self, item_id: int) -> bool:
        return item_id < self.first_id or item_id in self._dead

    def cell(self, item_id: int, place: int) -> Value:
        row = self.row(item_id)
        assert row is not None
        return row[place]

    def block(self, item_id: int) -> Block:
        if item_id >= self._new_first:
            return NewRows(self._new_first, self._new, self._dead)
        found = self._database.query(self._statements.some, (item_id, NEW_ROWS))
        ids = [row[0] for row in found]
        rows = [self._shown(row[1:]) for row in found]
        stop = ids[-1] + 1 if len(found) == NEW_ROWS else self._new_first
        return _SentRows(item_id, stop, ids, rows, self._dead)

    def add_index(self, schema: IndexSchema) -> None:
        if schema not in self._matchers:
            matcher = Matcher(schema, self.codec)
            self._database.run(self._statements.index(schema))
            self._matchers[schema] = matcher

    def find(self, schema: IndexSchema, values: Sequence[Value]) -> Iterator[tuple[int, Row]]:
        if any(value is None for value in values):
            return
        self.sync()
        found = self._database.query(self._statements.find(schema), self._database.to_database(tuple(values)))
        matches = self._matchers[schema].matches
        for item_id, *rest in found:
            row = self._shown(rest)
            if matches(row, values):  # a database may order NaN differently
                yield item_id, row

    def release_upto(self, item_id: int) -> None:
        if item_id > self.first_id:
            self.first_id = item_id
            self._released = True

    def remove(self, item_ids: Sequence[int]) -> None:
        self._dead.update(item_ids)
        if len(self._dead) >= NEW_ROWS:
            self.sync()

    def replace(self, item_id: int, row: Row) -> None:
        values = self._database.to_database(row)
        self.sync()
        self._database.run(self._statements.replace, [[*values, item_id]])
        self.version += 1

    def sync(self) -> None:
        if not (self._new or self._dead or self._released or self._notes or self._outdated):
            return
        statements, to_database = self._statements, self._database.to_database
        new = [
            [item_id, *to_database(row)]
            for item_id, row in enumerate(self._new, self._new_first)
            if item_id not in self._dead and item_id >= self.first_id
        ]
        with self._database.transaction():
            if new:
                self._database.run(statements.insert, new)
            self._send_notes()
            if self._dead:
                self._database.run(statements.remove, [[item_id] for item_id in sorted(self._dead)])
                self._database.run(statements.forget, [[item_id, _NEXT_ID] for item_id in sorted(self._dead)])
            if self._released:
                self._database.run(statements.release, [[self.first_id]])
            self._database.run(statements.set_next_id, [[self.next_id, _NEXT_ID]])
        self._new = []
        self._new_first = self.next_id
        self._dead.clear()
        self._released = False
        self._notes.clear()
        self._outdated.clear()
        self.version += 1

    def consumers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name, item_id in self._database.query(self._statements.consumers, (_NEXT_ID,)):
            found.setdefault(name, []).extend([item_id] if item_id >= 0 else [])
        return found

    def note_consumer(self, name: str, consumed: Sequence[int] = (), *, alone: bool = False) -> None:
        notes = self._notes.setdefault(name, set())
        if alone:
            notes.clear()
            self._outdated.add(name)
        notes.update((-1, *consumed))

    def forget_consumer(self, name: str) -> None:
        self._notes.pop(name, None)
        self._outdated.add(name)

    def close(self) -> None:
        try:
            self.sync()
        finally:
            self._database.close()

    def destroy(self) -> None:
        database = self._database
        try:
            for table in (self._table, self._readers):
                database.run(database.statement("DROP TABLE {table}", table=database.identifier(table)))
        finally:
            database.close()

    def _create(self) -> None:
        """The tables, if they are not there; a table with other columns is not ours."""
        expected = [ITEM_ID, *self.codec.layout.names]
        found = self._database.columns(self._table)
        if found is not None and found != expected:
            raise StorageError(
                f"the table {self._table} has the columns {', '.join(found)} and not {', '.join(expected)}: "
                "it belongs to something else; name another"
            )
        with self._database.transaction():
            if found is None:
                self._database.run(self._statements.create)
            if self._database.columns(self._readers) is None:
                self._database.run(self._statements.create_readers)
                self._database.run(self._statements.note, [[_NEXT_ID, 0]])

    def _send_notes(self) -> None:
        """What readers have consumed since the last time."""
        if self._outdated:
            self._database.run(self._statements.forget_consumer, [(name,) for name in sorted(self._outdated)])
        notes: list[Row] = [(name, item_id) for name, consumed in self._notes.items() for item_id in sorted(consumed)]
        if notes:
            self._database.run(self._statements.unnote, notes)
            self._database.run(self._statements.note, notes)

    def _shown(self, row: Sequence[object]) -> Row:
        return self._database.from_database(self.codec.layout.fields, row)


class _SentRows(Block):
    """Rows that were read from the table."""

    def __init__(self, first: int, stop: int, ids: list[int], rows: list[Row], dead: set[int]) -> None:
        self.first = first
        self.stop = stop
        self._ids = ids
        self._rows = dict(zip(ids, rows, strict=True))
        self._dead = dead

    def row(self, item_id: int) -> Row | None:
        return None if item_id in self._dead else self._rows.get(item_id)

    def cell(self, item_id: int, place: int) -> Value:
        return self._rows[item_id][place]

    def rows(self, start: int, limit: int) -> tuple[Sequence[int], list[Row], int]:
        ids = [item_id for item_id in self._ids if item_id >= start and item_id not in self._dead]
        if len(ids) > limit:
            return ids[:limit], [self._rows[item_id] for item_id in ids[:limit]], ids[limit]
        return ids, [self._rows[item_id] for item_id in ids], self.stop
