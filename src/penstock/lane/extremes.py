"""MIN and MAX of numbers, over the deques of `aggregates.extremes.ExtremeState`.

The deques are those of `aggregates.deques`: the same functions on the same arrays. A deque that needs a chunk, or one
that is spilled, stops the program in the middle of a strip; the cursors are in the context until it goes on.

With groups each row enters its deque and is looked at there. Without groups a *stretch* of rows is looked at before it
enters the one deque: the answer for a row is the better of the deque's front and of the best row of the stretch so far.
A stretch ends before the first row with which its own first row leaves. Then those of its rows enter that no later one
beats, which are few as a rule. The deque holds the same entries either way.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import deques
from penstock.aggregates.images import Word, total_key
from penstock.arrays import Int64s
from penstock.jit import inline, tight
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
    KEPT,
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

_LOOKS, _ENTERS, _LEAVES = 1, 2, 3
"""AT_PHASE of a stretch: its rows are looked at; they enter; rows leave behind the last stretch of the strip."""

_NEVER = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@tight
def extreme(context: int, instruction: int) -> int:
    """By groups."""
    words, own = int64s(context), int64s(instruction)
    pool, directory, control = int64s(own[POOL]), pairs(own[DIRECTORY]), int64s(own[CONTROL])
    ranks, flip, floating = control, own[FLIP], own[FLOATING] != 0
    slots, tail_slots = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS])
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
            leaver = np.int64(tail_slots[at])
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


@tight
def extreme_of_all(context: int, instruction: int) -> int:
    """All rows are of slot 0."""
    words, own = int64s(context), int64s(instruction)
    pool, directory, control = int64s(own[POOL]), pairs(own[DIRECTORY]), int64s(own[CONTROL])
    done, upto, last = words[DONE], words[UPTO], words[TAIL_FIRST] + words[TAIL_UPTO]
    row: Word = done
    entered: Word = np.int64(0)
    begin, phase = row, np.int64(_LOOKS)
    if words[AT_PHASE] != 0:
        begin, row, entered, phase = words[AT_ROW], words[AT_RESULT], words[AT_TAIL], words[AT_PHASE]
    need = deques.DONE
    while begin < upto:
        if phase == _LOOKS:
            row, need = _look(pool, directory, control, words, own, begin, row)
            if need != deques.DONE:
                break
            phase, entered = np.int64(_ENTERS), np.int64(0)
        entered, need = _enter(pool, directory, control, words, own, begin, row, entered)
        if need != deques.DONE:
            break
        phase, begin = np.int64(_LOOKS), row
    while need == deques.DONE:
        phase = np.int64(_LEAVES)
        front = directory[0, deques.FRONT]
        if front == deques.NONE or pool[front] >> 1 >= last:
            words[AT_PHASE] = 0
            return GOES_ON
        need = deques.leave(pool, directory, control, np.int64(0), pool[front] >> 1)
    words[AT_ROW], words[AT_RESULT], words[AT_TAIL], words[AT_PHASE] = begin, row, entered, phase
    return NEEDS + need


@inline
def _key_at(own: Int64s, row: Word) -> tuple[Word, Word]:
    """The key and the image of a row that enters."""
    image = whole_at(own[VALUES], row, own[WIDTH])
    return total_key(image, own[FLOATING] != 0) ^ own[FLIP], image


@tight
def _look(
    pool: Int64s, directory: Int64s, control: Int64s, words: Int64s, own: Int64s, begin: Word, row: Word
) -> tuple[Word, int]:
    """Answers for the rows of the stretch that begins at `begin`, from `row` on; rows that have left leave the deque.
    Returns the row with which the stretch ends, or the one at which the deque needs something."""
    results, left, values, width = int64s(own[RESULTS]), int64s(words[LEFT]), own[VALUES], own[WIDTH]
    flip, floating = own[FLIP], own[FLOATING] != 0
    done, upto, first = words[DONE], words[UPTO], words[TAIL_FIRST]
    entered, shift = words[HEAD] + begin, words[EMITTED] - done
    best, best_image = _key_at(own, begin)
    for again in range(begin + 1, row):
        key, image = _key_at(own, again)
        if key < best:
            best, best_image = key, image
    front = directory[0, deques.FRONT]
    while row < upto:
        is_there = front != deques.NONE
        position, front_key, front_image = _NEVER, np.int64(0), np.int64(0)
        if is_there:
            position, front_key, front_image = pool[front] >> 1, pool[front + 1], pool[front + 2]
        stop = min(position, entered)
        while row < upto:
            oldest = first + left[row - done]
            if oldest > stop:
                break
            image = whole_at(values, row, width)
            key = total_key(image, floating) ^ flip
            if key < best:
                best, best_image = key, image
            results[shift + row] = front_image if is_there and front_key <= best else best_image
            row += 1
        if row == upto or first + left[row - done] > entered:
            break
        need = deques.leave(pool, directory, control, np.int64(0), position)
        if need != deques.DONE:
            return row, need
        front = directory[0, deques.FRONT]
    return row, deques.DONE


@tight
def _enter(
    pool: Int64s,
    directory: Int64s,
    control: Int64s,
    words: Int64s,
    own: Int64s,
    begin: Word,
    end: Word,
    entered: Word,
) -> tuple[Word, int]:
    """The rows of a stretch enter that no later one of them beats; `entered` of them are in. Returns how many are in,
    and what the deque needs."""
    kept, values, width = int64s(words[KEPT]), own[VALUES], own[WIDTH]
    flip, floating = own[FLIP], own[FLOATING] != 0
    best, _ = _key_at(own, end - 1)
    count = np.int64(0)
    for row in range(end - 1, begin - 1, -1):
        key = total_key(whole_at(values, row, width), floating) ^ flip
        if key <= best:
            best = key
            kept[count] = row
            count += 1
    need = deques.DONE
    if entered == 0:
        need = deques.drive_out(pool, directory, control, control, False, flip, np.int64(0), best)
    while need == deques.DONE and entered < count:
        row = kept[count - 1 - entered]
        key, image = _key_at(own, row)
        need = deques.push(pool, directory, control, np.int64(0), (words[HEAD] + row) * 2 + 1, key, image)
        if need == deques.DONE:
            entered += 1
    return entered, need
