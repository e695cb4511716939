"""Which rows of one side of a join are in its window: all that differs between RANGE, ROWS and other windows.

A side's rows are numbered from 0 in the order in which they come. At each evaluation a window holds the rows from its
tail, inclusive, to the side's head, exclusive. An evaluation at boundary b is one at the time b - 1: the times in
[b - r, b) are those in (b - 1 - r, b - 1].

Invariant: tails never fall, neither within a call nor from one call to the next.

Why: docs/decisions/joins-by-position.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, assert_never

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.joins.rate_sizing import RateSizer
from penstock.windows.spec import Range, RateSized, Rows, RowsOf, Session, Since, WindowSpec

NOTHING = 1 << 62
"""Where an empty window that counts rows begins."""


class SideRows(NamedTuple):
    """The times of a side's rows from position `first` on: all that are in the window, and those of this run."""

    first: int
    times: Int64s


class SideWindow(ABC):
    """The window of one side. `tails` is called once for each run of evaluations, in order."""

    sizer: RateSizer | None = None
    """What says how many rows it holds, if that changes."""

    def is_steady(self, tail: int, head: int) -> bool:
        """Whether rows leave it only when another row comes."""
        return False

    @abstractmethod
    def tails(self, times: Int64s, heads: Int64s, rows: SideRows) -> Int64s:
        """The window's tail at each evaluation; `times` are those of the evaluations, `heads` how many rows this side
        has by then. Both rise."""

    def starts(self, ends: Int64s, tails: Int64s, heads: Int64s, rows: SideRows) -> Int64s:
        """Where the window begins at each evaluation, whose window_end is given: the time of its oldest row, and
        `NOTHING` where there is none."""
        found = np.full(len(ends), NOTHING, np.int64)
        held = tails < heads
        found[held] = rows.times[tails[held] - rows.first]
        return found

    def snapshot(self) -> dict[str, Any]:
        """What it saves besides the rows' times, if anything."""
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        assert not snapshot, "a window with state of its own takes it back itself"


class RangeWindow(SideWindow):
    """The rows of the last `micros` microseconds.

    >>> import numpy as np
    >>> rows = SideRows(0, np.array([1, 4, 9]))
    >>> RangeWindow(5).tails(np.array([1, 4, 8, 9]), np.array([1, 2, 2, 3]), rows).tolist()
    [0, 0, 1, 2]
    """

    def __init__(self, micros: int, *, now: bool = False) -> None:
        self._micros = micros
        self._length = 0 if now else micros

    def is_steady(self, tail: int, head: int) -> bool:
        return tail == head

    def starts(self, ends: Int64s, tails: Int64s, heads: Int64s, rows: SideRows) -> Int64s:
        return ends - self._length

    def tails(self, times: Int64s, heads: Int64s, rows: SideRows) -> Int64s:
        tails: Int64s = rows.first + np.searchsorted(rows.times, times - self._micros, side="right")
        return np.minimum(tails, heads)


class RowsWindow(SideWindow):
    """The last `count` rows.

    >>> import numpy as np
    >>> RowsWindow(2).tails(np.array([1, 4, 8]), np.array([1, 2, 3]), SideRows(0, np.array([1, 4, 8]))).tolist()
    [0, 0, 1]
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def is_steady(self, tail: int, head: int) -> bool:
        return True

    def tails(self, times: Int64s, heads: Int64s, rows: SideRows) -> Int64s:
        return np.maximum(heads - self._count, 0)


class RateSizedWindow(SideWindow):
    """As many rows as come in a time at the present rate."""

    sizer: RateSizer

    def __init__(self, spec: RateSized) -> None:
        self.sizer = RateSizer(spec)

    def tails(self, times: Int64s, heads: Int64s, rows: SideRows) -> Int64s:
        return self.sizer.tails(times, heads, rows.first, rows.times)

    def snapshot(self) -> dict[str, Any]:
        return self.sizer.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.sizer.restore(snapshot)


def side_window(spec: WindowSpec) -> SideWindow:
    """An implementation for each extent that `can_be_joined`."""
    match spec.extent:
        case Range(micros):
            return RangeWindow(micros, now=spec.is_now)
        case Rows(count):
            return RowsWindow(count)
        case RateSized():
            return RateSizedWindow(spec.extent)
        case RowsOf() | Since() | Session():
            raise AssertionError("the binder lets no other windows into a join")
        case other:
            assert_never(other)
