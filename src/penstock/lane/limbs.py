"""SUM, AVG and COUNT of doubles without groups: a strip is summed in limbs, without carries from row to row.

    value = (high · 2**48 + low) · 2**unit        the sum of a strip: both limbs are summed on their own

All values of a strip, the rows that leave with it and the sum before it are whole multiples of one power of two, the
*unit*. In units a value has two limbs of 48 bits, so thousands of them are added before 64 bits overflow. The limbs are
computed in loops that LLVM vectorises; the loop from row to row has only additions. A sum in limbs is rounded by one
addition of two doubles, both of which are exact. This takes a third of the time of `sums.sum_all_doubles`.

Invariants:
1. A strip that does not fit is left to `sum_all_doubles`: its exponents are too far apart, the sum is too large, or too
   many rows leave with it. Nothing has changed then.
2. Behind a strip the state has the words that `sum_all_doubles` would give it.

Why: docs/decisions/exact-sums.md
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.images import Word
from penstock.aggregates.rounding import EXPONENT_BIAS
from penstock.arrays import Int64s
from penstock.jit import inline, tight, trailing_zeros
from penstock.lane.memory import doubles, int64s
from penstock.lane.sums import AVERAGES, BASE, COUNTS, SUMS, TAIL_VALUES, VALUES, WORDS, sum_all_doubles
from penstock.lane.words import DONE, EMITTED, GOES_ON, KEPT, LEFT, STRIP_ROWS, TAIL_AT, TAIL_UPTO, UPTO

_LIMB = 48
_LIMB_MASK = (1 << _LIMB) - 1
_FRACTION_MASK, _IMPLICIT, _EXPONENT_MASK = (1 << 52) - 1, 1 << 52, 0x7FF

_SPAN = 33
"""How far apart the exponents of a strip may be: values have at most 53 + 33 bits then. The rows of a strip and those
that leave with it are fewer than 2**12, so that they add less than 2**98 units."""

_MOST_LEAVING = 2 * STRIP_ROWS
_NO_EXPONENT = 1 << 12

_WHOLE = 0x4338000000000000
_WHOLE_AS_DOUBLE = 6755399441055744.0
"""A double of this size has whole numbers in its last bits: a number of less than 2**51 that is added to its bits
becomes the double with that value when the size is subtracted again."""


@inline
def _double_of(bits: int) -> float:
    return np.int64(bits).view(np.float64)


@inline
def _span(bits: Int64s, first: int, stop: int) -> tuple[int, int]:
    """The least and the greatest biased exponent; zeros have no least one."""
    least, greatest = _NO_EXPONENT, 0
    for row in range(first, stop):
        biased = (bits[row] >> 52) & _EXPONENT_MASK
        least = min(least, _NO_EXPONENT if bits[row] << 1 == 0 else biased)
        greatest = max(greatest, biased)
    return least, greatest


@inline
def _split(bits: Int64s, first: int, stop: int, unit: int, lows: Int64s, highs: Int64s) -> None:
    """The limbs of values, for a unit that is given as a biased exponent."""
    for row in range(first, stop):
        value = bits[row]
        shift = ((value >> 52) & _EXPONENT_MASK) - unit
        mantissa = 0 if value << 1 == 0 else (value & _FRACTION_MASK) | _IMPLICIT
        sign = value >> 63
        lows[row - first] = (((mantissa << (shift & 63)) & _LIMB_MASK) ^ sign) - sign
        highs[row - first] = ((mantissa >> ((_LIMB - shift) & 63)) ^ sign) - sign


@inline
def _zeros_behind(low: Word, middle: Word, high: Word) -> Word:
    """How many bits of three words come behind the last set one."""
    if low != 0:
        return np.int64(trailing_zeros(low))
    if middle != 0:
        return 64 + np.int64(trailing_zeros(middle))
    return 128 + np.int64(trailing_zeros(high)) if high != 0 else _NO_EXPONENT


@inline
def _logical_right(word: Word, places: int) -> Word:
    """Zeros come in from the left."""
    return np.int64(np.uint64(word) >> np.uint64(places))


@inline
def _shifted_right(low: Word, middle: Word, high: Word, places: int) -> tuple[Word, Word, Word]:
    if places >= 64:
        low, middle, high = middle, high, high >> 63
    bit = places & 63
    if bit != 0:
        low = _logical_right(low, bit) | (middle << (64 - bit))
        middle = _logical_right(middle, bit) | (high << (64 - bit))
        high >>= bit
    return low, middle, high


@inline
def _shifted_left(low: Word, middle: Word, places: int) -> tuple[Word, Word, Word]:
    """Two signed words become three."""
    high, bit = middle >> 63, places & 63
    if bit != 0:
        high = (high << bit) | _logical_right(middle, 64 - bit)
        middle = (middle << bit) | _logical_right(low, 64 - bit)
        low <<= bit
    if places >= 64:
        low, middle, high = 0, low, middle
    return low, middle, high


@tight
def sum_in_limbs(context: int, instruction: int) -> int:
    """All rows are of slot 0."""
    words, own = int64s(context), int64s(instruction)
    state, left = int64s(own[WORDS]), int64s(words[LEFT])
    bits, tail_bits, base = int64s(own[VALUES]), int64s(own[TAIL_VALUES]), own[BASE]
    first, done, upto, last = words[TAIL_AT], words[DONE], words[UPTO], words[TAIL_UPTO]
    rows, leaving = upto - done, last - first
    least, greatest = _span(bits, done, upto)
    tail_least, tail_greatest = _span(tail_bits, first, last)
    unit = min(least, tail_least, base + _zeros_behind(state[1], state[2], state[3]))
    if max(greatest, tail_greatest) - unit > _SPAN or unit == _NO_EXPONENT or leaving > _MOST_LEAVING:
        return sum_all_doubles(context, instruction)
    low, middle, high = _shifted_right(state[1], state[2], state[3], unit - base)
    if high != middle >> 63 or middle >> 34 != middle >> 63:  # 98 bits and a sign
        return sum_all_doubles(context, instruction)
    total_low, total_high = low & _LIMB_MASK, (middle << 16) | _logical_right(low, _LIMB)
    lows, highs = int64s(words[KEPT]), int64s(words[KEPT] + 8 * STRIP_ROWS)
    tail_lows = int64s(words[KEPT] + 16 * STRIP_ROWS)
    tail_highs = int64s(words[KEPT] + 16 * STRIP_ROWS + 8 * _MOST_LEAVING)
    _split(bits, done, upto, unit, lows, highs)
    _split(tail_bits, first, last, unit, tail_lows, tail_highs)
    at = 0
    for row in range(rows):
        end = left[row] - first
        while at < end:
            total_low -= tail_lows[at]
            total_high -= tail_highs[at]
            at += 1
        total_low += lows[row]
        total_high += highs[row]
        lows[row], highs[row] = total_low, total_high
    while at < leaving:
        total_low -= tail_lows[at]
        total_high -= tail_highs[at]
        at += 1
    _show(own, words[EMITTED], rows, lows, highs, _double_of((unit - EXPONENT_BIAS + 1023) << 52))
    _show_counts(own, words[EMITTED], rows, left, state[0] + 1 + first)
    total_high += total_low >> _LIMB
    total_low &= _LIMB_MASK
    state[0] += rows - leaving
    state[1], state[2], state[3] = _shifted_left(
        total_low | (total_high << _LIMB), total_high >> (64 - _LIMB), unit - base
    )
    return GOES_ON


@inline
def _show(own: Int64s, first: int, rows: int, lows: Int64s, highs: Int64s, scale: float) -> None:
    """Both summands are whole, and so their sum is rounded once; the scale is a power of two."""
    sums = doubles(own[SUMS] + 8 * first)
    for row in range(rows):
        low, high = lows[row], highs[row]
        high += low >> _LIMB
        low &= _LIMB_MASK
        upper, lower = _double_of(high + _WHOLE) - _WHOLE_AS_DOUBLE, _double_of(low + _WHOLE) - _WHOLE_AS_DOUBLE
        sums[row] = (upper * float(1 << _LIMB) + lower) * scale


@inline
def _show_counts(own: Int64s, first: int, rows: int, left: Int64s, before: int) -> None:
    """`before` is how many rows there would be with row 0, if no row of the tail's block had left."""
    sums, averages, counts = doubles(own[SUMS] + 8 * first), own[AVERAGES] + 8 * first, own[COUNTS] + 8 * first
    if own[AVERAGES] != 0:
        for row in range(rows):
            doubles(averages)[row] = sums[row] / (before + row - left[row])
    if own[COUNTS] != 0:
        for row in range(rows):
            int64s(counts)[row] = before + row - left[row]
