"""The SQL of a store in a database: every statement there is, made once for a table."""

from __future__ import annotations

from xxhash import xxh3_64_hexdigest

from penstock.instruments import Database, Part, Statement
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.properties import IndexSchema

ITEM_ID = "item_id"


class Statements:
    """Statements over `table` and, beside it, `readers`."""

    def __init__(self, database: Database, table: str, readers: str, codec: ItemCodec) -> None:
        self._database, self._table, self._codec = database, table, codec
        names = [database.identifier(name) for name in (ITEM_ID, *codec.layout.names)]
        types = [database.column_type(field) for field in codec.layout]
        nulls = [database.keyword("" if field.nullable else " NOT NULL") for field in codec.layout]
        columns = [
            database.statement("{name} {type}{null}", name=name, type=kind, null=null)
            for name, kind, null in zip(names[1:], types, nulls, strict=True)
        ]
        self._parts: dict[str, Part] = {
            "table": database.identifier(table),
            "readers": database.identifier(readers),
            "id": names[0],
            "names": database.joined(names),
            "p": database.parameter(),
            "parameters": database.joined([database.parameter()] * len(names)),
            "columns": database.joined(columns),
            "changes": database.joined(
                [database.statement("{n} = {p}", n=name, p=database.parameter()) for name in names[1:]]
            ),
        }

        made = self._made
        self.create = made("CREATE TABLE {table} ({id} BIGINT PRIMARY KEY, {columns})")
        self.create_readers = made(
            "CREATE TABLE {readers} (reader TEXT NOT NULL, item BIGINT NOT NULL, PRIMARY KEY (reader, item))"
        )
        self.insert = made("INSERT INTO {table} ({names}) VALUES ({parameters})")
        self.one = made("SELECT {names} FROM {table} WHERE {id} = {p}")
        self.some = made("SELECT {names} FROM {table} WHERE {id} >= {p} ORDER BY {id} LIMIT {p}")
        self.first_id = made("SELECT MIN({id}) FROM {table}")
        self.replace = made("UPDATE {table} SET {changes} WHERE {id} = {p}")
        self.remove = made("DELETE FROM {table} WHERE {id} = {p}")
        self.release = made("DELETE FROM {table} WHERE {id} < {p}")
        self.next_id = made("SELECT MAX(item) FROM {readers} WHERE reader = {p}")
        self.set_next_id = made("UPDATE {readers} SET item = {p} WHERE reader = {p}")
        self.consumers = made("SELECT reader, item FROM {readers} WHERE reader <> {p}")
        self.note = made("INSERT INTO {readers} (reader, item) VALUES ({p}, {p})")
        self.unnote = made("DELETE FROM {readers} WHERE reader = {p} AND item = {p}")
        self.forget = made("DELETE FROM {readers} WHERE item = {p} AND reader <> {p}")
        self.forget_consumer = made("DELETE FROM {readers} WHERE reader = {p}")

    def index(self, schema: IndexSchema) -> Statement:
        database = self._database
        names = [database.identifier(self._name(attribute)) for attribute in schema.attributes]
        name = f"penstock {xxh3_64_hexdigest(repr((self._table, schema.attributes)).encode())}"
        return self._made(
            "CREATE INDEX IF NOT EXISTS {index} ON {table} ({indexed})",
            index=database.identifier(name),
            indexed=database.joined(names),
        )

    def find(self, schema: IndexSchema) -> Statement:
        database = self._database
        terms = [
            database.statement(
                "{name} {comparison} {p}",
                name=database.identifier(self._name(attribute)),
                comparison=database.keyword(comparison.value),
                p=database.parameter(),
            )
            for attribute, comparison in schema.terms
        ]
        template = "SELECT {names} FROM {table} WHERE {terms} ORDER BY {id}"
        return self._made(template, terms=database.joined(terms, " AND "))

    def _made(self, template: str, **more: Part) -> Statement:
        return self._database.statement(template, **self._parts, **more)

    def _name(self, attribute: str) -> str:
        """The attribute's name as the schema writes it."""
        field = self._codec.layout.find(attribute)
        assert field is not None
        return field.name
