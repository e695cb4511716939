"""The grammar of tables: CREATE TABLE after these two words, and what changes a table.

CREATE TABLE agents (id INT PRIMARY KEY, name STRING, team INT) FROM 'agents.csv' WITH ('refresh' = '1 MINUTE')
CREATE TABLE positions (x INT, y INT, n BIGINT, PRIMARY KEY (x, y))
CREATE TABLE latest AS LAST BY id FROM reports WHERE speed > 0 WITH ('ttl' = '1 DAY')
ON reports AS r WHERE r.speed > 0 UPSERT INTO positions (x, y, n) VALUES (r.x, r.y, COALESCE(n, 0) + 1)
ON reports UPDATE agents SET team = reports.team WHERE agents.id = reports.id
ON left DELETE FROM agents WHERE agents.id = left.id
ON left DELETE FROM agents WHERE NOT EXISTS (SELECT * FROM agents AS a WHERE a.team = agents.team AND a.id <> left.id)
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp

from penstock.lang.create_grammar import CreateParser, Options
from penstock.lang.places import Span
from penstock.lang.syntax import ColumnSyntax, CreateTable, LastBy, Name, OnStatement, TableChange
from penstock.lang.table_defs import ChangeKind


class TableParser(CreateParser):
    """Declarations plus tables and what changes them."""

    _may_count = False

    def create_table(self) -> CreateTable | LastBy:
        name = self.name("the name of the table")
        if self.take("AS"):
            return self.last_by(name)
        key: list[Name] = []

        def column_or_key() -> ColumnSyntax | None:
            column = None if self.at("PRIMARY KEY") else self.column()
            start = self.token.start
            if self.take("PRIMARY KEY"):
                self.once(not key, "PRIMARY KEY", start)
                if column is None:
                    key.extend(
                        self.enclosed(lambda: self.name("a column of the key"), "'(' and the columns of the key")
                    )
                    return None
                key.append(column.name)
                if self.take("NOT"):
                    self.expect("NULL")
            return column

        columns = tuple(filter(None, self.enclosed(column_or_key, "'(' and the columns, or AS LAST BY")))
        where = "a quoted address, such as 'agents.csv' or 'postgresql://host/database'"
        uri = self.string(where) if self.take("FROM") else None
        return CreateTable(name, columns, tuple(key), uri, *self.table_options())

    def table_options(self) -> tuple[Options, Span | None]:
        """`WITH (...)` and where it stands, if it does."""
        if not self.take("WITH"):
            return (), None
        start = self.token.start
        return self.options(), self.span_since(start)

    def last_by(self, name: Name) -> LastBy:
        """`LAST BY key, ... FROM stream [WHERE ...] [WITH (...)]`: the latest row of each key."""
        if not self.take("LAST", "BY"):
            self.unexpected("LAST BY and the columns of the key")
        key = self.names("a column of the key")
        self.expect("FROM", "',' or FROM")
        stream = self.name("a stream")
        return LastBy(name, key, stream, self.condition(), *self.table_options())

    def on_statement(self) -> OnStatement:
        """After the word ON."""
        start = self.last.start
        stream = self.name("a stream")
        alias = self.alias("an alias", "UPSERT")
        where = self.counting_condition()
        return OnStatement(stream, alias, where, self.table_change(), self.source.text[start : self.last.end])

    def table_change(self) -> TableChange:
        """INSERT INTO, UPSERT INTO, UPDATE or DELETE FROM a table."""
        start = self.token.start
        if self.take("UPDATE"):
            return self.update(start)
        if self.take("DELETE"):
            self.expect("FROM")
            table = self.name("a table")
            where = self.counting_condition()
            return TableChange(ChangeKind.DELETE, table, (), (), where, self.span_since(start))
        if self.take("UPSERT"):
            kind = ChangeKind.UPSERT
        elif self.take("INSERT"):
            kind = ChangeKind.INSERT
        else:
            self.unexpected("INSERT INTO, UPSERT INTO, UPDATE or DELETE FROM")
        self.expect("INTO")
        table = self.name("a table")
        columns: tuple[Name, ...] = ()
        if self.at("("):
            columns = self.enclosed(lambda: self.name("a column"), "'('")
        self.expect("VALUES", "VALUES and the values in parentheses")
        values = self.enclosed(self.value, "'(' and the values")
        return TableChange(kind, table, columns, values, None, self.span_since(start))

    def update(self, start: int) -> TableChange:
        table = self.name("a table")
        self.expect("SET")
        columns, values = zip(*self.listed(self.assignment, self.another), strict=True)
        where = self.counting_condition()
        return TableChange(ChangeKind.UPDATE, table, columns, values, where, self.span_since(start))

    def counting_condition(self) -> exp.Expr | None:
        """What follows WHERE of a change, if it stands here: it may count rows of the table."""
        self._may_count = True
        where = self.condition()
        self._may_count = False
        return where

    def primary(self) -> exp.Expr | None:
        start = self.token.start
        if self._may_count and self.take("EXISTS", "(", "SELECT"):
            if not self.take("*"):
                self.unexpected("'*'", "EXISTS asks whether there is a row: EXISTS (SELECT * FROM table WHERE ...)")
            return self.with_span(exp.Exists(this=self.counted(start)), start)
        if self._may_count and self.take("(", "SELECT"):
            if not self.take("COUNT", "(", "*", ")"):
                self.unexpected("COUNT(*)", "nothing else is computed here: (SELECT COUNT(*) FROM table WHERE ...)")
            return self.counted(start)
        return super().primary()

    def counted(self, start: int) -> exp.Expr:
        """`FROM table [AS alias] [WHERE ...])`: which rows are counted."""
        self.expect("FROM")
        table = self.name("a table")
        alias = self.alias("an alias") or table
        self._may_count = False
        where = self.condition()
        self._may_count = True
        self.expect(")", hint="rows are counted by a condition alone, without GROUP BY and the like")
        return self.with_span(exp.Subquery(table=_identifier(table), alias=_identifier(alias), where=where), start)

    def assignment(self) -> tuple[Name, exp.Expr]:
        column = self.name("a column")
        self.expect("=")
        return column, self.value()

    @abstractmethod
    def another(self) -> bool:
        """Takes a comma behind which the same list goes on."""


def _identifier(name: Name) -> exp.Expr:
    made = exp.Identifier(this=name.text, quoted=True)
    made.meta["start"], made.meta["end"] = name.span[0], name.span[1] - 1
    return made
