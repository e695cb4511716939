"""The grammar of statements: CREATE STREAM, TABLE and SINK, INSERT INTO, ON, EXPLAIN, SELECT and rules.

Strict on purpose: clauses come in SQL's order, nothing is skipped, and SQL that exists elsewhere but not here
(WITH, OFFSET, ...) is refused by name. What stands in FROM beside the first is read by `join_grammar`.
"""

from __future__ import annotations

from itertools import groupby

from penstock.lang.dialect import Kind, Token
from penstock.lang.join_grammar import JoinParser
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

    def statements(self, tokens: list[Token]) -> list[Statement]:
        found: list[Statement] = []
        for separator, group in groupby(tokens, lambda token: token.word == ";"):
            if not separator:
                self.begin(list(group))
                found.append(self.statement())
                if self.token.kind is not Kind.END:
                    self.unexpected("the end of the statement", "separate statements by ';'")
        return found

    def statement(self) -> Statement:
        start = self.token.start
        explain = self.take("EXPLAIN")
        name = into = strategy = None
        backfill = False
        if self.take("CREATE"):
            if not explain and self.take("STREAM"):
                return self.create_stream()
            if not explain and self.take("SINK"):
                return self.create_sink()
            if not explain and self.take("TABLE"):
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
            strategy = self.strategy() if self.take("WITH") else None
            backfill = self.take("BACKFILL")
            self.expect("AS")
        elif self.take("INSERT"):
            self.expect("INTO")
            into = self.name("the name of a sink or of a new stream")
        elif not explain and self.take("ON"):
            return self.on_statement()
        elif self.take("WHEN"):
            return self.rule(None, start)
        elif not self.at("SELECT", "(", "WITH"):
            self.unexpected("SELECT, INSERT INTO, ON, WHEN, CREATE STREAM, TABLE, SINK or QUERY, or EXPLAIN")
        body = self.query()
        return QueryStatement(body, name, into, self.source.text[start : self.last.end], strategy, backfill)

    def strategy(self) -> str:
        """`('strategy' = 'panes')`, the one option of a query."""
        start = self.token.start
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
        start = self.token.start
        branches = [self.branch()]
        while self.take("UNION"):
            if not self.take("ALL"):
                self.refuse("UNION removes duplicates, which needs the whole stream", self.last.span, "write UNION ALL")
            branches.append(self.branch())
        if self.at("INTERSECT", "EXCEPT", "MINUS"):
            self.refuse(f"{self.token.word} is not available", self.token.span)
        return branches[0] if len(branches) == 1 else UnionSyntax(tuple(branches), self.span_since(start))

    def branch(self) -> QuerySyntax:
        if self.take("("):
            inner = self.query()
            self.expect(")")
            return inner
        return self.select()

    def select(self) -> SelectSyntax:
        if self.at("WITH"):
            self.refuse(
                "WITH is not available",
                self.token.span,
                "write the query as a subquery in FROM, or INSERT INTO a stream that later queries read",
            )
        start = self.expect("SELECT").start
        emit = distinct = None
        while emit is None or distinct is None:
            if emit is None and (word := self.take_one(_EMITS)) is not None:
                emit = _EMITS[word], self.last.span
            elif distinct is None and self.take("DISTINCT"):
                distinct = self.last.span
            else:
                break
        if not distinct:
            self.take("ALL")
        items = self.listed(self.item)
        self.expect("FROM", "',' or FROM", "every SELECT reads a stream: SELECT ... FROM stream [window]")
        source = self.pattern_item() if self.is_pattern_ahead() else self.from_item()
        joins = self.joins()
        where = self.condition()
        group_by = self.listed(self.value) if self.take("GROUP BY") else ()
        having = self.value() if self.take("HAVING") else None
        order_by = self.listed(self.order_item) if self.take("ORDER BY") else ()
        limit = None
        if self.take("LIMIT"):
            limit = self.count("the LIMIT"), self.last.span
        drain = self.last.span if self.take("DRAIN") else None
        return SelectSyntax(
            emit, distinct, items, source, where, group_by, having, order_by, limit, drain,
            self.span_since(start), joins,
        )  # fmt: skip

    def item(self) -> SelectItem:
        if self.token.kind is Kind.END:
            self.unexpected("a column or an expression")
        start = self.token.start
        if self.take("*"):
            return SelectItem(None, None, Name("", self.span_since(start)), self.span_since(start))
        if self.peek().word == "." and self.peek(2).word == "*":
            qualifier = self.name("a stream or its alias")
            self.advance(2)
            return SelectItem(None, None, qualifier, self.span_since(start))
        expression = self.value()
        span = self.span_since(start)
        return SelectItem(expression, self.alias("a name"), None, span)

    def from_item(self) -> FromItem:
        if self.is_pattern_ahead():
            self.refuse_beside_others()
        start = self.token.start
        source: Name | QuerySyntax | RecognizeSyntax
        if self.at("("):
            source = self.branch()
        else:
            source = self.name("a stream or a subquery in parentheses")
            if self.at("."):
                self.out_of_place("streams have simple names; quote a name with a dot: `a.b`")
            if self.take("MATCH_RECOGNIZE"):
                source = self.recognize(source)
        window = self.window() if self.at("[") else None
        alias = self.alias("an alias", "DRAIN", *RULE_WORDS)
        if window is None and self.at("["):
            window = self.window()
        return FromItem(source, window, alias, self.span_since(start))

    def order_item(self) -> OrderItem:
        """NULLs come first when ascending and last when descending unless the query says otherwise, as in Spark."""
        expression = self.value()
        descending = self.take("DESC")
        if not descending:
            self.take("ASC")
        nulls_first = not descending
        if self.take("NULLS"):
            nulls_first = self.take("FIRST")
            if not nulls_first and not self.take("LAST"):
                self.unexpected("FIRST or LAST after NULLS")
        return OrderItem(expression, descending, nulls_first)
