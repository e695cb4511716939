"""Every error a user can meet, each saying what was wrong and what to do instead.

Nothing else leaves the library on bad input: a hostile query text, a broken file or a full budget ends in
one of these, never in an error of a library underneath.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.masking import masked


class PenstockError(Exception):
    """The base of all errors raised on purpose."""


@dataclass(frozen=True)
class Place:
    """A stretch of the query text; `line` and `column` count from 1."""

    line: int
    column: int
    length: int = 1


class QueryError(PenstockError):
    """The query text cannot be run; raised before the first event.

    >>> print(QueryError("unknown column 'pric'", "SELECT pric FROM s", Place(1, 8, 4), "did you mean 'price'?"))
    unknown column 'pric'
      at line 1, column 8:
      | SELECT pric FROM s
      |        ^^^^
      hint: did you mean 'price'?
    """

    def __init__(self, message: str, text: str = "", place: Place | None = None, hint: str | None = None) -> None:
        self.message = message
        self.text = text
        self.place = place
        self.hint = hint
        super().__init__(self._render())

    def _render(self) -> str:
        parts = [self.message]
        if self.place is not None and self.text:
            lines = masked(self.text).split("\n")
            shown = lines[self.place.line - 1] if self.place.line <= len(lines) else ""
            room = max(1, len(shown) - self.place.column + 1)
            caret = " " * (self.place.column - 1) + "^" * max(1, min(self.place.length, room))
            parts.append(f"  at line {self.place.line}, column {self.place.column}:")
            parts.append(f"  | {shown}")
            parts.append(f"  | {caret}")
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)


class InputError(PenstockError):
    """A source cannot be read as declared: missing file, wrong schema, unreadable directory."""


class BudgetError(PenstockError):
    """The memory budget cannot hold what must be in memory; the message names the least that works."""


class StorageError(PenstockError):
    """A block or a file of state cannot be read or written: corrupt, truncated, disk full."""


class CheckpointError(PenstockError):
    """A checkpoint does not fit: another app's, a newer version's, or in use by another process."""
