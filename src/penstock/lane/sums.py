"""SUM, AVG and COUNT of one argument, over the words of `aggregates.sums.SumState`.

The arithmetic is that of `aggregates.exact_sum`: the same functions on the same words. `stop_at_wide` cuts a strip
before the first value that the narrow accumulator does not take. While no row of the wide table is in use, every row
in the window is narrow, so rows that leave need no check.

Why: docs/decisions/runs-across-blocks.md
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.exact_sum import change_narrow, changed, split
from penstock.aggregates.images import Word
from penstock.aggregates.rounding import EXPONENT_BIAS, U0, U1, round_three_words
from penstock.arrays import Int64s, UInt64s
from penstock.jit import inline, tight
from penstock.lane.memory import bools, doubles, int32s, int64s, uint64s, whole_at
from penstock.lane.words import (
    DONE,
    EMITTED,
    FAILURES,
    GOES_ON,
    KEPT,
    LEFT,
    MET,
    SLOTS,
    STOPPED,
    STRIP_ROWS,
    TAIL_AT,
    TAIL_SLOTS,
    TAIL_UPTO,
    UPTO,
)

_U2, _U3, _U63 = np.uint64(2), np.uint64(3), np.uint64(63)
_DOUBLE_WORDS, _INTEGER_WORDS = 4, 3

_LOW, _MIDDLE, _HIGH = STRIP_ROWS, 2 * STRIP_ROWS, 3 * STRIP_ROWS
"""Where KEPT has the words of the sums of a strip; their counts come first."""

WORDS, BASE, VALUES, TAIL_VALUES, SUMS, AVERAGES, COUNTS, WIDTH, FAILED = range(1, 10)
"""The words of an instruction: the state's words, the base of doubles, the argument of the rows that enter and of the
tail's block, and where results go; 0 for results that are not wanted. WIDTH and FAILED are for integers."""


@tight
def stop_at_wide(context: int, instruction: int) -> int:
    """Cuts the strip before the first value that is not narrow."""
    words, own = int64s(context), int64s(instruction)
    slots, bits, base = int32s(words[SLOTS]), uint64s(own[VALUES]), np.uint64(own[BASE])
    one_group = words[SLOTS] == 0
    wide = False
    for row in range(words[DONE], words[UPTO]):  # without a way out it is vectorised
        wide |= not split(bits[row], base)[2]
    if wide:
        for row in range(words[DONE], words[UPTO]):
            if not split(bits[row], base)[2] and (one_group or slots[row] >= 0):
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


@inline
def _show_doubles(own: Int64s, kept: UInt64s, first: int, results: int) -> None:
    """Rounds the sums that the loop before has kept. Apart from that loop it is vectorised."""
    sums, averages, counts = doubles(own[SUMS] + 8 * first), doubles(own[AVERAGES] + 8 * first), own[COUNTS] + 8 * first
    exponent = own[BASE] - EXPONENT_BIAS
    for at in range(results):
        sums[at] = round_three_words(kept[_HIGH + at], kept[_MIDDLE + at], kept[_LOW + at], exponent)
    if own[AVERAGES] != 0:
        for at in range(results):
            averages[at] = sums[at] / np.int64(kept[at])
    if own[COUNTS] != 0:
        for at in range(results):
            int64s(counts)[at] = np.int64(kept[at])


@tight
def sum_doubles(context: int, instruction: int) -> int:
    """By groups."""
    words, own = int64s(context), int64s(instruction)
    state, kept = uint64s(own[WORDS]), uint64s(words[KEPT])
    slots, tail_slots = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS])
    bits, tail_bits, left = uint64s(own[VALUES]), uint64s(own[TAIL_VALUES]), int64s(words[LEFT])
    base = np.uint64(own[BASE])
    at, done, upto, last = words[TAIL_AT], words[DONE], words[UPTO], words[TAIL_UPTO]
    results = 0
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
            kept[results], kept[_LOW + results], kept[_MIDDLE + results], kept[_HIGH + results] = (
                count,
                low,
                middle,
                high,
            )
            results += 1
    while at < last:
        if tail_slots[at] >= 0:
            _remove_double(state, tail_slots[at], tail_bits[at], base)
        at += 1
    _show_doubles(own, kept, words[EMITTED], results)
    return GOES_ON


