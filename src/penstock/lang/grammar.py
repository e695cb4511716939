"""The grammar of statements: CREATE STREAM, TABLE and SINK, INSERT INTO, ON, EXPLAIN, SELECT and rules.

Strict on purpose: clauses come in SQL's order, nothing is skipped, and SQL that exists elsewhere but not here
(WITH, OFFSET, ...) is refused by name. What stands in FROM beside the first is read by `join_grammar`.
"""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from penstock.lang.join_grammar import JoinParser
from penstock.lang.places import QueryText
from penstock.lang.query import STRATEGIES, Emit
from penstock.lang.rule_grammar import RULE_WORDS, RuleParser
from penstock.lang.syntax import (
    FromItem,
    Name,
    OrderItem,
    QueryStatement,
    QuerySyntax,
    RecognizeSyntax,
    SelectItem,
    SelectSyntax,
    Statement,
    UnionSyntax,
)

_EMITS = {"ISTREAM": Emit.ISTREAM, "DSTREAM": Emit.DSTREAM, "RSTREAM": Emit.RSTREAM}


class StatementParser(JoinParser, RuleParser):
    """Reads a whole program: call `statements`."""

    def statements(self, source: QueryText, tokens: list[Token]) -> list[Statement]:
        self.reset()
        self.source = source
        self.sql = source.text
        found: list[Statement] = []
        chunk: list[Token] = []
        for token in tokens:
            if token.token_type != TokenType.SEMICOLON:
                chunk.append(token)
            elif chunk:
                found.append(self.statement_of(chunk))
                chunk = []
        if chunk:
            found.append(self.statement_of(chunk))
        return found

    def statement_of(self, tokens: list[Token]) -> Statement:
        self._chunks, self._chunk_index = [tokens], 0
        self._advance_chunk()
        statement = self.statement()
        if self._curr:
            self.unexpected("the end of the statement", "separate statements by ';'")
        return statement

    def statement(self) -> Statement:
        start = self._curr.start
        explain = self.take("EXPLAIN")
        name = into = strategy = None
        backfill = False
        if self._match(TokenType.CREATE):
            if not explain and self.take("STREAM"):
                return self.create_stream()
            if not explain and self.take("SINK"):
                return self.create_sink()
            if not explain and (self._match(TokenType.TABLE) or self.take("TABLE")):
                return self.create_table()
            if not explain and self.take("FUNCTION"):
                return self.create_function()
            if self.take("RULE"):
                return self.create_rule(start)
            if not self.take("QUERY"):
                self.unexpected(
                    "QUERY or RULE" if explain else "STREAM, TABLE, SINK, QUERY, RULE or FUNCTION after CREATE"
                )
            name = self.name("the name of the query")
            strategy = self.strategy() if self._match(TokenType.WITH) else None
            backfill = self.take("BACKFILL")
            self.expect(TokenType.ALIAS, "AS")
        elif self._match(TokenType.INSERT):
            self.expect(TokenType.INTO, "INTO")
            into = self.name("the name of a sink or of a new stream")
        elif not explain and self._match(TokenType.ON):
            return self.on_statement()
        elif self._match(TokenType.WHEN, advance=False):
            return self.rule(None, start)
        elif not self._match_set((TokenType.SELECT, TokenType.L_PAREN, TokenType.WITH), advance=False):
            self.unexpected("SELECT, INSERT INTO, ON, WHEN, CREATE STREAM, TABLE, SINK or QUERY, or EXPLAIN")
        body = self.query()
        end = self._prev.end + 1
        return QueryStatement(body, name, into, self.source.text[start:end], strategy, backfill)

    def strategy(self) -> str:
        """`('strategy' = 'panes')`, the one option of a query."""
        start = self._curr.start if self._curr else 0
        options = dict(self.options())
        strategy = options.pop("strategy", "")
        if options:
            self.refuse(f"a query has no option '{next(iter(options))}'", self.span_since(start), "it has 'strategy'")
        if strategy not in STRATEGIES:
            known = " or ".join(f"'{known}'" for known in STRATEGIES)
            self.refuse(f"there is no strategy '{strategy}'", self.span_since(start), f"write {known}")
        return strategy

    def query(self) -> QuerySyntax:
        """SELECT, or several joined by UNION ALL."""
        start = self._curr.start if self._curr else 0
        branches = [self.branch()]
        while self._match(TokenType.UNION):
            if not self._match(TokenType.ALL):
                self.refuse(
                    "UNION removes duplicates, which needs the whole stream",
                    self.span_of_token(self._prev),
                    "write UNION ALL",
                )
            branches.append(self.branch())
        if self._match_set((TokenType.INTERSECT, TokenType.EXCEPT), advance=False):
            self.refuse(f"{self._curr.text.upper()} is not available", self.span_of_token(self._curr))
        return branches[0] if len(branches) == 1 else UnionSyntax(tuple(branches), self.span_since(start))

    def branch(self) -> QuerySyntax:
        if self._match(TokenType.L_PAREN):
            inner = self.query()
            self.expect(TokenType.R_PAREN, "')'")
            return inner
        return self.select()

    def select(self) -> SelectSyntax:
        if self._match(TokenType.WITH, advance=False):
            self.refuse(
                "WITH is not available",
                self.span_of_token(self._curr),
                "write the query as a subquery in FROM, or INSERT INTO a stream that later queries read",
            )
        start = self.expect(TokenType.SELECT, "SELECT").start
        emit = distinct = None
        while emit is None or distinct is None:
            if emit is None and self._match_texts(_EMITS):
                emit = _EMITS[self._prev.text.upper()], self.span_of_token(self._prev)
            elif distinct is None and self._match(TokenType.DISTINCT):
                distinct = self.span_of_token(self._prev)
            else:
                break
        if not distinct:
            self._match(TokenType.ALL)
        items = [self.item()]
        while self._match(TokenType.COMMA):
            items.append(self.item())
        self.expect(TokenType.FROM, "',' or FROM", "every SELECT reads a stream: SELECT ... FROM stream [window]")
        source = self.pattern_item() if self.is_pattern_ahead() else self.from_item()
        joins = self.joins()
        where = self.value() if self._match(TokenType.WHERE) else None
        group_by = [] if not self._match(TokenType.GROUP_BY) else [self.value()]
        while group_by and self._match(TokenType.COMMA):
            group_by.append(self.value())
        having = self.value() if self._match(TokenType.HAVING) else None
        order_by = [] if not self._match(TokenType.ORDER_BY) else [self.order_item()]
        while order_by and self._match(TokenType.COMMA):
            order_by.append(self.order_item())
        limit = None
        if self._match(TokenType.LIMIT):
            limit = self.count("the LIMIT"), self.span_of_token(self._prev)
        drain = self.span_of_token(self._prev) if self.take("DRAIN") else None
        return SelectSyntax(
            emit, distinct, tuple(items), source, where, tuple(group_by), having, tuple(order_by), limit, drain,
            self.span_since(start), joins,
        )  # fmt: skip

    def item(self) -> SelectItem:
        if not self._curr:
            self.unexpected("a column or an expression")
        start = self._curr.start
        if self._match(TokenType.STAR):
            return SelectItem(None, None, Name("", self.span_since(start)), self.span_since(start))
        if self._next.token_type == TokenType.DOT and self._tokens[self._index + 2 : self._index + 3]:
            third = self._tokens[self._index + 2]
            if third.token_type == TokenType.STAR:
                qualifier = self.name("a stream or its alias")
                self._advance(2)
                return SelectItem(None, None, qualifier, self.span_since(start))
        expression = self.value()
        span = self.span_since(start)
        alias = None
        if self._match(TokenType.ALIAS) or self._match_set(self.IDENTIFIER_TOKENS, advance=False):
            alias = self.name("a name after AS")
        return SelectItem(expression, alias, None, span)

    def from_item(self) -> FromItem:
        if self.is_pattern_ahead():
            self.refuse_beside_others(self._curr)
        start = self._curr.start if self._curr else 0
        source: Name | QuerySyntax | RecognizeSyntax
        if self._match(TokenType.L_PAREN):
            source = self.query()
            self.expect(TokenType.R_PAREN, "')'")
        else:
            source = self.name("a stream or a subquery in parentheses")
            if self._match(TokenType.DOT, advance=False):
                self.out_of_place("streams have simple names; quote a name with a dot: `a.b`")
            if self.take("MATCH_RECOGNIZE"):
                source = self.recognize(source)
        window = self.window() if self._match(TokenType.L_BRACKET, advance=False) else None
        alias = None
        if self._match(TokenType.ALIAS):
            alias = self.name("an alias after AS")
        elif self._match_set(self.IDENTIFIER_TOKENS, advance=False) and not self.is_clause_ahead():
            alias = self.name("an alias")
        if window is None and self._match(TokenType.L_BRACKET, advance=False):
            window = self.window()
        return FromItem(source, window, alias, self.span_since(start))

    def is_clause_ahead(self) -> bool:
        """Whether a word that could be an alias begins a clause of what stands around."""
        return self._curr.text.upper() in ("DRAIN", *RULE_WORDS)

    def order_item(self) -> OrderItem:
        """NULLs come first when ascending and last when descending unless the query says otherwise, as in Spark."""
        expression = self.value()
        descending = self._match(TokenType.DESC)
        if not descending:
            self._match(TokenType.ASC)
        nulls_first = not descending
        if self.take("NULLS"):
            nulls_first = self.take("FIRST")
            if not nulls_first and not self.take("LAST"):
                self.unexpected("FIRST or LAST after NULLS")
        return OrderItem(expression, descending, nulls_first)
