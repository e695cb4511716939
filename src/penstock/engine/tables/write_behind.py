"""The copy of a table in its database, written behind: in one transaction for each checkpoint, with its number.

    penstock_epochs (table_name, owner, epoch)    how far the copy of a table is

A checkpoint holds the keys that have changed since the copy was last written. It is made durable first; then their rows
are written and the epoch is set, in one transaction. An app that goes on from a checkpoint whose epoch the database
does not have writes the same rows again. Rows are values and not differences, so nothing is done twice and nothing is
lost.

Invariants:
1. `_changed` are the keys whose rows in the database may differ from those here.
2. The epoch in the database is never ahead of the last durable checkpoint.

Why: docs/decisions/copies-follow-checkpoints.md
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.engine.tables.database import TableDatabase
from penstock.operators.resources import Resources
from penstock.operators.tables.table import Table
from penstock.store.databases.database import Database, Statement
from penstock.store.keyed import Found, KeyedStore


@component("WriteBehind")
class WriteBehind:
    def __init__(self, table: Table, resources: Resources) -> None:
        self._table = table
        self._database = TableDatabase(table.definition)
        name = f"table {table.definition.name}: keys to write to its database"
        self._changed = KeyedStore(len(table.definition.key), False, (), resources.account(name))
        self._owner = uuid.uuid4().hex
        table.on_change = self._note
        table.unfit_for_copy = self._database.unfit
        self._database.create()

    def _note(self, words: Int64s) -> None:
        fresh = words[self._changed.put(words)[1]]
        for interner, codes in self._table.texts.of_keys(fresh):
            interner.use(codes)

    @property
    def waiting(self) -> int:
        """How many rows are to be written."""
        return self._changed.rows

    def write(self, epoch: int) -> None:
        """Writes what has changed; the checkpoint of this number is durable."""
        words = self._words()
        found = self._table.store.find(words, None, False)
        there = found.rows >= 0
        batch = self._table.batch(Found(found.rows[there], None, int(there.sum())))
        rows = self._database.parameters(batch)
        gone = self._database.parameters(self._table.key_batch(words[~there]))

        def write(db: Database) -> None:
            with db.transaction():
                if rows:
                    db.run(self._upsert(db), rows)
                if gone:
                    db.run(self._delete(db), gone)
                self._set_epoch(db, epoch)

        self._database.call(write)
        self.forget()

    def forget(self) -> None:
        """The database has everything: what is here was loaded from it, or has been written."""
        for interner, codes in self._table.texts.of_keys(self._words()):
            interner.release(codes)
        self._changed.clear()

    def _words(self) -> Int64s:
        rows = self._changed.all_rows()
        return self._changed.key_words(Found(rows, None, len(rows)))

    def _upsert(self, db: Database) -> Statement:
        table = self._table.definition
        names = [field.name for field in table.schema]
        others = [field.name for field in table.other_fields]
        excluded = [
            db.joined([db.identifier(name), db.joined([db.keyword("excluded"), db.identifier(name)], ".")], " = ")
            for name in others
        ]
        action = db.joined([db.keyword("UPDATE SET"), db.joined(excluded)], " ") if others else db.keyword("NOTHING")
        return db.statement(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT ({key}) DO {action}",
            table=self._database.target(db),
            names=db.joined([db.identifier(name) for name in names]),
            values=db.joined([db.parameter() for _ in names]),
            key=db.joined([db.identifier(name) for name in table.key]),
            action=action,
        )

    def _delete(self, db: Database) -> Statement:
        table = self._table.definition
        tests = [db.joined([db.identifier(name), db.parameter()], " = ") for name in table.key]
        return db.statement(
            "DELETE FROM {table} WHERE {tests}", table=self._database.target(db), tests=db.joined(tests, " AND ")
        )

    def _set_epoch(self, db: Database, epoch: int) -> None:
        db.run(
            db.statement(
                "CREATE TABLE IF NOT EXISTS penstock_epochs "
                "(table_name TEXT PRIMARY KEY, owner TEXT NOT NULL, epoch BIGINT NOT NULL)"
            )
        )
        values = db.joined([db.parameter()] * 3)
        statement = db.statement(
            "INSERT INTO penstock_epochs (table_name, owner, epoch) VALUES ({values}) "
            "ON CONFLICT (table_name) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch",
            values=values,
        )
        db.run(statement, [(self._database.name, self._owner, epoch)])

    def epoch(self) -> int | None:
        """Of which checkpoint of this app the database has all; None where of none."""

        def ask(db: Database) -> int | None:
            if db.columns("penstock_epochs") is None:
                return None
            statement = db.statement(
                "SELECT epoch FROM penstock_epochs WHERE table_name = {name} AND owner = {owner}",
                name=db.parameter(),
                owner=db.parameter(),
            )
            found = db.query(statement, (self._database.name, self._owner))
            return int(found[0][0]) if found else None

        return self._database.call(ask)

    def close(self) -> None:
        self._database.close()

    def snapshot(self) -> dict[str, Any]:
        return {"owner": self._owner, "changed": self._words()}

    def restore(self, snapshot: dict[str, Any], epoch: int) -> None:
        """Goes on from the checkpoint of this number: what the database has not is written again."""
        self._owner = snapshot["owner"]
        words = np.ascontiguousarray(snapshot["changed"]).reshape(-1, len(self._table.definition.key))
        if len(words) and self.epoch() != epoch:
            self._note(words)
            self.write(epoch)
