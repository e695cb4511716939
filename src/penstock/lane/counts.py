"""How many rows each group has in the window: the rows of a tally, or of `aggregates.count.CountState`.

Every program ends with the counts of its groups: this operation says how many results there are after the strip.

Instruction: the counts, where results go (0: nowhere), and where it is noted which slots change (0: nowhere).
"""

from __future__ import annotations

from penstock.jit import tight
from penstock.lane.memory import bools, int32s, int64s
from penstock.lane.words import (
    DONE,
    EMITTED,
    EMITTED_NEXT,
    GOES_ON,
    LEFT,
    SLOTS,
    TAIL_AT,
    TAIL_SLOTS,
    TAIL_UPTO,
    UPTO,
)

COUNTS, RESULTS, CHANGED = 1, 2, 3


@tight
def count_rows(context: int, instruction: int) -> int:
    """By groups."""
    words, own = int64s(context), int64s(instruction)
    counts, results, wanted = int64s(own[COUNTS]), int64s(own[RESULTS]), own[RESULTS] != 0
    slots, tail_slots, left = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS]), int64s(words[LEFT])
    at, emitted, done, upto = words[TAIL_AT], words[EMITTED], words[DONE], words[UPTO]
    if not wanted:
        for place in range(at, words[TAIL_UPTO]):
            if tail_slots[place] >= 0:
                counts[tail_slots[place]] -= 1
        for row in range(done, upto):
            if slots[row] >= 0:
                counts[slots[row]] += 1
                emitted += 1
    else:
        for row in range(done, upto + 1):
            end = words[TAIL_UPTO] if row == upto else left[row - done]
            while at < end:
                if tail_slots[at] >= 0:
                    counts[tail_slots[at]] -= 1
                at += 1
            if row < upto and slots[row] >= 0:
                count = counts[slots[row]] + 1
                counts[slots[row]] = count
                results[emitted] = count
                emitted += 1
    words[EMITTED_NEXT] = emitted
    if own[CHANGED] != 0:
        changed = bools(own[CHANGED])
        for place in range(words[TAIL_AT], words[TAIL_UPTO]):
            if tail_slots[place] >= 0:
                changed[tail_slots[place]] = True
        for row in range(done, upto):
            if slots[row] >= 0:
                changed[slots[row]] = True
    return GOES_ON


@tight
def count_all(context: int, instruction: int) -> int:
    """All rows are of slot 0."""
    words, own = int64s(context), int64s(instruction)
    counts, results = int64s(own[COUNTS]), int64s(own[RESULTS])
    left, emitted = int64s(words[LEFT]), words[EMITTED]
    at, done, upto = words[TAIL_AT], words[DONE], words[UPTO]
    if own[RESULTS] != 0:
        first = counts[0] + 1 + at
        for row in range(done, upto):
            results[emitted + row - done] = first + row - done - left[row - done]
    counts[0] += upto - done - (words[TAIL_UPTO] - at)
    words[EMITTED_NEXT] = emitted + upto - done
    if own[CHANGED] != 0:
        bools(own[CHANGED])[0] = True
    return GOES_ON
