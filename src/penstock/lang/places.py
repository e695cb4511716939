"""Where in the query text something stands, and refusals that point at it.

Every other file of this package raises its errors through `QueryText.refusal`, so that each has line, column and
caret. A span is a pair of offsets into the text, the end not included.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from penstock.errors import Place, QueryError

Span = tuple[int, int]

LONGEST_GUESSED_NAME = 64
"""Longer names get no suggestion: comparing them costs more than a suggestion is worth."""


class QueryText:
    """The text of a program with the means to point into it.

    >>> print(QueryText("SELECT pric FROM s").refusal("unknown column 'pric'", (7, 11)))
    unknown column 'pric'
      at line 1, column 8:
      | SELECT pric FROM s
      |        ^^^^
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def place(self, span: Span) -> Place:
        start = min(max(span[0], 0), len(self.text))
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        end = min(span[1], line_end if line_end >= 0 else len(self.text))
        return Place(self.text.count("\n", 0, start) + 1, start - line_start + 1, max(1, end - start))

    def refusal(self, message: str, span: Span | None, hint: str | None = None) -> QueryError:
        return QueryError(message, self.text, self.place(span) if span else None, hint)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the closest of the known names, or None.

    >>> did_you_mean("pric", ["price", "volume"])
    "did you mean 'price'?"
    """
    if len(name) > LONGEST_GUESSED_NAME:
        return None
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f"did you mean '{by_lower[close[0]]}'?" if close else None
