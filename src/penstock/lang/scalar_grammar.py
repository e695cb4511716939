"""The grammar of scalar expressions: sqlglot's for Spark, made strict.

The ladder of operators is sqlglot's. What it would accept and quietly change is closed here: function calls stay
as written (`exp.Anonymous`), types are ours, every leaf and call keeps its offsets, and what the binder has no
meaning for is refused with its place. `window_grammar`, `create_grammar` and `grammar` build on top.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.parser import binary_range_parser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.lang.dialect import SUFFIXES, TYPE_NAMES
from penstock.lang.places import QueryText, Span
from penstock.masking import masked
from penstock.types import SqlType


def _leaf(node: type[exp.Expr], **args: Any) -> Any:
    return lambda self, token: self.expression(node(**args), token)


def _literal(is_string: bool) -> Any:
    return lambda self, token: self.expression(exp.Literal(this=token.text, is_string=is_string), token)


class ExpressionParser(SparkParser):
    """Scalar expressions. `source` must be set before parsing."""

    source: QueryText

    STRICT_CAST = True
    FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    PLACEHOLDER_PARSERS: ClassVar = {}
    PRIMARY_PARSERS: ClassVar = {
        TokenType.STRING: _literal(True),
        TokenType.NUMBER: _literal(False),
        TokenType.NULL: _leaf(exp.Null),
        TokenType.TRUE: _leaf(exp.Boolean, this=True),
        TokenType.FALSE: _leaf(exp.Boolean, this=False),
        TokenType.STAR: _leaf(exp.Star),
    }
    RANGE_PARSERS: ClassVar = {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.IN: lambda self, this: self._parse_in(this),
        TokenType.IS: lambda self, this: self._parse_is(this),
        TokenType.LIKE: binary_range_parser(exp.Like),
    }
    UNARY_PARSERS: ClassVar = {
        token: parser
        for token, parser in SparkParser.UNARY_PARSERS.items()
        if token in (TokenType.PLUS, TokenType.NOT, TokenType.DASH)
    }
    # Spark's ladder from + down to |; sqlglot has one rung for what are four there
    TERM: ClassVar = {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub, TokenType.DPIPE: exp.DPipe}
    BITWISE_RUNGS: ClassVar = (
        {(TokenType.PIPE,): exp.BitwiseOr},
        {(TokenType.CARET,): exp.BitwiseXor},
        {(TokenType.AMP,): exp.BitwiseAnd},
        {
            (TokenType.LT, TokenType.LT): exp.BitwiseLeftShift,
            (TokenType.GT, TokenType.GT): exp.BitwiseRightShift,
        },
    )
    COLUMN_OPERATORS: ClassVar = {TokenType.DOT: None, TokenType.DCOLON: SparkParser.COLUMN_OPERATORS[TokenType.DCOLON]}

    # -- errors ---------------------------------------------------------------------------------------------

    def refuse(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise self.source.refusal(message, span, hint)

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        self.refuse(message, self.span_of_token(token or self._curr))

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        if self.error_level != ErrorLevel.IGNORE and any(expression.error_messages(args)):
            self.unexpected("a value")
        return expression

    def unexpected(self, wanted: str, hint: str | None = None) -> NoReturn:
        """Refuses the current token where `wanted` should stand."""
        if self._curr:
            span = self.span_of_token(self._curr)
            shown = masked(self.source.text)[span[0] : min(span[1], span[0] + 40)]
            self.refuse(f"expected {wanted}, found {shown!r}", span, hint)
        self.refuse(f"expected {wanted}, but the statement ends here", self.span_of_token(self._curr), hint)

    def out_of_place(self, hint: str) -> NoReturn:
        """Refuses the current token where nothing like it may stand."""
        self.refuse(f"{self._curr.text!r} cannot stand here", self.span_of_token(self._curr), hint)

    def span_of_token(self, token: Token) -> Span:
        """The token's offsets; for the end of the statement, the place just behind its last token."""
        if token:
            return token.start, token.end + 1
        last = self._tokens[-1].end + 1 if self._tokens else 0
        return last, last + 1

    def span_since(self, start: int) -> Span:
        return start, self._prev.end + 1

    # -- helpers the grammar shares -------------------------------------------------------------------------

    def take(self, *words: str) -> bool:
        """Consumes the words if they come next, whatever their case."""
        return self._match_text_seq(*words)

    def expect(self, token_type: TokenType, shown: str, hint: str | None = None) -> Token:
        if not self._match(token_type):
            self.unexpected(shown, hint)
        return self._prev

    def value(self) -> exp.Expr:
        """A scalar expression; something must stand there."""
        return self._parse_disjunction() or self.unexpected("an expression")

    def with_span(self, node: exp.Expr, start: int) -> exp.Expr:
        node.meta["start"], node.meta["end"] = start, self._prev.end
        return node

    def sql_type(self) -> SqlType:
        token, name = self._curr, self._curr.text.upper()
        if name in ("DECIMAL", "NUMERIC", "DEC", "NUMBER"):
            self.refuse(
                f"there is no type {name}", self.span_of_token(token), "write DOUBLE, or BIGINT for whole units"
            )
        if name not in TYPE_NAMES or token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            self.unexpected("a type", f"the types are {', '.join(sorted({t.value for t in TYPE_NAMES.values()}))}")
        self._advance()
        if self._match(TokenType.L_PAREN, advance=False):
            self.out_of_place("write the type without a length")
        return TYPE_NAMES[name]

    # -- the rungs of the ladder that sqlglot leaves too open -----------------------------------------------

    def _parse_bitwise(self, rung: int = 0) -> exp.Expr | None:
        if rung == len(self.BITWISE_RUNGS):
            return self._parse_term()
        this = self._parse_bitwise(rung + 1)
        while (operator := self.bitwise_operator(rung)) is not None:
            this = self.expression(operator(this=this, expression=self._parse_bitwise(rung + 1)))
        return this

    def bitwise_operator(self, rung: int) -> type[exp.Expr] | None:
        for tokens, operator in self.BITWISE_RUNGS[rung].items():
            if self._match_set(tokens[:1]) if len(tokens) == 1 else self._match_pair(*tokens):
                return operator
        return None

    def _parse_dcolon(self) -> exp.Expr:
        suffix = SUFFIXES.get(self._curr.text.upper())
        if suffix is not None and self._prev.start == self._curr.start:
            self._advance()
            return exp.DataType(this=suffix.value)
        return exp.DataType(this=self.sql_type().value)

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        start = self._curr.start if self._curr else 0
        before_string = self._next.token_type == TokenType.STRING
        if before_string and self._match_texts(("TIMESTAMP", "DATE")):
            to = self._prev.text.upper()
            self._advance()
            literal = self.expression(exp.Literal(this=self._prev.text, is_string=True), self._prev)
            return self.with_span(exp.Cast(this=literal, to=exp.DataType(this=to)), start)
        return self._parse_column()

    def _parse_bracket(self, this: Any = None) -> Any:
        # sqlglot loops here while a bracket is next, so none may be left standing
        if self._match_set(self.BRACKETS, advance=False):
            self.out_of_place("a window in brackets follows a stream or a subquery in FROM")
        return this

    def _parse_paren(self) -> exp.Expr | None:
        if not self._match(TokenType.L_PAREN):
            return None
        start = self._prev.start
        self.no_subquery()
        inner = self.value()
        if self._match(TokenType.COMMA, advance=False):
            self.unexpected("')'", "a list in parentheses is only for IN")
        self.expect(TokenType.R_PAREN, "')'")
        return self.with_span(exp.Paren(this=inner), start)

    def no_subquery(self) -> None:
        if self._match_set((TokenType.SELECT, TokenType.WITH, TokenType.VALUES), advance=False):
            self.refuse(
                "a subquery cannot stand in an expression",
                self.span_of_token(self._curr),
                "a subquery with a window goes into FROM: FROM (SELECT ...) [RANGE 1 HOUR SLIDE 1 MINUTE]",
            )

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise() or self.unexpected("the lower bound of BETWEEN")
        self.expect(TokenType.AND, "AND between the bounds of BETWEEN")
        high = self._parse_bitwise() or self.unexpected("the upper bound of BETWEEN")
        return self.expression(exp.Between(this=this, low=low, high=high))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        self.expect(TokenType.L_PAREN, "'(' after IN")
        self.no_subquery()
        values = [self.value()]
        while self._match(TokenType.COMMA):
            values.append(self.value())
        self.expect(TokenType.R_PAREN, "')'")
        return self.expression(exp.In(this=this, expressions=values))

    def _parse_case(self) -> exp.Expr:
        start = self._prev.start
        subject = None if self._match(TokenType.WHEN, advance=False) else self.value()
        ifs: list[exp.Expr] = []
        while self._match(TokenType.WHEN):
            condition = self.value()
            self.expect(TokenType.THEN, "THEN")
            ifs.append(exp.If(this=condition, true=self.value()))
        if not ifs:
            self.unexpected("WHEN")
        default = self.value() if self._match(TokenType.ELSE) else None
        self.expect(TokenType.END, "END of CASE")
        return self.with_span(exp.Case(this=subject, ifs=ifs, default=default), start)

    def _parse_function_call(
        self,
        functions: dict[str, Any] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        token = self._curr
        if not token:
            return None
        if token.token_type == TokenType.CASE:
            self._advance()
            return self._parse_case()
        if self._next.token_type != TokenType.L_PAREN or token.token_type not in self.FUNC_TOKENS:
            return None
        self._advance(2)
        name = token.text
        call: exp.Expr
        if name.upper() in ("CAST", "TRY_CAST"):
            call = self.cast_call(token)
        elif name.upper() == "EXTRACT":
            call = self.extract_call()
        else:
            call = exp.Anonymous(this=name, expressions=self.arguments())
        self.expect(TokenType.R_PAREN, "')'")
        return self.call_suffixes(self.with_span(call, token.start))

    def cast_call(self, token: Token) -> exp.Expr:
        if token.text.upper() == "TRY_CAST":
            self.refuse(
                "TRY_CAST is not available",
                self.span_of_token(token),
                "write CAST: a row whose cast fails goes to the rejects and the run goes on",
            )
        operand = self.value()
        self.expect(TokenType.ALIAS, "AS and a type")
        return exp.Cast(this=operand, to=exp.DataType(this=self.sql_type().value))

    def extract_call(self) -> exp.Expr:
        part = self._curr.text
        self._advance()
        self.expect(TokenType.FROM, "FROM, as in EXTRACT(HOUR FROM t)")
        return exp.Anonymous(this=part, expressions=[self.value()])

    def arguments(self) -> list[exp.Expr]:
        if self._match(TokenType.R_PAREN, advance=False):
            return []
        distinct = self._match(TokenType.DISTINCT)
        self.no_subquery()
        args = [self.value()]
        while self._match(TokenType.COMMA):
            args.append(self.value())
        return [exp.Distinct(expressions=args)] if distinct else args

    def call_suffixes(self, call: exp.Expr) -> exp.Expr:
        """WITHIN GROUP and FILTER; IGNORE NULLS is refused."""
        start = call.meta["start"]
        if self.take("WITHIN", "GROUP"):
            self.expect(TokenType.L_PAREN, "'(' after WITHIN GROUP")
            self.expect(TokenType.ORDER_BY, "ORDER BY")
            ordered = exp.Ordered(this=self.value(), desc=self._match(TokenType.DESC))
            self._match(TokenType.ASC)
            self.expect(TokenType.R_PAREN, "')'")
            call = self.with_span(exp.WithinGroup(this=call, expression=ordered), start)
        if self._match_pair(TokenType.FILTER, TokenType.L_PAREN):
            self.expect(TokenType.WHERE, "WHERE in FILTER (WHERE ...)")
            condition = self.value()
            self.expect(TokenType.R_PAREN, "')'")
            call = self.with_span(exp.Filter(this=call, expression=condition), start)
        if self._match_texts(("IGNORE", "RESPECT"), advance=False):
            self.refuse(
                "IGNORE NULLS is not available",
                self.span_of_token(self._curr),
                "write FILTER (WHERE x IS NOT NULL) after the aggregate",
            )
        return call
