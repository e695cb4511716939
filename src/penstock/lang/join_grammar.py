"""The grammar of FROM with several sides, after the first.

    FROM a [RANGE 2 MINUTES] AS x, b [ROWS 5000] y
    FROM a [RANGE 1 HOUR] x LEFT JOIN b [RANGE 1 HOUR] y ON x.id = y.id CROSS JOIN c [NOW]

Forms of SQL that are not here are refused by name.
"""

from __future__ import annotations

from abc import abstractmethod

from penstock.lang.create_grammar import CreateParser
from penstock.lang.query import JoinKind
from penstock.lang.syntax import FromItem, JoinItem

_OUTER = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL}

_REFUSED = {
    "NATURAL": ("NATURAL JOIN", "write JOIN b [window] AS y ON x.id = y.id"),
    "SEMI": ("SEMI JOIN", "write JOIN ... ON ... and select columns of the other side"),
    "ANTI": ("ANTI JOIN", "write LEFT JOIN b [window] AS y ON ... WHERE y.id IS NULL"),
    "ASOF": ("ASOF JOIN", "write JOIN b [ROWS 1] AS y ON ... for the last row of the other stream"),
    "LATERAL": ("LATERAL", "a subquery in FROM cannot read the other sides; write the condition in ON"),
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
            start = self.token.start
            if self.take(","):
                span = self.span_since(start)
                self.refuse_other_joins()
                found.append(JoinItem(self.from_item(), JoinKind.INNER, None, span))
                continue
            kind, conditional = JoinKind.INNER, True
            if (outer := self.take_one(_OUTER)) is not None:
                kind = _OUTER[outer]
                self.refuse_other_joins()
                self.take("OUTER")
            elif self.take("CROSS"):
                conditional = False
            elif not self.take("INNER") and not self.at("JOIN"):
                return tuple(found)
            self.expect("JOIN")
            found.append(self.joined(start, kind, conditional))

    def joined(self, start: int, kind: JoinKind, conditional: bool) -> JoinItem:
        """What follows the word JOIN."""
        span = self.span_since(start)
        self.refuse_other_joins()
        item = self.from_item()
        if self.at("USING"):
            self.refuse("USING is not available", self.token.span, "write ON x.id = y.id")
        if not conditional:
            if self.at("ON"):
                self.refuse("CROSS JOIN has no condition", self.token.span, "write JOIN ... ON ...")
            return JoinItem(item, kind, None, span)
        if not self.take("ON"):
            hint = "write JOIN b [window] AS y ON x.id = y.id, or CROSS JOIN for all pairs"
            self.refuse(f"{self.source.text[span[0] : span[1]].upper()} needs ON", span, hint)
        return JoinItem(item, kind, self.value(), span)

    def refuse_other_joins(self) -> None:
        refused = _REFUSED.get(self.token.word)
        if refused is not None:
            self.refuse(f"{refused[0]} is not available", self.token.span, refused[1])
