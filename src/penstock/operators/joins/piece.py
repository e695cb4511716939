"""A run of events as the queries of a join see it, and what such a query is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.arrays import Int64s
from penstock.expressions.batch import Batch
from penstock.operators.chunk import CHUNK_ROWS
from penstock.operators.joins.search import Found, Windows
from penstock.operators.outgoing import Outgoing
from penstock.plan.nodes import JoinNode

FIRST_PIECE = 256
_MATCHES_AT_ONCE = 1 << 19
"""How many rows of the join a piece should make at most."""

_BYTES_FOR_A_MATCH = 1024
"""A piece should make one row for so many bytes of the memory: together they take about an eighth of it."""


def matches_at_once(memory: int) -> int:
    """How many rows of the join a piece should make in so much memory."""
    return max(FIRST_PIECE, min(_MATCHES_AT_ONCE, memory // _BYTES_FOR_A_MATCH))


def next_size(size: int, events: int, matches: int, at_once: int) -> int:
    """The size of the piece behind one of `size`, in which so many events had so many matches: pieces are as large as
    the matches of their events allow."""
    fitting = at_once * max(events, 1) // max(matches, 1)
    return max(1, min(fitting, 4 * size, CHUNK_ROWS))


@dataclass(slots=True)
class Piece:
    """Events in order. `heads[side]` is how many rows a side has after each event; `own[side]` the position there of
    the event itself, if it has entered and takes part, else -1. `before[side]` is the head before the first event."""

    times: Int64s
    before: list[int]
    heads: list[Int64s]
    own: list[Int64s]
    watermark: int


class View(Protocol):
    """A query's way to look at the rows of the sides; its results go to `outgoing`."""

    node: JoinNode
    outgoing: Outgoing

    def see(self, piece: Piece) -> int:
        """Makes the results of a piece; returns how many rows of the join were looked at for them."""

    @property
    def needed(self) -> Sequence[int]:
        """For each side the first row that is still needed."""

    def last_boundary(self, last_time: int | None) -> int | None:
        """The watermark at which a bounded run ends; None for joins per event."""

    starts: list[tuple[Int64s, Int64s]]

    @property
    def common(self) -> tuple[Any, ...] | None:
        """Equal for views that differ in the sizes of their windows alone; None for those that work alone."""

    lag: int

    def look(self, piece: Piece) -> Windows:
        """The windows at each event of a piece."""

    def search_for(self, views: Sequence[Any], piece: Piece, windows: Windows) -> tuple[Found, Batch, int]:
        """What the events of a piece find in these windows, its columns for all the views, and the number of rows."""

    def show(self, found: Found, rows: Batch, piece: Piece) -> None:
        """Makes the results of a piece, of what was found in larger windows."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...
