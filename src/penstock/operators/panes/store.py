"""Pane rows on their way through the windows of a family: written once, read by the tail of each window.

    pane      |   12:00:01   |  12:00:02 |    12:00:03    | ...      ends, and the position of the first row
    rows      | a  b  c  d   | a  c      | a  b  d        | ...      slot, words, where the extra words are
    extras    |  ......      |           |      ...       |          a row's words that have no fixed number

Invariants:
1. Panes are appended in the order of their ends; one that has no rows is left out, and one that was closed early may
   come twice. `_panes` has (end, first row, first extra word) of each pane kept, and then what the next will have.
2. Rows and extra words before `release` are gone.
3. The cursors stand where some windows' tails are, not before the oldest row kept: the pool is managed by them.
   There are as many as windows, up to `MOST_CURSORS`.

An extra is stored as its length and its words, state by state; a row says where they begin, -1 where there are none.
Called by `panes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.panes import Extras
from penstock.aggregates.state import Argument
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.operators.panes.logged import packed
from penstock.operators.resources import Resources
from penstock.store.fifo import ColumnSpec, FifoStore

READ_AT_ONCE = 1 << 15
"""About how many rows the tails of all windows read together."""

MOST_CURSORS = 32

_END, _FIRST_ROW, _FIRST_EXTRA = range(3)


class TailRows(NamedTuple):
    """Rows read for several windows: the number of the window, the row's position, its group and its words; and for
    each state the extras, by row."""

    windows: Int64s
    positions: Int64s
    slots: Slots
    words: Words
    extras: list[Extras]


@component("PaneStore")
class PaneStore:
    """`has_extras`: saved rows have some; without, there is no store for them before the first."""

    def __init__(
        self, name: str, words: int, states: int, windows: int, resources: Resources, *, has_extras: bool
    ) -> None:
        self._width = words
        self._states = states
        self._dtype = np.dtype((np.void, 8 * words))
        columns = [
            ColumnSpec("slot", np.dtype(np.int32), False),
            ColumnSpec("extra", np.dtype(np.int64), False),
            ColumnSpec("words", self._dtype, False),
        ]
        self._rows = resources.fifo(name, columns)
        self._name, self._resources = name, resources
        self._extras = self._make_extras() if has_extras else None
        self._panes = np.zeros((16, 3), np.int64)
        self._begin = self._end = 0
        self._cursors = [self._rows.cursor() for _ in range(min(windows, MOST_CURSORS))]

    def _make_extras(self) -> FifoStore:
        return self._resources.fifo(f"{self._name}-extras", [ColumnSpec("word", np.dtype(np.uint64), False)])

    @property
    def has_extras(self) -> bool:
        return self._extras is not None

    @property
    def head(self) -> int:
        """The position of the next row."""
        return self._rows.head

    @property
    def nbytes(self) -> int:
        """What is held besides the stores."""
        return self._panes.nbytes

    def append(self, end: int, slots: Slots, words: Words, extras: Sequence[Extras]) -> None:
        """The rows of the pane that ends here."""
        places = np.full(len(slots), -1, np.int64)
        for row in sorted(set().union(*extras)):
            places[row] = self._append_extra([own.get(row) for own in extras])
        rows = np.ascontiguousarray(words).view(self._dtype).reshape(-1)
        self._rows.append([Argument(slots, None), Argument(places, None), Argument(rows, None)])
        if self._end + 1 == len(self._panes):
            self._make_room()
        self._panes[self._end, _END] = end
        self._end += 1
        self._panes[self._end, _FIRST_ROW] = self._rows.head
        self._panes[self._end, _FIRST_EXTRA] = 0 if self._extras is None else self._extras.head

    def _append_extra(self, parts: list[Words | None]) -> int:
        if self._extras is None:
            self._extras = self._make_extras()
        return self._extras.append([Argument(packed(parts), None)])

    def _make_room(self) -> None:
        kept = self._panes[self._begin : self._end + 1]
        panes = np.zeros((max(16, 2 * len(kept)), 3), np.int64)
        panes[: len(kept)] = kept
        self._panes, self._begin, self._end = panes, 0, len(kept) - 1

    def after(self, times: Int64s) -> Int64s:
        """The position of the first row of a pane that ends after each of these times."""
        ends = self._panes[self._begin : self._end, _END]
        found: Int64s = self._panes[self._begin + np.searchsorted(ends, times, "right"), _FIRST_ROW]
        return found

    def ends_of(self, positions: Int64s) -> Int64s:
        """Where the panes end that these rows are in."""
        panes = self._panes[self._begin : self._end]
        found: Int64s = panes[np.searchsorted(panes[:, _FIRST_ROW], positions, "right") - 1, _END]
        return found

    @property
    def last_end(self) -> int | None:
        """Where the last pane ends; None if none is kept."""
        return int(self._panes[self._end - 1, _END]) if self._end > self._begin else None

    def read(self, begins: Int64s, ends: Int64s) -> Iterator[TailRows]:
        """The rows [begins[i], ends[i]) of each window i, block by block, those of a window in order."""
        begins = begins.copy()
        while True:
            open_ = begins < ends
            if not open_.any():
                return
            first = int(np.argmin(np.where(open_, begins, self.head)))
            at = int(begins[first])
            cursor = self._cursors[first * len(self._cursors) // len(begins)]
            cursor.seek(at)
            view = cursor.view(self.head)
            upto = np.clip(ends, begins, at + view.count)
            upto = np.maximum(upto, begins)
            counts = upto - begins
            whole = np.cumsum(counts) <= max(READ_AT_ONCE, int(counts[: first + 1].sum()))
            counts[~whole] = 0
            windows = np.repeat(np.arange(len(begins)), counts)
            positions = np.arange(len(windows)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
            begins[whole] = upto[whole]
            places = positions - at
            slots, extras, words = (column.values[places] for column in view.columns)
            yield TailRows(
                windows, positions, slots, words.view(np.uint64).reshape(-1, self._width), self._extras_of(extras)
            )

    def _extras_of(self, places: Int64s) -> list[Extras]:
        found: list[Extras] = [{} for _ in range(self._states)]
        for row in np.flatnonzero(places >= 0).tolist():
            assert self._extras is not None, "a row names extra words"
            at = int(places[row])
            for own in found:
                size = int(_words(self._extras, at, 1)[0])
                if size:
                    own[row] = _words(self._extras, at + 1, size)
                at += 1 + size
        return found

    def release(self, position: int) -> None:
        """No window needs the rows before this position, where a pane begins."""
        for cursor in self._cursors:
            if cursor.position < position:
                cursor.seek(position)
        self._rows.release(position)
        begin = self._begin
        firsts = self._panes[begin : self._end + 1, _FIRST_ROW]
        self._begin = begin + int(np.searchsorted(firsts, position))
        if self._begin > begin and self._extras is not None:
            self._extras.release(int(self._panes[self._begin, _FIRST_EXTRA]))

    def snapshot(self) -> dict[str, Any]:
        return {"panes": self._panes[self._begin : self._end + 1]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The stores have been restored before."""
        self._panes = np.concatenate([snapshot["panes"], np.zeros((1, 3), np.int64)])
        self._begin, self._end = 0, len(snapshot["panes"]) - 1


def _words(store: FifoStore, at: int, count: int) -> Words:
    return np.concatenate([view.columns[0].values for view in store.scan(at, at + count)])
