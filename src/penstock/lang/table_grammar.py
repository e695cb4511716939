"""The grammar of tables: CREATE TABLE after these two words, and what changes a table.

CREATE TABLE agents (id INT PRIMARY KEY, name STRING, team INT) FROM 'agents.csv' WITH ('refresh' = '1 MINUTE')
CREATE TABLE positions (x INT, y INT, n BIGINT, PRIMARY KEY (x, y))
CREATE TABLE latest AS LAST BY id FROM reports WHERE speed > 0
ON reports AS r WHERE r.speed > 0 UPSERT INTO positions (x, y, n) VALUES (r.x, r.y, COALESCE(n, 0) + 1)
ON reports UPDATE agents SET team = reports.team WHERE agents.id = reports.id
ON left DELETE FROM agents WHERE agents.id = left.id
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.lang.create_grammar import CreateParser, Options
from penstock.lang.syntax import ColumnSyntax, CreateTable, LastBy, Name, OnStatement, TableChange
from penstock.lang.table_defs import ChangeKind


class TableParser(CreateParser):
    """Declarations plus tables and what changes them."""

    def create_table(self) -> CreateTable | LastBy:
        name = self.name("the name of the table")
        if self._match(TokenType.ALIAS):
            return self.last_by(name)
        self.expect(TokenType.L_PAREN, "'(' and the columns, or AS LAST BY")
        columns: list[ColumnSyntax] = []
        key: list[Name] = []
        while True:
            start = self._curr.start if self._curr else 0
            if self._match(TokenType.PRIMARY_KEY) or self.take("PRIMARY", "KEY"):
                self.once(not key, "PRIMARY KEY", start)
                self.expect(TokenType.L_PAREN, "'(' and the columns of the key")
                key += self.names("a column of the key")
                self.expect(TokenType.R_PAREN, "',' or ')'")
            else:
                column = self.column()
                start = self._curr.start if self._curr else 0
                if self._match(TokenType.PRIMARY_KEY) or self.take("PRIMARY", "KEY"):
                    self.once(not key, "PRIMARY KEY", start)
                    key.append(column.name)
                    if self._match(TokenType.NOT):
                        self.expect(TokenType.NULL, "NULL")
                columns.append(column)
            if not self._match(TokenType.COMMA):
                break
        self.expect(TokenType.R_PAREN, "',' or ')'")
        uri: str | None = None
        if self._match(TokenType.FROM):
            uri = self.string("a quoted address, such as 'agents.csv' or 'postgresql://host/database'")
        options: Options = ()
        span = None
        if self._match(TokenType.WITH):
            start = self._curr.start if self._curr else 0
            options = self.options()
            span = self.span_since(start)
        return CreateTable(name, tuple(columns), tuple(key), uri, options, span)

    def last_by(self, name: Name) -> LastBy:
        """`LAST BY key, ... FROM stream [WHERE ...]`: the latest row of each key."""
        if not self.take("LAST", "BY"):
            self.unexpected("LAST BY and the columns of the key")
        key = self.names("a column of the key")
        self.expect(TokenType.FROM, "',' or FROM")
        stream = self.name("a stream")
        return LastBy(name, key, stream, self.value() if self._match(TokenType.WHERE) else None)

    def on_statement(self) -> OnStatement:
        """After the word ON."""
        start = self._prev.start
        stream = self.name("a stream")
        alias = None
        if self._match(TokenType.ALIAS):
            alias = self.name("an alias after AS")
        elif self._match_set(self.IDENTIFIER_TOKENS, advance=False) and self._curr.text.upper() != "UPSERT":
            alias = self.name("an alias")
        where = self.value() if self._match(TokenType.WHERE) else None
        return OnStatement(stream, alias, where, self.table_change(), self.source.text[start : self._prev.end + 1])

    def table_change(self) -> TableChange:
        """INSERT INTO, UPSERT INTO, UPDATE or DELETE FROM a table."""
        start = self._curr.start if self._curr else 0
        if self._match(TokenType.UPDATE):
            return self.update(start)
        if self._match(TokenType.DELETE):
            self.expect(TokenType.FROM, "FROM")
            table = self.name("a table")
            return TableChange(ChangeKind.DELETE, table, (), (), self.condition_of_change(), self.span_since(start))
        if self.take("UPSERT"):
            kind = ChangeKind.UPSERT
        elif self._match(TokenType.INSERT):
            kind = ChangeKind.INSERT
        else:
            self.unexpected("INSERT INTO, UPSERT INTO, UPDATE or DELETE FROM")
        self.expect(TokenType.INTO, "INTO")
        table = self.name("a table")
        columns: tuple[Name, ...] = ()
        if self._match(TokenType.L_PAREN):
            columns = self.names("a column")
            self.expect(TokenType.R_PAREN, "',' or ')'")
        self.expect(TokenType.VALUES, "VALUES and the values in parentheses")
        self.expect(TokenType.L_PAREN, "'(' and the values")
        values = [self.value()]
        while self._match(TokenType.COMMA):
            values.append(self.value())
        self.expect(TokenType.R_PAREN, "',' or ')'")
        return TableChange(kind, table, columns, tuple(values), None, self.span_since(start))

    def update(self, start: int) -> TableChange:
        table = self.name("a table")
        self.expect(TokenType.SET, "SET")
        columns: list[Name] = []
        values: list[exp.Expr] = []
        while True:
            columns.append(self.name("a column"))
            self.expect(TokenType.EQ, "'='")
            values.append(self.value())
            if not self.another():
                break
        where = self.condition_of_change()
        return TableChange(ChangeKind.UPDATE, table, tuple(columns), tuple(values), where, self.span_since(start))

    def another(self) -> bool:
        """Takes a comma behind which the same goes on."""
        return bool(self._match(TokenType.COMMA))

    def condition_of_change(self) -> exp.Expr | None:
        return self.value() if self._match(TokenType.WHERE) else None
