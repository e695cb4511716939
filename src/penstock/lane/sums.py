"""SUM, AVG and COUNT of one argument, over the words of `aggregates.sums.SumState`.

The arithmetic is that of `aggregates.exact_sum`: the same functions on the same words. `stop_at_wide` cuts a strip
before the first value that the narrow accumulator does not take. While no row of the wide table is in use, every row
in the window is narrow, so rows that leave need no check.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.exact_sum import change_narrow, changed, split
from penstock.aggregates.images import Word
from penstock.aggregates.rounding import EXPONENT_BIAS, U0, U1, round_three_words
from penstock.arrays import UInt64s
from penstock.jit import inline, tight
from penstock.lane.memory import bools, doubles, int32s, int64s, uint64s, whole_at
from penstock.lane.words import (
    DONE,
    EMITTED,
    FAILURES,
    GOES_ON,
    LEFT,
    MET,
    SLOTS,
    STOPPED,
    TAIL_AT,
    TAIL_SLOTS,
    TAIL_UPTO,
    UPTO,
)

_U2, _U3, _U63 = np.uint64(2), np.uint64(3), np.uint64(63)
_DOUBLE_WORDS, _INTEGER_WORDS = 4, 3

WORDS, BASE, VALUES, TAIL_VALUES, SUMS, AVERAGES, COUNTS, WIDTH, FAILED = range(1, 10)
"""The words of an instruction: the state's words, the base of doubles, the argument of the rows that enter and of the
tail's block, and where results go; 0 for results that are not wanted. WIDTH and FAILED are for integers."""


@tight
def stop_at_wide(context: int, instruction: int) -> int:
    """Cuts the strip before the first value that is not narrow."""
    words, own = int64s(context), int64s(instruction)
    slots, bits, base = int32s(words[SLOTS]), uint64s(own[VALUES]), np.uint64(own[BASE])
    one_group = words[SLOTS] == 0
    for row in range(words[DONE], words[UPTO]):
        _, _, narrow = split(bits[row], base)
        if not narrow and (one_group or slots[row] >= 0):
            words[UPTO] = row
            words[STOPPED] = 1
            break
    return GOES_ON


@inline
def _remove_double(state: UInt64s, slot: np.int32, value: np.uint64, base: np.uint64) -> None:
    mantissa, shift, _ = split(value, base)
    place = np.uint64(slot) * np.uint64(_DOUBLE_WORDS)
    change_narrow(state, place + U1, mantissa, shift, (value >> _U63) ^ U1)
    state[place] -= U1


@tight
def sum_doubles(context: int, instruction: int) -> int:
    """By groups."""
    words, own = int64s(context), int64s(instruction)
    sums, state = doubles(own[SUMS]), uint64s(own[WORDS])
    averages, counts = doubles(own[AVERAGES]), int64s(own[COUNTS])
    wants_average, wants_count = own[AVERAGES] != 0, own[COUNTS] != 0
    slots, tail_slots = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS])
    bits, tail_bits, left = uint64s(own[VALUES]), uint64s(own[TAIL_VALUES]), int64s(words[LEFT])
    base, exponent = np.uint64(own[BASE]), own[BASE] - EXPONENT_BIAS
    at, emitted, done, upto, last = words[TAIL_AT], words[EMITTED], words[DONE], words[UPTO], words[TAIL_UPTO]
    for row in range(done, upto):
        end = left[row - done]
        while at < end:
            if tail_slots[at] >= 0:
                _remove_double(state, tail_slots[at], tail_bits[at], base)
            at += 1
        slot = slots[row]
        if slot >= 0:
            value = bits[row]
            mantissa, shift, _ = split(value, base)
            place = np.uint64(slot) * np.uint64(_DOUBLE_WORDS)
            low, middle, high = changed(
                state[place + U1], state[place + _U2], state[place + _U3], mantissa, shift, value >> _U63
            )
            count = state[place] + U1
            state[place], state[place + U1], state[place + _U2], state[place + _U3] = count, low, middle, high
            total = round_three_words(high, middle, low, exponent)
            sums[emitted] = total
            if wants_average:
                averages[emitted] = total / np.int64(count)
            if wants_count:
                counts[emitted] = np.int64(count)
            emitted += 1
    while at < last:
        if tail_slots[at] >= 0:
            _remove_double(state, tail_slots[at], tail_bits[at], base)
        at += 1
    return GOES_ON


