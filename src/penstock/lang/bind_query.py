"""Queries as written to typed queries: what stands in FROM, and UNION ALL. `bind_join` puts several sides together and
`bind_select` does the rest of a SELECT.

`lang.program` calls `QueryBinder.bind` for each query of a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.lang.bind_aggregates import KnownAggregates, UserSignature
from penstock.lang.bind_join import JoinBinder
from penstock.lang.bind_pattern import PatternBinder
from penstock.lang.bind_select import SelectBinder
from penstock.lang.catalog import Catalog
from penstock.lang.places import QueryText, Span, did_you_mean
from penstock.lang.query import Select, Source, StreamRef, TableRef, TableScan, Union, columns_of
from penstock.lang.scope import Scope
from penstock.lang.syntax import (
    FromItem,
    Name,
    PatternSyntax,
    QuerySyntax,
    RecognizeSyntax,
    SelectSyntax,
    UnionSyntax,
    WindowSyntax,
)
from penstock.types import Schema
from penstock.windows.spec import RowsOf, WindowSpec


class QueryBinder:
    """Binds the queries of one text; `catalog` says which streams there are."""

    def __init__(self, source: QueryText, catalog: Catalog, user_aggregates: Mapping[str, UserSignature]) -> None:
        self._source = source
        self._catalog = catalog
        self.known = KnownAggregates(user_aggregates)

    def is_plain(self, syntax: SelectSyntax) -> bool:
        """Whether each row comes of one row of one source."""
        one = not syntax.joins and not isinstance(syntax.source.source, PatternSyntax | RecognizeSyntax)
        return one and syntax.source.window is None

    def scope_of(self, syntax: SelectSyntax) -> Scope:
        """What the expressions of a SELECT see."""
        source, qualifiers = self._from(syntax.source)
        return Scope(columns_of(source), qualifiers, syntax.source.window is not None)

    def bind(self, syntax: QuerySyntax) -> Select | Union:
        if isinstance(syntax, UnionSyntax):
            return self._union(syntax)
        if syntax.joins:
            join, scope, evaluation = JoinBinder(self._source, self.known, self._side).bind(syntax)
            return SelectBinder(self._source, self.known, syntax, scope).bind(join, evaluation)
        if isinstance(syntax.source.source, PatternSyntax):
            return PatternBinder(self._source, self.known, self._element).bind(syntax, syntax.source.source)
        source, qualifiers = self._from(syntax.source)
        schema = columns_of(source)
        window = self._window(syntax.source.window, schema)
        scope = Scope(schema, qualifiers, window is not None)
        return SelectBinder(self._source, self.known, syntax, scope).bind(source, window)

    def _element(self, source: Name | QuerySyntax) -> Source:
        """What an element of a pattern reads."""
        return self.stream(source) if isinstance(source, Name) else self.bind(source)

    def _from(self, item: FromItem) -> tuple[Source, frozenset[str]]:
        if isinstance(item.source, Name):
            qualifier = item.alias or item.source
            table = self._catalog.table(item.source.text)
            if table is not None and item.window is not None:
                return self._scan(table, item.source, item.window), frozenset({qualifier.text.lower()})
            self._check_more_than_slide(item)
            return self.stream(item.source), frozenset({qualifier.text.lower()})
        assert not isinstance(item.source, PatternSyntax), "patterns are bound by themselves"
        self._check_more_than_slide(item)
        if isinstance(item.source, RecognizeSyntax):
            self._check_recognize(item.source)
            return self.bind(item.source.select), frozenset({item.alias.text.lower()} if item.alias else ())
        return self.bind(item.source), frozenset({item.alias.text.lower()} if item.alias else ())

    def _check_more_than_slide(self, item: FromItem) -> None:
        if item.window is not None and item.window.whole:
            raise self._source.refusal(
                "a window over a stream is more than a SLIDE",
                item.window.span,
                "say what is in it: [RANGE 1 HOUR SLIDE 1 MINUTE]",
            )

    def _check_recognize(self, written: RecognizeSyntax) -> None:
        """That rows come in the order asked for, and that NULL, a partition in SQL, is in none of these."""
        stream, order = self.stream(written.stream), written.order_by
        event_time = self._catalog.event_time(stream.name)
        if event_time is None or event_time.lower() != order.text.lower():
            raise self._source.refusal(
                f"MATCH_RECOGNIZE needs ORDER BY the event time of '{stream.name}'",
                order.span,
                "declare the stream with EVENT TIME in this text" if event_time is None else f"it is '{event_time}'",
            )
        for name in written.partition_by:
            field = stream.schema.find(name.text)
            if field is not None and field.nullable:
                raise self._source.refusal(
                    f"'{name.text}' may be NULL, and rows with NULL are in no partition here",
                    name.span,
                    "declare it NOT NULL, or write FROM PATTERN SEQ(...)",
                )

    def _scan(self, table: TableRef, name: Name, window: WindowSyntax) -> TableScan:
        slide = window.spec.time_slide
        if not window.whole or slide is None or slide.wall_clock:
            raise self._source.refusal(
                f"'{table.name}' is a table: all its rows are there at once",
                window.span,
                f"say when to look: FROM {table.name} [SLIDE 1 MINUTE]",
            )
        if not table.writers:
            raise self._source.refusal(
                f"no stream writes '{table.name}', so there is no time at which to look at it",
                name.span,
                f"join it with a stream: FROM s, {table.name} WHERE s.id = {table.name}.id",
            )
        self._catalog.note_read(table.name)
        return TableScan(table, slide, table.schema)

    def _side(self, item: FromItem) -> tuple[Source | TableRef, WindowSpec | None]:
        """One of several sides of FROM: also a table."""
        table = self._catalog.table(item.source.text) if isinstance(item.source, Name) else None
        if table is None:
            source, _ = self._from(item)
            return source, self._window(item.window, columns_of(source))
        if item.window is not None:
            raise self._source.refusal(
                f"'{table.name}' is a table and has no window", item.window.span, "leave the window out"
            )
        self._catalog.note_read(table.name)
        return table, None

    def stream(self, name: Name) -> StreamRef:
        """The stream of that name, or a refusal."""
        found = self._catalog.stream(name.text)
        if found is not None:
            return found
        kind = self._catalog.kind_of(name.text)
        if kind == "table":
            raise self._source.refusal(
                f"'{name.text}' is a table, not a stream",
                name.span,
                f"join it with a stream: FROM s, {name.text} WHERE s.id = {name.text}.id; "
                f"or look at it again and again: FROM {name.text} [SLIDE 1 MINUTE]",
            )
        if kind is not None:
            raise self._source.refusal(
                f"'{name.text}' is a {kind}, not a stream",
                name.span,
                "INSERT INTO a new name makes a stream that later queries read",
            )
        hint = did_you_mean(name.text, self._catalog.stream_names()) or "declare it before with CREATE STREAM"
        raise self._source.refusal(f"unknown stream '{name.text}'", name.span, hint)

    def _window(self, window: WindowSyntax | None, schema: Schema) -> WindowSpec | None:
        if window is None:
            return None
        keys: list[str] = []
        for name in window.partition_by:
            field = schema.find(name.text)
            if field is None:
                hint = did_you_mean(name.text, schema.names)
                raise self._source.refusal(f"unknown column '{name.text}'", name.span, hint)
            if field.name in keys:
                raise self._source.refusal(f"'{name.text}' is given twice in PARTITION BY", name.span)
            keys.append(field.name)
        spec = replace(window.spec, partition_by=tuple(keys))
        if not isinstance(spec.extent, RowsOf):
            return spec
        number = schema.find(spec.extent.column)
        assert number is not None, "the grammar checked that it is a column of PARTITION BY"
        if not number.type.is_integer:
            raise self._source.refusal(
                f"the number of ROWS is '{number.name}', which is {number.type.name} and no whole number",
                window.span,
                "write an integer column of PARTITION BY, or a number",
            )
        return replace(spec, extent=RowsOf(number.name))

    def _union(self, syntax: UnionSyntax) -> Union:
        inputs: list[Source] = []
        for branch in syntax.branches:
            if isinstance(branch, SelectSyntax) and (branch.order_by or branch.limit or branch.drain):
                raise self._source.refusal(
                    "ORDER BY, LIMIT and DRAIN cannot stand in a branch of UNION ALL",
                    branch.span,
                    "put the union into FROM (...) [window] and order outside",
                )
            bound = self.bind(branch)
            inputs += bound.inputs if isinstance(bound, Union) else [bound]
        seen = [columns_of(branch) for branch in inputs]
        for other in seen[1:]:
            self._check_alike(seen[0], other, syntax.span)
        fields = inputs[0].schema.fields
        carried = len(seen[0]) - len(fields)
        merged = (
            replace(field, nullable=any(schema.fields[carried + n].nullable for schema in seen))
            for n, field in enumerate(fields)
        )
        return Union(tuple(inputs), Schema(tuple(merged)))

    def _check_alike(self, first: Schema, other: Schema, span: Span) -> None:
        if len(first) != len(other):
            raise self._source.refusal(
                f"the branches of UNION ALL have {len(first)} and {len(other)} columns",
                span,
                "a windowed branch carries window_start and window_end too",
            )
        for position, (mine, theirs) in enumerate(zip(first, other, strict=True), 1):
            if mine.type is not theirs.type:
                raise self._source.refusal(
                    f"column {position} of UNION ALL is {mine.type} in one branch and {theirs.type} in another",
                    span,
                    f"write CAST(... AS {mine.type}) in the other",
                )
