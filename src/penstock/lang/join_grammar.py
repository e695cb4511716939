"""The grammar of FROM with several sides, after the first.

    FROM a [RANGE 2 MINUTES] AS x, b [ROWS 5000] y
    FROM a [RANGE 1 HOUR] x LEFT JOIN b [RANGE 1 HOUR] y ON x.id = y.id CROSS JOIN c [NOW]

Forms of SQL that are not here are refused by name.
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot.tokenizer_core import TokenType

from penstock.lang.create_grammar import CreateParser
from penstock.lang.query import JoinKind
from penstock.lang.syntax import FromItem, JoinItem

_OUTER = {
    TokenType.LEFT: JoinKind.LEFT,
    TokenType.RIGHT: JoinKind.RIGHT,
    TokenType.FULL: JoinKind.FULL,
}

_REFUSED = {
    TokenType.NATURAL: ("NATURAL JOIN", "write JOIN b [window] AS y ON x.id = y.id"),
    TokenType.SEMI: ("SEMI JOIN", "write JOIN ... ON ... and select columns of the other side"),
    TokenType.ANTI: ("ANTI JOIN", "write LEFT JOIN b [window] AS y ON ... WHERE y.id IS NULL"),
    TokenType.ASOF: ("ASOF JOIN", "write JOIN b [ROWS 1] AS y ON ... for the last row of the other stream"),
    TokenType.LATERAL: ("LATERAL", "a subquery in FROM cannot read the other sides; write the condition in ON"),
}


class JoinParser(CreateParser):
    """Declarations plus what stands in FROM beside the first."""

    @abstractmethod
    def from_item(self) -> FromItem:
        """A stream, a table or a subquery with its window and alias."""

    def joins(self) -> tuple[JoinItem, ...]:
        found: list[JoinItem] = []
        while True:
            self.refuse_other_joins()
            start = self._curr.start if self._curr else 0
            if self._match(TokenType.COMMA):
                span = self.span_since(start)
                self.refuse_other_joins()
                found.append(JoinItem(self.from_item(), JoinKind.INNER, None, span))
                continue
            kind, conditional = JoinKind.INNER, True
            if self._match_set(_OUTER):
                kind = _OUTER[self._prev.token_type]
                self.refuse_other_joins()
                self._match(TokenType.OUTER)
            elif self._match(TokenType.CROSS):
                conditional = False
            elif not self._match(TokenType.INNER) and not self._match(TokenType.JOIN, advance=False):
                return tuple(found)
            self.expect(TokenType.JOIN, "JOIN")
            found.append(self.joined(start, kind, conditional))

    def joined(self, start: int, kind: JoinKind, conditional: bool) -> JoinItem:
        """What follows the word JOIN."""
        span = self.span_since(start)
        self.refuse_other_joins()
        item = self.from_item()
        if self._match(TokenType.USING, advance=False):
            self.refuse("USING is not available", self.span_of_token(self._curr), "write ON x.id = y.id")
        if not conditional:
            if self._match(TokenType.ON, advance=False):
                self.refuse("CROSS JOIN has no condition", self.span_of_token(self._curr), "write JOIN ... ON ...")
            return JoinItem(item, kind, None, span)
        if not self._match(TokenType.ON):
            hint = "write JOIN b [window] AS y ON x.id = y.id, or CROSS JOIN for all pairs"
            self.refuse(f"{self.source.text[span[0] : span[1]].upper()} needs ON", span, hint)
        return JoinItem(item, kind, self.value(), span)

    def refuse_other_joins(self) -> None:
        refused = _REFUSED.get(self._curr.token_type) if self._curr else None
        if refused is not None:
            self.refuse(f"{refused[0]} is not available", self.span_of_token(self._curr), refused[1])