@tight
def sum_all_doubles(context: int, instruction: int) -> int:
    """All rows are of slot 0."""
    words, own = int64s(context), int64s(instruction)
    sums, state = doubles(own[SUMS]), uint64s(own[WORDS])
    averages, counts = doubles(own[AVERAGES]), int64s(own[COUNTS])
    wants_average, wants_count = own[AVERAGES] != 0, own[COUNTS] != 0
    bits, tail_bits, left = uint64s(own[VALUES]), uint64s(own[TAIL_VALUES]), int64s(words[LEFT])
    base, exponent = np.uint64(own[BASE]), own[BASE] - EXPONENT_BIAS
    at, emitted, done, upto, last = words[TAIL_AT], words[EMITTED], words[DONE], words[UPTO], words[TAIL_UPTO]
    count = np.int64(state[U0]) + upto - done - (last - at)
    here = np.int64(state[U0]) + 1 + at
    low, middle, high = state[U1], state[_U2], state[_U3]
    for row in range(done, upto):
        end = left[row - done]
        while at < end:
            value = tail_bits[at]
            mantissa, shift, _ = split(value, base)
            low, middle, high = changed(low, middle, high, mantissa, shift, (value >> _U63) ^ U1)
            at += 1
        value = bits[row]
        mantissa, shift, _ = split(value, base)
        low, middle, high = changed(low, middle, high, mantissa, shift, value >> _U63)
        total = round_three_words(high, middle, low, exponent)
        sums[emitted] = total
        if wants_average:
            averages[emitted] = total / (here + row - done - at)
        if wants_count:
            counts[emitted] = here + row - done - at
        emitted += 1
    while at < last:
        value = tail_bits[at]
        mantissa, shift, _ = split(value, base)
        low, middle, high = changed(low, middle, high, mantissa, shift, (value >> _U63) ^ U1)
        at += 1
    state[U0] = np.uint64(count)
    state[U1], state[_U2], state[_U3] = low, middle, high
    return GOES_ON


@inline
def _remove_integer(state: UInt64s, slot: np.int32, value: Word) -> None:
    place = np.uint64(slot) * np.uint64(_INTEGER_WORDS)
    low = state[place + U1]
    state[place] -= U1
    state[place + U1] = low - np.uint64(value)
    state[place + _U2] -= np.uint64(value >> 63) + np.uint64(low < np.uint64(value))


@tight
def sum_integers(context: int, instruction: int) -> int:
    """By groups, or of slot 0 alone; 128-bit sums."""
    words, own = int64s(context), int64s(instruction)
    sums, state, failed = int64s(own[SUMS]), uint64s(own[WORDS]), bools(own[FAILED])
    averages, counts = doubles(own[AVERAGES]), int64s(own[COUNTS])
    wants_average, wants_count = own[AVERAGES] != 0, own[COUNTS] != 0
    slots, tail_slots, one_group = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS]), words[SLOTS] == 0
    values, tail_values, width, left = own[VALUES], own[TAIL_VALUES], own[WIDTH], int64s(words[LEFT])
    at, emitted, done, upto, last = words[TAIL_AT], words[EMITTED], words[DONE], words[UPTO], words[TAIL_UPTO]
    met = 0
    slot = leaver = np.int32(0)
    for row in range(done, upto):
        end = left[row - done]
        while at < end:
            if not one_group:
                leaver = tail_slots[at]
            if leaver >= 0:
                _remove_integer(state, leaver, whole_at(tail_values, at, width))
            at += 1
        if not one_group:
            slot = slots[row]
        if slot >= 0:
            value = whole_at(values, row, width)
            place = np.uint64(slot) * np.uint64(_INTEGER_WORDS)
            low = state[place + U1] + np.uint64(value)
            high = state[place + _U2] + np.uint64(value >> 63) + np.uint64(low < np.uint64(value))
            count = state[place] + U1
            state[place], state[place + U1], state[place + _U2] = count, low, high
            total = np.int64(low)
            fits = high == np.uint64(total >> 63)
            sums[emitted] = total
            failed[emitted] = not fits
            met |= int(np.int64(not fits)) * FAILURES
            if wants_average:
                if fits:
                    averages[emitted] = np.float64(total) / np.int64(count)
                else:
                    wide = round_three_words(np.uint64(np.int64(high) >> 63), high, low, 0)
                    averages[emitted] = wide / np.int64(count)
            if wants_count:
                counts[emitted] = np.int64(count)
            emitted += 1
    while at < last:
        if not one_group:
            leaver = tail_slots[at]
        if leaver >= 0:
            _remove_integer(state, leaver, whole_at(tail_values, at, width))
        at += 1
    words[MET] |= met
    return GOES_ON
