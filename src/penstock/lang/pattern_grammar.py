"""The grammar of patterns, which stand in FROM:

    FROM PATTERN SEQ(A a, !B b, ONE C+ c, OR(D d, E e)) WHERE a.id = c.id AND ... WITHIN 1 MINUTE

`FROM pattern` alone is a stream of that name: the word begins a pattern only before SEQ, AND or OR and a parenthesis.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from penstock.lang.recognize_grammar import RecognizeParser
from penstock.lang.syntax import ElementSyntax, FromItem, Name, OperatorSyntax, PatternSyntax, QuerySyntax

_OPERATORS = frozenset({"SEQ", "AND", "OR"})

_ELEMENT = "an element, such as A a, !B b or C+ c"


class PatternParser(RecognizeParser):
    """Declarations plus patterns."""

    @abstractmethod
    def query(self) -> QuerySyntax: ...

    def is_pattern_ahead(self) -> bool:
        word = self._curr
        if not word or word.token_type == TokenType.IDENTIFIER or word.text.upper() != "PATTERN":
            return False
        ahead = self._tokens[self._index + 1 : self._index + 3]
        return len(ahead) == 2 and ahead[0].text.upper() in _OPERATORS and ahead[1].token_type == TokenType.L_PAREN

    def refuse_beside_others(self, token: Token) -> NoReturn:
        self.refuse(
            "a pattern stands alone in FROM",
            self.span_of_token(token),
            "put it into a subquery: FROM (SELECT ... FROM PATTERN ... WITHIN ...) [window], ...",
        )

    def pattern_item(self) -> FromItem:
        start = self._curr.start
        item = FromItem(self.pattern(), None, None, self.span_since(start))
        if self._match_set((TokenType.COMMA, TokenType.JOIN), advance=False):
            self.refuse_beside_others(self._curr)
        return item

    def pattern(self) -> PatternSyntax:
        start = self._curr.start
        self._advance()
        root = self.operator()
        span = self.span_since(start)
        where = self.value() if self._match(TokenType.WHERE) else None
        if not self.take("WITHIN"):
            if self._curr and not self._match_set((TokenType.R_PAREN, TokenType.UNION), advance=False):
                self.unexpected("WITHIN" if where is not None else "WHERE or WITHIN")
            self.refuse("a pattern needs WITHIN", span, "write WITHIN 1 MINUTE after it: older events are forgotten")
        within = self.duration("the time of WITHIN")
        if self._match(TokenType.WHERE, advance=False):
            self.out_of_place("WHERE comes before WITHIN")
        if self._match(TokenType.L_BRACKET, advance=False):
            self.refuse(
                "a pattern has no window",
                self.span_of_token(self._curr),
                "put it into a subquery: FROM (SELECT ... FROM PATTERN ... WITHIN ...) [window]",
            )
        return PatternSyntax(root, where, within, span)

    def operator(self) -> OperatorSyntax:
        start, kind = self._curr.start, self._curr.text.upper()
        self._advance(2)
        parts = [self.part()]
        while self._match(TokenType.COMMA):
            parts.append(self.part())
        self.expect(TokenType.R_PAREN, "',' or ')'")
        return OperatorSyntax(kind, tuple(parts), self.span_since(start))

    def part(self) -> ElementSyntax | OperatorSyntax:
        if not self._curr:
            self.unexpected(_ELEMENT)
        start = self._curr.start
        if self._curr.text.upper() in _OPERATORS and self._next.token_type == TokenType.L_PAREN:
            return self.operator()
        one = self.policy()
        absent = self._match(TokenType.NOT)
        if absent and one is None:
            one = self.policy()
        if absent and self._curr.text.upper() in _OPERATORS and self._next.token_type == TokenType.L_PAREN:
            self.refuse(
                f"{self._curr.text.upper()} cannot be negated",
                self.span_of_token(self._curr),
                "negate single elements, such as SEQ(A a, !B b, !C c, D d)",
            )
        source: Name | QuerySyntax
        if self._match(TokenType.L_PAREN):
            source = self.query()
            self.expect(TokenType.R_PAREN, "')'")
        else:
            source = self.name(_ELEMENT)
        repeated = self._match(TokenType.PLUS)
        self._match(TokenType.ALIAS)
        if isinstance(source, Name) and self._match_set((TokenType.COMMA, TokenType.R_PAREN), advance=False):
            alias = source
        else:
            alias = self.name("a name for the element")
        span = self.span_since(start)
        if absent and repeated:
            self.refuse("an element that must not come cannot be repeated", span, f"write !{alias.text} without +")
        if absent and one:
            self.refuse("an element that must not come serves no match", span, "leave ONE out")
        return ElementSyntax(source, alias, absent, repeated, bool(one), span)

    def policy(self) -> bool | None:
        """ONE (True) or ALL (False); None where neither is written. A stream named one is quoted."""
        if self._match(TokenType.ALL):
            return False
        ahead = self._next.token_type
        named = ahead in (TokenType.L_PAREN, TokenType.NOT) or ahead in self.ID_VAR_TOKENS
        if self._curr and self._curr.token_type != TokenType.IDENTIFIER and named and self.take("ONE"):
            return True
        return None