@tight
def sum_all_doubles(context: int, instruction: int) -> int:
    """All rows are of slot 0."""
    words, own = int64s(context), int64s(instruction)
    state, kept = uint64s(own[WORDS]), uint64s(words[KEPT])
    bits, tail_bits, left = uint64s(own[VALUES]), uint64s(own[TAIL_VALUES]), int64s(words[LEFT])
    base = np.uint64(own[BASE])
    at, done, upto, last = words[TAIL_AT], words[DONE], words[UPTO], words[TAIL_UPTO]
    before = np.int64(state[U0]) + 1 + at
    state[U0] += np.uint64(upto - done - (last - at))
    low, middle, high = state[U1], state[_U2], state[_U3]
    for row in range(upto - done):
        end = left[row]
        while at < end:
            value = tail_bits[at]
            mantissa, shift, _ = split(value, base)
            low, middle, high = changed(low, middle, high, mantissa, shift, (value >> _U63) ^ U1)
            at += 1
        value = bits[done + row]
        mantissa, shift, _ = split(value, base)
        low, middle, high = changed(low, middle, high, mantissa, shift, value >> _U63)
        kept[_LOW + row], kept[_MIDDLE + row], kept[_HIGH + row] = low, middle, high
        kept[row] = np.uint64(before + row - at)
    while at < last:
        value = tail_bits[at]
        mantissa, shift, _ = split(value, base)
        low, middle, high = changed(low, middle, high, mantissa, shift, (value >> _U63) ^ U1)
        at += 1
    state[U1], state[_U2], state[_U3] = low, middle, high
    _show_doubles(own, kept, words[EMITTED], upto - done)
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
    state, kept = uint64s(own[WORDS]), uint64s(words[KEPT])
    slots, tail_slots, one_group = int32s(words[SLOTS]), int32s(words[TAIL_SLOTS]), words[SLOTS] == 0
    values, tail_values, width, left = own[VALUES], own[TAIL_VALUES], own[WIDTH], int64s(words[LEFT])
    at, done, upto, last = words[TAIL_AT], words[DONE], words[UPTO], words[TAIL_UPTO]
    results = 0
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
            kept[results], kept[_LOW + results], kept[_HIGH + results] = count, low, high
            results += 1
    while at < last:
        if not one_group:
            leaver = tail_slots[at]
        if leaver >= 0:
            _remove_integer(state, leaver, whole_at(tail_values, at, width))
        at += 1
    if _show_integers(own, kept, words[EMITTED], results):
        words[MET] |= FAILURES
    return GOES_ON


@inline
def _show_integers(own: Int64s, kept: UInt64s, first: int, results: int) -> bool:
    """Shows the sums that the loop before has kept; returns whether one does not fit 64 bits."""
    sums, failed, counts = int64s(own[SUMS] + 8 * first), bools(own[FAILED] + first), int64s(own[COUNTS] + 8 * first)
    averages, fails = doubles(own[AVERAGES] + 8 * first), False
    for at in range(results):
        total = np.int64(kept[_LOW + at])
        sums[at] = total
        failed[at] = kept[_HIGH + at] != np.uint64(total >> 63)
        fails |= failed[at]
    if own[AVERAGES] != 0:
        for at in range(results):
            low, high = kept[_LOW + at], kept[_HIGH + at]
            rounded = float(np.int64(low))
            if failed[at]:
                rounded = round_three_words(np.uint64(np.int64(high) >> 63), high, low, 0)
            averages[at] = rounded / np.int64(kept[at])
    if own[COUNTS] != 0:
        for at in range(results):
            counts[at] = np.int64(kept[at])
    return fails
