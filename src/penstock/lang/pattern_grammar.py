"""The grammar of patterns, which stand in FROM:

    FROM PATTERN SEQ(A a, !B b, ONE C+ c, OR(D d, E e)) WHERE a.id = c.id AND ... WITHIN 1 MINUTE

`FROM pattern` alone is a stream of that name: the word begins a pattern only before SEQ, AND or OR and a parenthesis.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NoReturn

from penstock.lang.dialect import Kind
from penstock.lang.recognize_grammar import RecognizeParser
from penstock.lang.syntax import ElementSyntax, FromItem, Name, OperatorSyntax, PatternSyntax, QuerySyntax

_OPERATORS = frozenset({"SEQ", "AND", "OR"})

_ELEMENT = "an element, such as A a, !B b or C+ c"


class PatternParser(RecognizeParser):
    """Declarations plus patterns."""

    @abstractmethod
    def query(self) -> QuerySyntax: ...

    def is_pattern_ahead(self) -> bool:
        return self.at("PATTERN") and self.peek().word in _OPERATORS and self.peek(2).word == "("

    def refuse_beside_others(self) -> NoReturn:
        self.refuse(
            "a pattern stands alone in FROM",
            self.token.span,
            "put it into a subquery: FROM (SELECT ... FROM PATTERN ... WITHIN ...) [window], ...",
        )

    def pattern_item(self) -> FromItem:
        start = self.token.start
        item = FromItem(self.pattern(), None, None, self.span_since(start))
        if self.at(",", "JOIN"):
            self.refuse_beside_others()
        return item

    def pattern(self) -> PatternSyntax:
        start = self.token.start
        self.advance()
        root = self.operator()
        span = self.span_since(start)
        where = self.condition()
        if not self.take("WITHIN"):
            if self.token.kind is not Kind.END and not self.at(")", "UNION"):
                self.unexpected("WITHIN" if where is not None else "WHERE or WITHIN")
            self.refuse("a pattern needs WITHIN", span, "write WITHIN 1 MINUTE after it: older events are forgotten")
        within = self.duration("the time of WITHIN")
        if self.at("WHERE"):
            self.out_of_place("WHERE comes before WITHIN")
        if self.at("["):
            self.refuse(
                "a pattern has no window",
                self.token.span,
                "put it into a subquery: FROM (SELECT ... FROM PATTERN ... WITHIN ...) [window]",
            )
        return PatternSyntax(root, where, within, span)

    def operator(self) -> OperatorSyntax:
        start, kind = self.token.start, self.token.word
        self.advance()
        parts = self.enclosed(self.part, "'('")
        return OperatorSyntax(kind, parts, self.span_since(start))

    def is_operator_ahead(self) -> bool:
        return self.token.word in _OPERATORS and self.peek().word == "("

    def part(self) -> ElementSyntax | OperatorSyntax:
        start = self.token.start
        if self.is_operator_ahead():
            return self.operator()
        one = self.policy()
        absent = self.take("NOT")
        if absent and one is None:
            one = self.policy()
        if absent and self.is_operator_ahead():
            self.refuse(
                f"{self.token.word} cannot be negated",
                self.token.span,
                "negate single elements, such as SEQ(A a, !B b, !C c, D d)",
            )
        source: Name | QuerySyntax
        if self.take("("):
            source = self.query()
            self.expect(")")
        else:
            source = self.name(_ELEMENT)
        repeated = self.take("+")
        self.take("AS")
        alias = source if isinstance(source, Name) and self.at(",", ")") else self.name("a name for the element")
        span = self.span_since(start)
        if absent and repeated:
            self.refuse("an element that must not come cannot be repeated", span, f"write !{alias.text} without +")
        if absent and one:
            self.refuse("an element that must not come serves no match", span, "leave ONE out")
        return ElementSyntax(source, alias, absent, repeated, bool(one), span)

    def policy(self) -> bool | None:
        """ONE (True) or ALL (False); None where neither is written. A stream named one is quoted."""
        if self.take("ALL"):
            return False
        named = self.peek().is_name or self.peek().word in ("(", "NOT")
        return True if named and self.take("ONE") else None
