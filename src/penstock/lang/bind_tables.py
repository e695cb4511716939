"""CREATE TABLE and ON as written to typed tables and changes.

ON statements come before the first query that reads their table: a reader waits until the table's writers have come as
far as itself, and a writer that is fed by such a reader would wait for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.expressions.conjuncts import conjunction, conjuncts, equality
from penstock.expressions.functions import implicit_cast
from penstock.expressions.tree import Column, Expression, Literal, columns
from penstock.lang.bind_aggregates import KnownAggregates, RefusedAggregates
from penstock.lang.bind_counts import CountingBinder
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.catalog import Catalog
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, did_you_mean
from penstock.lang.query import StreamRef, TableRef
from penstock.lang.scope import WINDOW_COLUMNS, Scope
from penstock.lang.syntax import ColumnSyntax, CreateTable, LastBy, Name, OnStatement, TableChange
from penstock.lang.table_defs import ChangeKind, CountingWrite, RowCount, TableDef, TableWrite
from penstock.lang.table_options import options_of
from penstock.types import Field, Schema, SqlType

_FITTING = ((SqlType.DATE, SqlType.TIMESTAMP),)
"""Types that stand for others when they are stored, besides numbers, which may be made narrower."""


class TableBinder:
    """Binds the tables of one text; `stream` finds a stream by its name or refuses."""

    def __init__(
        self, source: QueryText, catalog: Catalog, known: KnownAggregates, stream: Callable[[Name], StreamRef]
    ) -> None:
        self._source = source
        self._catalog = catalog
        self._stream = stream
        self._refused = RefusedAggregates(
            known,
            source,
            "an aggregate cannot stand in a change of a table",
            "INSERT INTO a stream what a query computes, and write ON that stream",
        )
        self.tables: list[TableDef] = []
        self.writes: list[TableWrite] = []
        self._counts: list[RowCount] = []
        """What the conditions of the change count that is being bound."""

    # -- CREATE TABLE ---------------------------------------------------------------------------------------

    def create(self, statement: CreateTable | LastBy) -> None:
        if isinstance(statement, LastBy):
            self._last_by(statement)
        else:
            self._create(statement)

    def _create(self, statement: CreateTable) -> None:
        if not statement.key:
            raise self._source.refusal(
                f"the table '{statement.name.text}' has no key",
                statement.name.span,
                "write PRIMARY KEY after a column, or PRIMARY KEY (a, b) after the columns",
            )
        fields = self._fields(statement.columns)
        key = self._key(statement.key, Schema(tuple(fields.values())))
        fields |= {name.lower(): replace(fields[name.lower()], nullable=False) for name in key}
        definition = TableDef(
            statement.name.text,
            Schema(tuple(fields.values())),
            key,
            statement.uri,
            options_of(self._source, statement),
            self._source.place(statement.name.span),
        )
        self._add(definition)

    def _last_by(self, statement: LastBy) -> None:
        """The table of the latest rows: each event replaces the row of its key."""
        stream = self._stream(statement.stream)
        key = self._key(statement.key, stream.schema)
        fields = tuple(replace(f, nullable=f.nullable and f.name not in key) for f in stream.schema)
        place = self._source.place(statement.name.span)
        options = options_of(self._source, statement)
        definition = TableDef(statement.name.text, Schema(fields), key, None, options, place)
        self._add(definition)
        table = self._table(statement.name)
        columns = {f.name: Column(f"{stream.name}.{f.name}", f.type) for f in stream.schema}
        where = (
            None if statement.where is None else self._binder(stream.name, stream).condition(statement.where, "WHERE")
        )
        sets = tuple((f.name, columns[f.name]) for f in definition.other_fields)
        self._write(
            table,
            stream,
            TableWrite(
                table.name,
                stream.name,
                stream.name,
                ChangeKind.UPSERT,
                where,
                tuple(columns[name] for name in key),
                sets,
                None,
                f"LAST BY {', '.join(key)} FROM {stream.name}",
            ),
        )

    def _add(self, definition: TableDef) -> None:
        self._catalog.add_table(TableRef(definition.name, definition.schema, definition.key, definition=definition))
        self.tables.append(definition)

    def _fields(self, columns: Sequence[ColumnSyntax]) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        for column in columns:
            text, span = column.name.text, column.name.span
            if text.lower() in fields:
                raise self._source.refusal(f"the column '{text}' is declared twice", span)
            if text.lower() in WINDOW_COLUMNS or text[:1] in ("$", "#", "") or "." in text:
                raise self._source.refusal(
                    f"a column of a table cannot be named '{text}'",
                    span,
                    "names have no dot, do not begin with '$' or '#' and are not those of windows",
                )
            fields[text.lower()] = Field(text, column.type, column.nullable)
        return fields

    def _key(self, names: Sequence[Name], schema: Schema) -> tuple[str, ...]:
        key: list[str] = []
        for name in names:
            found = self._column(name, schema)
            if found.name in key:
                raise self._source.refusal(f"'{name.text}' is given twice in the key", name.span)
            key.append(found.name)
        return tuple(key)

    # -- ON -------------------------------------------------------------------------------------------------

    def on(self, statement: OnStatement) -> None:
        stream = self._stream(statement.stream)
        alias = statement.alias or statement.stream
        where: list[Expression] = []
        if statement.where is not None:
            table = self._table(statement.change.table)
            where = conjuncts(self._binder(alias.text, stream, counts=table).condition(statement.where, "WHERE"))
        self.change(stream, alias, where, statement.change, statement.text)

    def change(
        self, stream: StreamRef, alias: Name, where: Sequence[Expression], change: TableChange, text: str
    ) -> TableWrite:
        """A change that events of a stream, read under an alias, make if they pass all of `where`."""
        table = self._table(change.table)
        if alias.text.lower() == table.name.lower():
            raise self._source.refusal(
                f"the stream and the table are both named '{alias.text}' here", alias.span, "write ON stream AS x"
            )
        self._check_writable(table, change.table)
        if change.kind in (ChangeKind.INSERT, ChangeKind.UPSERT):
            keys, sets = self._row(stream, alias.text, table, change)
            match = None
        else:
            keys, match = self._which(stream, alias.text, table, change)
            sets = self._sets(stream, alias.text, table, change) if change.kind is ChangeKind.UPDATE else ()
        counts, self._counts = tuple(self._counts), []
        # What stands behind a condition that counts is asked after it.
        first = next((i for i, part in enumerate(where) if _counts_rows(part)), len(where))
        match = conjunction([*where[first:], *conjuncts(match)])
        made = (table.name, stream.name, alias.text, change.kind, conjunction(where[:first]), keys, sets, match, text)
        write = CountingWrite(*made, counts) if counts else TableWrite(*made)
        self._write(table, stream, write)
        return write

    def _write(self, table: TableRef, stream: StreamRef, write: TableWrite) -> None:
        known = stream.name in (writer.name for writer in table.writers)
        writers = table.writers if known else (*table.writers, stream)
        self._catalog.add_table(replace(table, writers=writers, writes=(*table.writes, write)))
        self.writes.append(write)

    def _check_writable(self, table: TableRef, name: Name) -> None:
        if self._catalog.is_read(table.name):
            raise self._source.refusal(
                f"a query above reads '{table.name}' already",
                name.span,
                "write the ON statements of a table before the queries that read it",
            )
        definition = next((t for t in self.tables if t.name == table.name), None)
        if definition is None:
            raise self._source.refusal(
                f"'{table.name}' belongs to the running app", name.span, "write its ON statements where it is declared"
            )
        if dict(definition.options).get("mode") == "lookup":
            raise self._source.refusal(
                f"'{table.name}' is looked up in its database and not kept here",
                name.span,
                "leave out 'mode' = 'lookup': the table is loaded, and its changes are written behind",
            )
        if "refresh" in dict(definition.options):
            raise self._source.refusal(
                f"'{table.name}' is loaded again and again, which would undo its changes",
                name.span,
                "leave out 'refresh', or the ON statement",
            )

    def _row(
        self, stream: StreamRef, alias: str, table: TableRef, change: TableChange
    ) -> tuple[tuple[Expression, ...], tuple[tuple[str, Expression], ...]]:
        """The key and the other values of INSERT and UPSERT; columns that are not named become or stay NULL."""
        named = [self._column(name, table.schema) for name in change.columns] or list(table.schema)
        spans = [name.span for name in change.columns] or [change.table.span] * len(named)
        if len(named) != len(change.values):
            raise self._source.refusal(
                f"there are {len(named)} columns and {len(change.values)} values", change.span, "give each a value"
            )
        binder = self._binder(alias, stream, table if change.kind is ChangeKind.UPSERT else None)
        keyed = self._binder(alias, stream)
        values: dict[str, Expression] = {}
        for field, span, node in zip(named, spans, change.values, strict=True):
            if field.name in values:
                raise self._source.refusal(f"'{field.name}' is given twice", span)
            values[field.name] = self._stored(keyed if field.name in table.key else binder, node, field)
        for field in table.schema:
            if field.name not in values and not field.nullable and change.kind is ChangeKind.INSERT:
                raise self._source.refusal(f"'{field.name}' is NOT NULL and has no value", change.span, "name it")
            if field.name not in values and field.name in table.key:
                raise self._source.refusal(f"the key '{field.name}' has no value", change.span, "name it")
        sets = tuple((name, value) for name, value in values.items() if name not in table.key)
        return tuple(values[name] for name in table.key), sets

    def _sets(
        self, stream: StreamRef, alias: str, table: TableRef, change: TableChange
    ) -> tuple[tuple[str, Expression], ...]:
        binder = self._binder(alias, stream, table)
        sets: dict[str, Expression] = {}
        for name, node in zip(change.columns, change.values, strict=True):
            field = self._column(name, table.schema)
            if field.name in table.key:
                raise self._source.refusal(
                    f"'{field.name}' belongs to the key and stays", name.span, "DELETE the row and INSERT another"
                )
            if field.name in sets:
                raise self._source.refusal(f"'{field.name}' is set twice", name.span)
            sets[field.name] = self._stored(binder, node, field)
        return tuple(sets.items())

    def _which(
        self, stream: StreamRef, alias: str, table: TableRef, change: TableChange
    ) -> tuple[tuple[Expression, ...], Expression | None]:
        """Which rows UPDATE and DELETE concern: a key, and what else must hold."""
        if change.where is None:
            raise self._source.refusal(
                f"{change.kind.value} without WHERE concerns every row at every event",
                change.span,
                f"write WHERE {table.name}.{table.key[0]} = {alias}.column, or WHERE TRUE for all",
            )
        condition = self._binder(alias, stream, table, counts=table).condition(change.where, "WHERE")
        keys: dict[str, Expression] = {}
        rest: list[Expression] = []
        own, known = f"{table.name}.", f"{alias}."
        for part in conjuncts(condition):
            found = equality(part, lambda name: name.startswith(own), lambda name: name.startswith(known))
            column = found.own.name.removeprefix(own) if found and isinstance(found.own, Column) else None
            if found is not None and column in table.key and column not in keys:
                keys[column] = found.other
            else:
                rest.append(part)
        if len(keys) == len(table.key):
            return tuple(keys[name] for name in table.key), conjunction(rest)
        return (), condition

    # -- what they have in common ---------------------------------------------------------------------------

    def _binder(
        self, alias: str, stream: StreamRef, table: TableRef | None = None, *, counts: TableRef | None = None
    ) -> ExpressionBinder:
        """For expressions over the columns of the stream and, with `table`, the table's own row. With `counts` they may
        count rows of the table."""
        fields = [replace(f, name=f"{alias}.{f.name}") for f in stream.schema]
        sides = (alias,) if table is None else (alias, table.name)
        if table is not None:
            fields += [replace(f, name=f"{table.name}.{f.name}") for f in table.schema]
        qualifiers = frozenset(side.lower() for side in sides)
        scope = Scope(Schema(tuple(fields)), qualifiers, False, sides=sides)
        if counts is None:
            return ExpressionBinder(self._source, scope, self._refused)
        return CountingBinder(self._source, scope, self._refused, counts, self._catalog.table, self._counts)

    def _stored(self, binder: ExpressionBinder, node: exp.Expr, field: Field) -> Expression:
        """A value as the column takes it: numbers may be made narrower, and fail where they do not fit."""
        bound = binder.bind(node)
        if isinstance(bound, Literal) and bound.value is None and not field.nullable:
            raise self._source.refusal(f"'{field.name}' is NOT NULL", span_of(node))
        numeric = bound.type.is_numeric and field.type.is_numeric
        literal = isinstance(bound, Literal) and implicit_cast(bound.type, field.type)
        if not numeric and not literal and (bound.type, field.type) not in _FITTING and bound.type is not field.type:
            raise self._source.refusal(
                f"'{field.name}' is {field.type}, and this is {bound.type}",
                span_of(node),
                f"write CAST(... AS {field.type})",
            )
        return binder.converted(bound, field.type, node)

    def _column(self, name: Name, schema: Schema) -> Field:
        found = schema.find(name.text)
        if found is None:
            hint = did_you_mean(name.text, schema.names)
            raise self._source.refusal(f"unknown column '{name.text}'", name.span, hint)
        return found

    def _table(self, name: Name) -> TableRef:
        found = self._catalog.table(name.text)
        if found is not None:
            return found
        kind = self._catalog.kind_of(name.text)
        hint = did_you_mean(name.text, self._catalog.table_names()) or "declare it before with CREATE TABLE"
        message = f"unknown table '{name.text}'" if kind is None else f"'{name.text}' is a {kind}, not a table"
        raise self._source.refusal(message, name.span, hint)


def _counts_rows(condition: Expression) -> bool:
    return any(name.startswith("#") for name in columns(condition))
