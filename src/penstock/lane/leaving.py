"""Which rows of the tail's block leave with each row that enters.

Each operation writes LEFT for the rows of the strip and cuts the strip before the first row with which the last row of
the block leaves, unless it is the last block of the store. The rest of the block then leaves at the end of the strip:
the next row to enter comes after these rows have left, whichever way it goes. The rows that enter are stored before
the program runs, so in the last block a row that enters is never passed.

Instruction: nothing further.
"""

from __future__ import annotations

from penstock.jit import tight
from penstock.lane.memory import int64s
from penstock.lane.words import (
    DONE,
    EXTENT,
    GOES_ON,
    HEAD,
    LEFT,
    STARTS,
    STOPPED,
    TAIL_AT,
    TAIL_FIRST,
    TAIL_IS_LAST,
    TAIL_ROWS,
    TAIL_TIMES,
    TAIL_UPTO,
    TIMES,
    UPTO,
)


@tight
def leave_by_time(context: int, instruction: int) -> int:
    """RANGE: rows up to EXTENT microseconds before the row that enters have left."""
    words = int64s(context)
    done, upto = words[DONE], words[UPTO]
    times, tail, left = int64s(words[TIMES]), int64s(words[TAIL_TIMES]), int64s(words[LEFT])
    at, rows, extent = words[TAIL_AT], words[TAIL_ROWS], words[EXTENT] - 1
    is_last = words[TAIL_IS_LAST] != 0
    row = done
    while row < upto:
        before = times[row] - extent
        while at < rows and tail[at] < before:
            at += 1
        if at == rows and not is_last:
            words[UPTO] = row
            words[STOPPED] = 0
            break
        left[row - done] = at
        row += 1
    words[TAIL_UPTO] = at
    return GOES_ON


@tight
def leave_by_position(context: int, instruction: int) -> int:
    """ROWS: the last EXTENT rows stay, the row that enters with them. STARTS gets the time of the oldest of them."""
    words = int64s(context)
    done, upto = words[DONE], words[UPTO]
    tail, left, starts = int64s(words[TAIL_TIMES]), int64s(words[LEFT]), int64s(words[STARTS])
    at, rows = words[TAIL_AT], words[TAIL_ROWS]
    first = words[HEAD] + 1 - words[EXTENT] - words[TAIL_FIRST]
    row = done
    while row < upto:
        at = max(at, first + row)
        if at >= rows:
            at = rows
            words[UPTO] = row
            words[STOPPED] = 0
            break
        left[row - done] = at
        starts[row] = tail[at]
        row += 1
    words[TAIL_UPTO] = at
    return GOES_ON
