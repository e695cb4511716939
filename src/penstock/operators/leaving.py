"""The rows that leave a sliding window, read from its store in the order in which they entered.

    store    |--- released ---|------ in the window ------|
             0                cursor                      head

Windows over one store that are alike stand at the same row and lose the same rows. The first of them reads these rows
with the columns of all, and the others take them over (`CommonRows`).

Invariants:
1. Between calls the cursor stands at the oldest row of the window; everything before it has left.
2. Nothing leaves before `_oldest_leaves_at`, a time or a position like the steps' `leave_before`: most calls end there.
3. Common rows are copies: the blocks that they come from may be gone before the last window takes them.

Why: docs/decisions/rows-leave-together.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Int64s
from penstock.jit import kernel
from penstock.operators.chunk import CHUNK_ROWS
from penstock.operators.reorder import START
from penstock.store.blocks import Frame
from penstock.store.fifo import FifoStore, View
from penstock.windows.steps import Steps

LEAVING_AT_ONCE = 2 * CHUNK_ROWS
"""About how many leaving rows are brought together; a window that empties at once takes several turns."""


@kernel
def _left_by_time(times: Int64s, before: Int64s, used_up: bool) -> Int64s:
    """How many of the rows have left by each step; both run upwards. When more rows follow, the answer ends with the
    first step by which all of these have left."""
    left = np.empty(len(before), np.int64)
    at = 0
    for k in range(len(before)):
        while at < len(times) and times[at] < before[k]:
            at += 1
        left[k] = at
        if used_up and at == len(times):
            return left[: k + 1]
    return left


class Leaving(NamedTuple):
    """Rows that leave together: how many have left by each step, where the window starts at each step, and whether
    more rows leave during the last of these steps. Without rows there are no columns."""

    first: int
    columns: tuple[Argument, ...]
    left: Int64s
    starts: Int64s
    more: bool


class ReadRows(NamedTuple):
    """Rows that leave: from a position on, all of `before` (a time or a position) or, if there are `more`, a part.
    `columns` are by their places. `leaves_at` is when the next one may leave."""

    first: int
    before: int
    columns: dict[int, Argument]
    more: bool
    leaves_at: int
    end: int


class CommonRows:
    """What the tails of windows that are alike have read together, until the rows that entered have been played."""

    def __init__(self) -> None:
        self.tails: list[WindowTail] = []
        self.read: ReadRows | None = None


class WindowTail:
    """`columns` are the places of those columns in the store that are shown, the time first. `passed` is called with
    the position when the cursor has left a block behind. `common` is that of all tails of the same window."""

    def __init__(
        self,
        store: FifoStore,
        columns: tuple[int, ...],
        passed: Callable[[int], None],
        common: CommonRows,
        *,
        by_position: bool,
    ) -> None:
        self._store = store
        self._columns = columns
        self._passed = passed
        self._common = common
        self._by_position = by_position
        self.seek(store.head)
        common.tails.append(self)

    def close(self) -> None:
        self._common.tails.remove(self)

    def seek(self, position: int) -> None:
        self._cursor = self._store.cursor(position, self._columns)
        self._oldest_leaves_at = START

    @property
    def position(self) -> int:
        return self._cursor.position

    @property
    def columns(self) -> tuple[int, ...]:
        """The places of the columns that are shown, the time first."""
        return self._columns

    def block(self) -> tuple[Frame, int, int, bool]:
        """The block that the cursor is in, the position of its first row, the cursor's row in it, and whether it is
        the last block."""
        frame, first = self._cursor.block()
        return frame, first, self._cursor.position - first, first + frame.count == self._store.head

    def stands_in(self, block: Frame, position: int) -> bool:
        """Whether the cursor is at this position, in this block, and that in memory."""
        return self._cursor.position == position and self._cursor.is_in(block)

    def pass_rows(self, count: int) -> None:
        """Rows of the cursor's block have left."""
        if count and self._cursor.advance(count):
            self._passed(self._cursor.position)

    @property
    def oldest(self) -> int:
        """A time that no row in a window by time is older than, as far as is known."""
        return self._oldest_leaves_at

    def leaving(self, steps: Steps, at: int) -> Leaving:
        """The rows that leave during the steps from `at` on; the cursor moves past them."""
        before = steps.leave_before[at:]
        first, columns, more = self._gone(int(before[-1]))
        if not columns:
            starts = steps.window_start[at:]
            if self._by_position and self._cursor.position < self._store.head:
                starts = np.full(len(before), self._oldest_time(), np.int64)
            return Leaving(first, (), np.zeros(len(before), np.int64), starts, False)
        times = columns[0].values
        if self._by_position:
            left = np.clip(before - first, 0, len(times))
            if more:
                left = left[: int(np.searchsorted(left, len(times))) + 1]
            oldest = np.append(times, self._oldest_time() if self._cursor.position < self._store.head else times[-1])
            return Leaving(first, columns, left, oldest[left], more)
        left = _left_by_time(times, before, more)
        return Leaving(first, columns, left, steps.window_start[at : at + len(left)], more)

    def _gone(self, before: int) -> tuple[int, tuple[Argument, ...], bool]:
        """The oldest rows, up to a time or a position: the position of the first, their columns, and whether there are
        more of them than at once. The cursor moves past them."""
        first, common = self._cursor.position, self._common
        if before <= self._oldest_leaves_at:
            return first, (), False
        read = common.read
        if read is None or read.first != first or read.before != before:
            alike = [tail for tail in common.tails if tail.position == first] if len(common.tails) > 1 else ()
            if len(alike) <= 1:
                views, more = self._read(before)
                columns = views[0].columns if len(views) == 1 else _joined(views) if views else ()
                return first, columns, more
            read = common.read = self._read_for(alike, before)
        self._oldest_leaves_at = read.leaves_at
        if read.end > first:
            self._cursor.seek(read.end)
            self._passed(read.end)
        return first, tuple([read.columns[place] for place in self._columns]) if read.columns else (), read.more

    def _read_for(self, tails: Sequence[WindowTail], before: int) -> ReadRows:
        """Reads for all of these tails, of which this is one."""
        first, own = self._cursor.position, self._cursor
        places = list(dict.fromkeys([*self._columns, *(place for tail in tails for place in tail.columns)]))
        self._cursor = self._store.cursor(first, places)
        try:
            views, more = self._read(before)
            end = self._cursor.position
        finally:
            self._cursor = own
        columns = dict(zip(places, _joined(views), strict=True)) if views else {}
        return ReadRows(first, before, columns, more, self._oldest_leaves_at, end)

    def _read(self, before: int) -> tuple[list[View], bool]:
        """Views of the oldest rows, up to a time or a position, and whether there are more of them than at once."""
        views: list[View] = []
        rows = 0
        while self._cursor.position < self._store.head:
            view = self._cursor.view(self._store.head)
            if self._by_position:
                count = min(max(before - view.first, 0), view.count)
            else:
                times = view.columns[0].values
                count = view.count if times[-1] < before else int(np.searchsorted(times, before))
            if count and rows >= LEAVING_AT_ONCE:
                return views, True
            if self._by_position:
                self._oldest_leaves_at = view.first + count
            else:
                self._oldest_leaves_at = int(times[count]) if count < view.count else before - 1
            if count == 0:
                break
            views.append(view if count == view.count else view.head(count))
            rows += count
            self._cursor.advance(count)
            if count < view.count:
                break
            self._passed(self._cursor.position)
        return views, False

    def _oldest_time(self) -> int:
        return int(self._cursor.view(self._store.head).columns[0].values[0])


def _joined(views: list[View]) -> tuple[Argument, ...]:
    columns = []
    for parts in zip(*(view.columns for view in views), strict=True):
        valid = None
        if any(p.valid is not None for p in parts):
            valid = np.concatenate([np.ones(len(p.values), np.bool_) if p.valid is None else p.valid for p in parts])
        columns.append(Argument(np.concatenate([p.values for p in parts]), valid))
    return tuple(columns)
