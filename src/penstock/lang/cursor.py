"""A place in the tokens of a statement: what the grammar looks at, takes, expects and refuses."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NoReturn, TypeVar

from penstock.lang.dialect import Kind, Token
from penstock.lang.places import QueryText, Span
from penstock.lang.syntax import Name
from penstock.masking import masked

T = TypeVar("T")

_LOOKED_AHEAD = 5
"""Tokens that a rule of the grammar looks ahead or passes at once, at most."""


class Cursor:
    """`token` is the next one to read, `last` the one read before it. Behind the last token of a statement stands one
    of kind END, which is never taken."""

    def __init__(self, source: QueryText) -> None:
        self.source = source

    def begin(self, tokens: list[Token]) -> None:
        """Stands before the first token of a statement."""
        end = tokens[-1].end
        self._tokens = tokens + _LOOKED_AHEAD * [Token(Kind.END, "", "", end, end + 1)]
        self._here = 0
        self.token = self._tokens[0]

    @property
    def last(self) -> Token:
        return self._tokens[self._here - 1]

    def peek(self, ahead: int = 1) -> Token:
        return self._tokens[self._here + ahead]

    def advance(self, by: int = 1) -> Token:
        """Goes on; the last token passed."""
        self._here = here = self._here + by
        self.token = self._tokens[here]
        return self._tokens[here - 1]

    def at(self, *words: str) -> bool:
        """Whether one of the words comes next."""
        return self.token.word in words

    def take(self, word: str, *more: str) -> bool:
        """Takes the words if they come next, one after the other."""
        if self.token.word != word:
            return False
        if more and any(self.peek(i).word != later for i, later in enumerate(more, 1)):
            return False
        self.advance(1 + len(more))
        return True

    def take_one(self, words: Container[str]) -> str | None:
        """Takes the next token if it is one of the words."""
        return self.advance().word if self.token.word in words else None

    def expect(self, word: str, shown: str | None = None, hint: str | None = None) -> Token:
        """Takes the word, or refuses what stands in its place; `shown` says what is wanted if not just the word."""
        if self.token.word != word:
            self.unexpected(shown or (word if word.isalpha() else f"'{word}'"), hint)
        return self.advance()

    def expect_kind(self, kind: Kind, wanted: str) -> Token:
        if self.token.kind is not kind:
            self.unexpected(wanted)
        return self.advance()

    def listed(self, read: Callable[[], T], another: Callable[[], bool] | None = None) -> tuple[T, ...]:
        """One or more, with commas between them; `another` takes a comma only where the list goes on behind it."""
        found = [read()]
        while another() if another else self.take(","):
            found.append(read())
        return tuple(found)

    def enclosed(self, read: Callable[[], T], wanted: str) -> tuple[T, ...]:
        """One or more in parentheses, with commas between them; `wanted` says what begins here."""
        self.expect("(", wanted)
        found = self.listed(read)
        self.expect(")", "',' or ')'")
        return found

    def string(self, wanted: str) -> str:
        return self.expect_kind(Kind.STRING, wanted).text

    def name(self, wanted: str) -> Name:
        """An identifier, quoted or not; words that SQL does not need may be names too."""
        token = self.token
        if not token.is_name:
            a_word = token.text.isalpha() and token.kind is not Kind.STRING
            self.unexpected(wanted, f"quote a name that is a word of SQL: `{token.text}`" if a_word else None)
        self.advance()
        return Name(token.text, token.span)

    def names(self, wanted: str) -> tuple[Name, ...]:
        return self.listed(lambda: self.name(wanted))

    def alias(self, wanted: str, *but: str) -> Name | None:
        """A name after AS. Without AS only what has no meaning in SQL is one, and is none of the words `but`."""
        if self.take("AS"):
            return self.name(f"{wanted} after AS")
        plain = self.token.kind in (Kind.NAME, Kind.QUOTED) and self.token.word not in but
        return self.name(wanted) if plain else None

    def span_since(self, start: int) -> Span:
        return start, self.last.end

    def refuse(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise self.source.refusal(message, span, hint)

    def unexpected(self, wanted: str, hint: str | None = None) -> NoReturn:
        """Refuses the next token where `wanted` should stand."""
        span = self.token.span
        if self.token.kind is Kind.END:
            self.refuse(f"expected {wanted}, but the statement ends here", span, hint)
        shown = masked(self.source.text)[span[0] : min(span[1], span[0] + 40)]
        self.refuse(f"expected {wanted}, found {shown!r}", span, hint)

    def out_of_place(self, hint: str) -> NoReturn:
        """Refuses the next token where nothing like it may stand."""
        self.refuse(f"{self.token.text!r} cannot stand here", self.token.span, hint)
