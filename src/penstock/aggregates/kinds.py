"""The kinds of aggregate states: one line for each, which says what the planner and the operators ask of it.

A function names its kind (`signatures.SIGNATURES`); functions of one kind over the same arguments share one state.
`factory` makes the states. No arithmetic here, so that the language and the planner may import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from penstock.types import SqlType

_GROWING_BYTES = 64
"""What the formulas of cost take for a group of a state that grows with its rows."""


class Partial(Enum):
    """What the content of a group looks like on its way to another state (`aggregates.partials`)."""

    NUMBER = "an integer"
    VALUE = "a value of the type of the first argument"
    PACKED = "words"
    ENTRY = "the row that answers, which must come before the rows that follow it"


def _never(types: tuple[SqlType, ...]) -> bool:
    return False


def _always(types: tuple[SqlType, ...]) -> bool:
    return True


def _of_integers(types: tuple[SqlType, ...]) -> bool:
    return types[0].is_integer


@dataclass(frozen=True)
class Kind:
    """One kind of state. `name` is part of the fingerprints of saved state."""

    name: str
    group_bytes: int | None = None
    """Bytes of a group; None where they grow with the rows of the group."""
    pane_bytes: int | None = None
    """Bytes of a group in a pane row; None where windows with this state cannot be made of panes."""
    partial: Partial | None = None
    """What a group hands on where no row leaves it; None where its rows are needed."""
    is_paged: bool = False
    """The state pages to a device of its own."""
    pages_values: bool = False
    """The values it knows go to a device of its own where memory is short, unless it keeps the order of their rows."""
    needs_positions: bool = False
    """The state tells rows apart by their positions; a state that does not is given none."""
    is_order_free: bool = False
    """Answers do not depend on the order of rows with equal times."""
    counts_values: bool = False
    """The state knows how many values it holds, so it answers COUNT as well."""
    answers_newest: bool = False
    """Right after a row has entered, the answer is the first argument of that row."""
    can_fail: Callable[[tuple[SqlType, ...]], bool] = _never
    """Whether an answer over arguments of these types may be an error instead of a value."""
    row_bytes: int | None = None
    """More bytes than a row ever takes in a state that grows; None where that is not known."""

    @property
    def is_mergeable(self) -> bool:
        """Whether parts of a window may be computed in several places and merged in any order."""
        return self.partial is not None and self.partial is not Partial.ENTRY

    @property
    def grows(self) -> bool:
        """Whether a group takes more memory for more rows."""
        return self.group_bytes is None

    @property
    def bytes_in_formulas(self) -> int:
        return _GROWING_BYTES if self.group_bytes is None else self.group_bytes


COUNT = Kind("COUNT", 8, 8, Partial.NUMBER, is_order_free=True)
SUM = Kind("SUM", 48, 32, Partial.PACKED, is_order_free=True, counts_values=True, can_fail=_of_integers)
MOMENTS = Kind("MOMENTS", 144, 96, Partial.PACKED, is_order_free=True)
COMOMENTS = Kind("COMOMENTS", 320, 216, Partial.PACKED, is_order_free=True)
MIN = Kind("MIN", None, 24, Partial.VALUE, is_paged=True, needs_positions=True, is_order_free=True)
MAX = Kind("MAX", None, 24, Partial.VALUE, is_paged=True, needs_positions=True, is_order_free=True)
FIRST = Kind("FIRST", None, 24, Partial.ENTRY, is_paged=True, needs_positions=True)
LAST = Kind("LAST", None, 24, Partial.ENTRY, is_paged=True, needs_positions=True, answers_newest=True)
ARG_MIN = Kind("ARG_MIN", None, 24, Partial.ENTRY, is_paged=True, needs_positions=True)
ARG_MAX = Kind("ARG_MAX", None, 24, Partial.ENTRY, is_paged=True, needs_positions=True)
ORDER = Kind("ORDER", pages_values=True, is_order_free=True, row_bytes=1792)
DISTINCT = Kind("DISTINCT", pages_values=True, needs_positions=True, is_order_free=True)
USER = Kind("USER", needs_positions=True, can_fail=_always)

_ALL = (COUNT, SUM, MOMENTS, COMOMENTS, MIN, MAX, FIRST, LAST, ARG_MIN, ARG_MAX, ORDER, DISTINCT, USER)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
