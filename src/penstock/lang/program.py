"""Statements to a typed program: declarations checked, names registered, queries bound in the order written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.bind_function import bind_function
from penstock.lang.bind_query import QueryBinder
from penstock.lang.bind_rule import RuleBinder
from penstock.lang.bind_tables import TableBinder
from penstock.lang.catalog import Catalog
from penstock.lang.places import QueryText, did_you_mean
from penstock.lang.query import (
    Edge,
    FunctionDef,
    Program,
    Query,
    Rule,
    Select,
    SinkDef,
    StreamDef,
    StreamRef,
    Union,
    columns_of,
)
from penstock.lang.scope import WINDOW_COLUMNS
from penstock.lang.syntax import (
    CreateFunction,
    CreateSink,
    CreateStream,
    CreateTable,
    LastBy,
    Name,
    OnStatement,
    QueryStatement,
    RuleStatement,
    Statement,
    TableChange,
)
from penstock.types import Field, Schema, SqlType


class ProgramBinder:
    """Binds one text. Used once."""

    def __init__(
        self,
        source: QueryText,
        catalog: Catalog,
        user_aggregates: Mapping[str, UserSignature],
        functions: Collection[str] = (),
    ) -> None:
        self._source = source
        self._catalog = catalog
        self._binder = QueryBinder(source, catalog, user_aggregates)
        self._rules = RuleBinder(source, self._binder, functions)
        self._functions: list[FunctionDef] = []
        self._tables = TableBinder(source, catalog, self._binder.known, self._binder.stream)
        self._streams: list[StreamDef] = []
        self._sinks: list[SinkDef] = []
        self._queries: list[Query] = []
        self._late: list[Name] = []

    def bind(self, statements: Sequence[Statement]) -> Program:
        for statement in statements:
            if isinstance(statement, CreateStream):
                self._create_stream(statement)
            elif isinstance(statement, CreateSink):
                self._create_sink(statement)
            elif isinstance(statement, CreateFunction):
                self._create_function(statement)
            elif isinstance(statement, RuleStatement):
                self._rule(statement)
            elif isinstance(statement, CreateTable | LastBy):
                self._check_free(statement.name)
                self._tables.create(statement)
            elif isinstance(statement, OnStatement):
                self._tables.on(statement)
            else:
                self._query(statement)
        for name in self._late:
            kind = self._catalog.kind_of(name.text)
            if kind not in (None, "sink"):
                raise self._source.refusal(
                    f"'{name.text}' is a {kind} already", name.span, "late events need a sink or a name of their own"
                )
        return Program(
            tuple(self._streams),
            tuple(self._sinks),
            tuple(self._queries),
            tuple(self._functions),
            tuple(self._tables.tables),
            tuple(self._tables.writes),
        )

    def _check_free(self, name: Name) -> None:
        kind = self._catalog.kind_of(name.text)
        if kind is not None:
            raise self._source.refusal(f"a {kind} named '{name.text}' exists already", name.span, "choose another name")

    def _create_sink(self, statement: CreateSink) -> None:
        self._check_free(statement.name)
        self._catalog.add_sink(statement.name.text)
        place = self._source.place(statement.name.span)
        self._sinks.append(SinkDef(statement.name.text, statement.uri, statement.options, place))

    def _create_stream(self, statement: CreateStream) -> None:
        name = statement.name
        self._check_free(name)
        schema = self._schema(statement)
        event_time = self._event_time(statement, schema)
        sequence = None
        if statement.sequence is not None:
            sequence = self._column(statement.sequence, schema)
            if not sequence.type.is_integer:
                raise self._source.refusal(
                    f"SEQUENCE needs an integer column, and '{sequence.name}' is {sequence.type}",
                    statement.sequence.span,
                )
        if statement.late_into is not None:
            self._late.append(statement.late_into)
        arrived = self._arrived(statement, schema)
        self._catalog.add_stream(name.text, schema, None if statement.arrival else event_time.name)
        self._streams.append(
            StreamDef(
                name=name.text,
                schema=schema,
                event_time=event_time.name,
                time_unit=statement.time_unit[0] if statement.time_unit else 1,
                lateness=statement.lateness or 0,
                sequence=sequence.name if sequence else None,
                uri=statement.uri,
                idle_after=statement.idle_after,
                late_into=statement.late_into.text if statement.late_into else None,
                arrival=statement.arrival,
                arrived=arrived.name if arrived else None,
                options=statement.options,
                place=self._source.place(name.span),
            )
        )

    def _schema(self, statement: CreateStream) -> Schema:
        fields: dict[str, Field] = {}
        for column in statement.columns:
            text, span = column.name.text, column.name.span
            if text.lower() in fields:
                raise self._source.refusal(f"the column '{text}' is declared twice", span)
            if text.lower() in WINDOW_COLUMNS:
                raise self._source.refusal(
                    f"a column cannot be named '{text}'", span, "windowed results carry columns of that name"
                )
            if text[:1] in ("$", "#") or not text:
                raise self._source.refusal("a name cannot begin with '$' or '#', or be empty", span)
            fields[text.lower()] = Field(text, column.type, column.nullable)
        return Schema(tuple(fields.values()))

    def _column(self, name: Name, schema: Schema) -> Field:
        found = schema.find(name.text)
        if found is None:
            hint = did_you_mean(name.text, schema.names)
            raise self._source.refusal(f"unknown column '{name.text}'", name.span, hint)
        return found

    def _event_time(self, statement: CreateStream, schema: Schema) -> Field:
        if statement.event_time is None:
            raise self._source.refusal(
                f"the stream '{statement.name.text}' has no event time",
                statement.name.span,
                "add EVENT TIME column after the columns",
            )
        words = "ARRIVAL ORDER" if statement.arrival else "EVENT TIME"
        column = self._column(statement.event_time, schema)
        span = statement.event_time.span
        if column.type is SqlType.TIMESTAMP:
            if statement.time_unit is not None:
                raise self._source.refusal("a TIMESTAMP needs no UNIT", statement.time_unit[1], "leave UNIT out")
        elif column.type is not SqlType.BIGINT:
            raise self._source.refusal(
                f"{words.lower()} must be TIMESTAMP or BIGINT, and '{column.name}' is {column.type}", span
            )
        elif statement.time_unit is None:
            raise self._source.refusal(
                f"'{column.name}' is BIGINT, so its unit must be said",
                span,
                f"write {words} {column.name} UNIT MILLISECONDS (or SECONDS, MICROSECONDS, ...)",
            )
        return column

    def _arrived(self, statement: CreateStream, schema: Schema) -> Field | None:
        if statement.arrived is None:
            return None
        column, span = self._column(statement.arrived, schema), statement.arrived.span
        if column.type is not SqlType.TIMESTAMP:
            raise self._source.refusal(
                f"ARRIVED needs a TIMESTAMP column, and '{column.name}' is {column.type}", span, "declare it TIMESTAMP"
            )
        assert statement.event_time is not None, "ARRIVED stands behind ARRIVAL ORDER and its column"
        if column is self._column(statement.event_time, schema):
            raise self._source.refusal(
                f"'{column.name}' is the timestamp of the events and cannot be their arrival as well",
                span,
                "declare a TIMESTAMP column of its own; the engine fills it in",
            )
        return column

    def _query(self, statement: QueryStatement) -> None:
        if statement.name is not None:
            self._check_free(statement.name)
        if statement.into is not None:
            self._check_target(statement.into)
        body = self._binder.bind(statement.body)
        into = None if statement.into is None else self._fed(statement.into, body)
        name = self._query_name(statement.name, into)
        self._catalog.add_query(name)
        self._queries.append(Query(name, body, into, statement.text, statement.strategy, statement.backfill))

    def _rule(self, statement: RuleStatement) -> None:
        """A rule that only emits into one place is one query; else its firings are a stream of the rule's name, which
        its actions read."""
        if statement.name is not None:
            self._check_free(statement.name)
            name = statement.name.text
        else:
            name = self._catalog.free_query_name(len(self._queries) + 1, "rule")
        self._catalog.add_query(name)
        bound = self._rules.bind(statement, name)
        changes = [action for action in statement.actions if isinstance(action, TableChange)]
        rule = Rule(
            name,
            statement.every,
            tuple(emit.target.text for emit in bound.emits),
            bound.calls,
            tuple(f"{change.kind.value} {change.table.text}" for change in changes),
        )
        if len(statement.actions) == 1 and bound.emits:
            (emit,) = bound.emits
            body = bound.condition if emit.selected is None else replace(emit.selected, source=bound.condition)
            self._emit(emit.target, body, statement.text, rule)
            return
        self._catalog.add_stream(name, columns_of(bound.condition))
        self._queries.append(Query(name, bound.condition, name, statement.text, rule=rule))
        for change in changes:
            fired = StreamRef(name, columns_of(bound.condition))
            self._tables.change(fired, Name(name, change.span), (), change, statement.text)
        for emit in bound.emits:
            assert emit.selected is not None
            self._emit(emit.target, emit.selected, statement.text)

    def _emit(self, target: Name, body: Select | Union | Edge, text: str, rule: Rule | None = None) -> None:
        self._check_target(target)
        into = self._fed(target, body)
        name = self._query_name(None, into)
        self._catalog.add_query(name)
        self._queries.append(Query(name, body, into, text, rule=rule))

    def _create_function(self, statement: CreateFunction) -> None:
        if self._rules.knows(statement.name.text):
            raise self._source.refusal(
                f"a function named '{statement.name.text}' exists already", statement.name.span, "choose another name"
            )
        self._functions.append(bind_function(self._source, statement))
        self._rules.add_function(statement.name.text)

    def _fed(self, target: Name, body: Select | Union | Edge) -> str:
        """What rows are inserted into: a sink, or a stream that there is from now on."""
        sink = self._catalog.sink(target.text)
        if sink is None:
            self._catalog.add_stream(target.text, columns_of(body))
        return sink or target.text

    def _check_target(self, target: Name) -> None:
        if self._catalog.sink(target.text) is not None:
            return
        if self._catalog.stream(target.text) is not None:
            raise self._source.refusal(
                f"the stream '{target.text}' exists already",
                target.span,
                "INSERT INTO a sink or a new name; several queries are merged by UNION ALL",
            )
        self._check_free(target)

    def _query_name(self, name: Name | None, into: str | None) -> str:
        """Its own name, else that of what it inserts into, else `q` and its number."""
        if name is not None:
            return name.text
        if into is not None and not self._catalog.is_query(into):
            return into
        return self._catalog.free_query_name(len(self._queries) + 1)
