"""The grammar of what operators stand between: literals, columns, calls, CASE and parentheses.

Function calls stay as written (`exp.Anonymous`), types are ours, and every leaf and call has its offsets. Forms without
a meaning here are refused with their place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from sqlglot import exp

from penstock.lang.dialect import SUFFIXES, TYPE_NAMES, Kind
from penstock.lang.duration_grammar import DurationParser
from penstock.lang.durations import LONGEST
from penstock.types import SqlType

_LEAVES: dict[str, Callable[[], exp.Expr]] = {"NULL": exp.Null, "TRUE": exp.true, "FALSE": exp.false, "*": exp.Star}


class OperandParser(DurationParser):
    """Durations plus operands; `scalar_grammar` adds operators."""

    @abstractmethod
    def value(self) -> exp.Expr:
        """A scalar expression; something must stand there."""

    def with_span(self, node: exp.Expr, start: int) -> exp.Expr:
        node.meta["start"], node.meta["end"] = start, self.last.end - 1
        return node

    def sql_type(self) -> SqlType:
        token, name = self.token, self.token.word
        if name in ("DECIMAL", "NUMERIC", "DEC", "NUMBER"):
            self.refuse(f"there is no type {name}", token.span, "write DOUBLE, or BIGINT for whole units")
        if name not in TYPE_NAMES:
            self.unexpected("a type", f"the types are {', '.join(sorted({t.value for t in TYPE_NAMES.values()}))}")
        self.advance()
        if self.at("("):
            self.out_of_place("write the type without a length")
        return TYPE_NAMES[name]

    def operand(self) -> exp.Expr | None:
        """An operand with what follows it at once; None if none stands here."""
        this = self.primary() or self.column_or_call()
        while True:
            if self.at("[", "{"):
                self.out_of_place("a window in brackets follows a stream or a subquery in FROM")
            if this is None:
                return None
            if self.take("."):
                this = self.member(this)
            elif self.take("::"):
                this = exp.Cast(this=this, to=exp.DataType(this=self.suffix_type().value))
            elif self.take("AT", "TIME", "ZONE"):
                this = exp.AtTimeZone(this=this, zone=self.operand())
            else:
                return this

    def suffix_type(self) -> SqlType:
        """After `::`, which the tokenizer also puts between a number and the letter of its type: 10L is 10::L."""
        suffix = SUFFIXES.get(self.token.word) if self.last.start == self.token.start else None
        if suffix is None:
            return self.sql_type()
        self.advance()
        return suffix

    def primary(self) -> exp.Expr | None:
        """A literal, `*`, CASE or something in parentheses."""
        token = self.token
        word, kind = token.word, token.kind
        if kind is Kind.NUMBER:
            return self.literal(self.advance().text, token.start)
        if kind is Kind.STRING:
            return self.string_literal()
        if word in _LEAVES:
            self.advance()
            return self.with_span(_LEAVES[word](), token.start)
        if word == "." and self.peek().kind is Kind.NUMBER:
            return self.literal(f"0.{self.advance(2).text}", token.start)
        if word == "(":
            return self.parenthesis()
        if word == "CASE":
            return self.case()
        if word == "INTERVAL" and self.peek().kind in (Kind.STRING, Kind.NUMBER):
            return self.interval()
        if word in ("TIMESTAMP", "DATE") and self.peek().kind is Kind.STRING:
            self.advance()
            literal = self.literal(self.advance().text, self.last.start, is_string=True)
            return self.with_span(exp.Cast(this=literal, to=exp.DataType(this=word)), token.start)
        return None

    def literal(self, text: str, start: int, *, is_string: bool = False) -> exp.Expr:
        return self.with_span(exp.Literal(this=text, is_string=is_string), start)

    def string_literal(self) -> exp.Expr:
        """A string; several that follow each other are one."""
        start, text = self.token.start, ""
        while self.token.kind is Kind.STRING:
            text += self.advance().text
        return self.literal(text, start, is_string=True)

    def parenthesis(self) -> exp.Expr:
        start = self.advance().start
        self.no_subquery()
        inner = self.value()
        self.expect(")", hint="a list in parentheses is only for IN" if self.at(",") else None)
        return self.with_span(exp.Paren(this=inner), start)

    def no_subquery(self) -> None:
        if self.at("SELECT", "WITH", "VALUES"):
            self.refuse(
                "a subquery cannot stand in an expression",
                self.token.span,
                "a subquery with a window goes into FROM: FROM (SELECT ...) [RANGE 1 HOUR SLIDE 1 MINUTE]",
            )

    def case(self) -> exp.Expr:
        start = self.advance().start
        subject = None if self.at("WHEN") else self.value()
        ifs: list[exp.Expr] = []
        while self.take("WHEN"):
            condition = self.value()
            self.expect("THEN")
            ifs.append(exp.If(this=condition, true=self.value()))
        if not ifs:
            self.unexpected("WHEN")
        default = self.value() if self.take("ELSE") else None
        self.expect("END", "END of CASE")
        return self.with_span(exp.Case(this=subject, ifs=ifs, default=default), start)

    def interval(self) -> exp.Expr:
        start = self.token.start
        micros = self.interval_micros()
        if abs(micros) > LONGEST:
            self.refuse("an interval is at most 100,000 years", self.span_since(start))
        return self.with_span(exp.Interval(this=exp.Literal.number(micros)), start)

    def column_or_call(self) -> exp.Expr | None:
        token = self.token
        called = self.peek().word == "(" and token.word != "IN"
        if not token.is_name and not (called and token.word == "ALL"):
            return None
        return self.function_call() if called else exp.Column(this=self.identifier())

    def identifier(self) -> exp.Expr:
        token = self.advance()
        return self.with_span(exp.Identifier(this=token.text, quoted=token.kind is Kind.QUOTED), token.start)

    def member(self, this: exp.Expr) -> exp.Expr:
        """What follows a dot: any word, or `*`."""
        if self.token.kind not in (Kind.NAME, Kind.KEYWORD, Kind.QUOTED):
            field = self.primary() or self.unexpected("a value")
        elif self.peek().word == "(":
            return exp.Dot(this=this, expression=self.function_call())
        else:
            field = self.identifier()
        if not isinstance(this, exp.Column) or this.args.get("catalog"):
            return exp.Dot(this=this, expression=field)
        return exp.Column(this=field, table=this.this, db=this.args.get("table"), catalog=this.args.get("db"))

    def function_call(self) -> exp.Expr:
        token = self.token
        self.advance(2)
        made: exp.Expr
        if token.word == "TRY_CAST":
            self.refuse(
                "TRY_CAST is not available",
                token.span,
                "write CAST: a row whose cast fails goes to the rejects and the run goes on",
            )
        if token.word == "CAST":
            operand = self.value()
            self.expect("AS", "AS and a type")
            made = exp.Cast(this=operand, to=exp.DataType(this=self.sql_type().value))
        elif token.word == "EXTRACT":
            part = self.advance().text
            self.expect("FROM", "FROM, as in EXTRACT(HOUR FROM t)")
            made = exp.Anonymous(this=part, expressions=[self.value()])
        else:
            made = exp.Anonymous(this=token.text, expressions=self.arguments())
        self.expect(")")
        return self.call_suffixes(self.with_span(made, token.start), token.start)

    def arguments(self) -> list[exp.Expr]:
        if self.at(")"):
            return []
        distinct = self.take("DISTINCT")
        self.no_subquery()
        found = list(self.listed(self.value))
        return [exp.Distinct(expressions=found)] if distinct else found

    def call_suffixes(self, call: exp.Expr, start: int) -> exp.Expr:
        """WITHIN GROUP, FILTER and OVER; IGNORE NULLS is refused."""
        if self.take("WITHIN", "GROUP"):
            self.expect("(", "'(' after WITHIN GROUP")
            self.expect("ORDER BY", "ORDER BY")
            ordered = exp.Ordered(this=self.value(), desc=self.take("DESC"))
            self.take("ASC")
            self.expect(")")
            call = self.with_span(exp.WithinGroup(this=call, expression=ordered), start)
        if self.take("FILTER", "("):
            self.expect("WHERE", "WHERE in FILTER (WHERE ...)")
            condition = self.value()
            self.expect(")")
            call = self.with_span(exp.Filter(this=call, expression=condition), start)
        if self.at("IGNORE", "RESPECT"):
            self.refuse(
                "IGNORE NULLS is not available",
                self.token.span,
                "write FILTER (WHERE x IS NOT NULL) after the aggregate",
            )
        if self.take("OVER"):
            call = self.with_span(exp.Window(this=call, over=exp.Literal.number(self.over_range())), start)
        return call

    def over_range(self) -> int:
        """Behind OVER stands how far an aggregate looks back; when it does is a matter of the window in FROM."""
        hint = "write AVG(x) OVER [RANGE 1 HOUR]; the SLIDE stands in FROM: FROM s [RANGE 1 DAY SLIDE 1 MINUTE]"
        self.expect("[", "'[' after OVER", hint)
        self.expect("RANGE", hint=hint)
        micros = self.duration("the RANGE")
        self.expect("]", hint=hint)
        return micros
