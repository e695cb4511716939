"""MIN and MAX of numbers, over the deques of `aggregates.extremes.ExtremeState`.

The deques are those of `aggregates.deques`: the same functions on the same arrays. A deque that needs a chunk, or one
that is spilled, stops the program in the middle of a strip; the cursors are in the context until it goes on.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import deques
from penstock.aggregates.images import total_key
from penstock.jit import tight
from penstock.lane.memory import int32s, int64s, pairs, whole_at
from penstock.lane.words import (
    AT_PHASE,
    AT_RESULT,
    AT_ROW,
    AT_TAIL,
    DONE,
    EMITTED,
    GOES_ON,
    HEAD,
    LEFT,
    NEEDS,
    SLOTS,
    TAIL_AT,
    TAIL_FIRST,
    TAIL_SLOTS,
    TAIL_UPTO,
    UPTO,
)

POOL, DIRECTORY, CONTROL, VALUES, WIDTH, FLIP, FLOATING, RESULTS = range(1, 9)
"""The words of an instruction: the three arrays of the deques, the argument of the rows that enter and its width, -1
where the greatest wins, 1 for doubles, and where the images of results go."""


@tight
def extreme(context: int, instruction: int) -> int:
    words, own = int64s(context), int64s(instruction)
    pool, directory, control = int64s(own[POOL]), pairs(own[DIRECTORY]), int64s(own[CONTROL])
    ranks, flip, floating = control, own[FLIP], own[FLOATING] != 0
    slots, tail_slots, one_group = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS]), words[SLOTS] == 0
    values, width, results, left = own[VALUES], own[WIDTH], int64s(own[RESULTS]), int64s(words[LEFT])
    done, upto, head, first = words[DONE], words[UPTO], words[HEAD], words[TAIL_FIRST]
    row, at, emitted = done, words[TAIL_AT], words[EMITTED]
    is_in = False
    if words[AT_PHASE] != 0:
        row, at, emitted, is_in = words[AT_ROW], words[AT_TAIL], words[AT_RESULT], words[AT_PHASE] == 2
    need = deques.DONE
    slot = np.int64(0)
    while row <= upto:
        if row < upto:
            if not one_group:
                slot = np.int64(slots[row])
            if slot >= 0 and not is_in:
                image = whole_at(values, row, width)
                key = total_key(image, floating) ^ flip
                mark = (head + row) * 2 + 1
                need = deques.enter(pool, directory, control, ranks, False, flip, slot, mark, key, image)
                if need != deques.DONE:
                    break
        is_in = True
        end = words[TAIL_UPTO] if row == upto else left[row - done]
        while at < end:
            leaver = np.int64(0) if one_group else np.int64(tail_slots[at])
            if leaver >= 0:
                need = deques.leave(pool, directory, control, leaver, first + at)
                if need != deques.DONE:
                    break
            at += 1
        if need != deques.DONE:
            break
        if row < upto and slot >= 0:
            results[emitted] = pool[directory[slot, deques.FRONT] + 2]
            emitted += 1
        is_in = False
        row += 1
    if need == deques.DONE:
        words[AT_PHASE] = 0
        return GOES_ON
    words[AT_ROW], words[AT_TAIL], words[AT_RESULT] = row, at, emitted
    words[AT_PHASE] = 2 if is_in else 1
    return NEEDS + need
