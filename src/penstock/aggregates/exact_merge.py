"""The loops that merge partial sums: into narrow accumulators where they fit exactly, else where wide ones are.

Each place that sums floats chose its own base (see `exact_sum`), so sums come in different units. They are shifted
into the units of the state that takes them in, upwards or downwards. That is exact as long as no set bit is shifted
out and the result leaves room above for the sums still to come: `ROOM_*` bits allow 2**31 shifted partials beside the
2**40 values that the accumulators were made for. What cannot be shifted so is wide.

The layouts are those of `partials`. Called by the states.

Why: docs/decisions/exact-merge.md
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.exact_moments import (
    COVARIANCE_WORDS,
    ONE_ARGUMENT_WORDS,
    SPECIAL_AT,
    WIDE_AT,
    X_AT,
    XX_AT,
    XY_AT,
    Y_AT,
    YY_AT,
)
from penstock.aggregates.exact_product import PRODUCT_WORDS, SUM_WORDS
from penstock.aggregates.rounding import U0, U1, U63
from penstock.aggregates.wide import FINITE, Words, add_narrow, add_row, take_row
from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import kernel, leading_zeros

ROOM_FOR_SUMS, ROOM_FOR_PRODUCTS = 158, 340

FLOAT_PARTIAL_WORDS = 5
INTEGER_PARTIAL_WORDS = 3
BASES_WORDS = 2
"""What stands before the words of `exact_moments` in a partial."""

SHIFTED_WORDS = 27
"""Scratch for the sums of one partial, at the places they have in `exact_moments`."""


def common_base(bases: Words) -> int:
    """The base for a state that has none: the median of those it takes in, 0 if they are all 0.

    >>> common_base(np.array([1020, 0, 990, 1023], dtype=np.uint64))
    1020
    """
    chosen = np.sort(bases[bases != U0])
    return int(chosen[len(chosen) // 2]) if len(chosen) else 0


@kernel
def add_words(words: Words, at: int, addend: Words, addend_at: int, count: int) -> None:
    """The integer of `count` words at `at` += the one at `addend_at`."""
    carry = U0
    for index in range(count):
        word = addend[addend_at + index]
        part = words[at + index] + word
        overflow = np.uint64(part < word)
        part += carry
        carry = overflow | np.uint64(part < carry)
        words[at + index] = part


@kernel
def _word(source: Words, at: int, count: int, index: int, sign: np.uint64) -> np.uint64:
    """A word of an integer that goes on with zeros below and with its sign above."""
    if index < 0:
        return U0
    return source[at + index] if index < count else sign


@kernel
def shift_words(source: Words, at: int, count: int, shift: int, room: int, target: Words) -> bool:
    """The integer of `count` words at `at` times 2**shift, at the same place of `target`. False: it would lose bits or
    take more than `room` of them."""
    sign = U0 - (source[at + count - 1] >> U63)
    top = count - 1
    while top > 0 and source[at + top] == sign:
        top -= 1
    leading = source[at + top] ^ sign
    bits = 64 * (top + 1) - int(np.int64(leading_zeros(leading))) if leading != U0 else 0
    if bits + shift > room and (leading | sign) != U0:
        return False
    lost = max(-shift, 0)
    for index in range(min(lost >> 6, count)):
        if source[at + index] != U0:
            return False
    if lost >> 6 < count and source[at + (lost >> 6)] & ((U1 << np.uint64(lost & 63)) - U1) != U0:
        return False
    bit = np.uint64(shift & 63)
    for index in range(count):
        high = _word(source, at, count, index - (shift >> 6), sign)
        low = _word(source, at, count, index - (shift >> 6) - 1, sign)
        target[at + index] = (high << bit) | ((low >> U1) >> (U63 - bit))
    return True


@kernel
def absorb_integers(words: Words, slots: Slots, partials: Words) -> None:
    for row in range(len(slots)):
        at, source = int(slots[row]) * INTEGER_PARTIAL_WORDS, row * INTEGER_PARTIAL_WORDS
        words[at] += partials[source]
        add_words(words, at + 1, partials, source + 1, INTEGER_PARTIAL_WORDS - 1)


@kernel
def absorb_floats(
    words: Words,
    base: int,
    table: Words,
    row_of: Slots,
    links: Int64s,
    slots: Slots,
    partials: Words,
    starts: Int64s,
    sizes: Int64s,
    first: int,
) -> int:
    """Takes in the partials from `first` on; returns how many are in. When that is not all, a wide row is wanted."""
    shifted = np.empty(SUM_WORDS, np.uint64)
    for row in range(first, len(slots)):
        slot, source = int(slots[row]), starts[row]
        at = slot * (SUM_WORDS + 1)
        sums = partials[source + 2 : source + FLOAT_PARTIAL_WORDS]
        own_base = int(np.int64(partials[source + 1]))
        is_zero = sums[0] | sums[1] | sums[2] == U0
        fits = is_zero or own_base == base
        if fits:
            shifted[:] = sums
        else:
            fits = shift_words(sums, 0, SUM_WORDS, own_base - base, ROOM_FOR_SUMS, shifted)
        wide = sizes[row] > FLOAT_PARTIAL_WORDS
        if (wide or not fits) and not take_row(table, row_of, links, slot):
            return row
        words[at] += partials[source]
        if fits:
            add_words(words, at + 1, shifted, 0, SUM_WORDS)
        else:
            add_narrow(table[row_of[slot] - 1], sums[0], sums[1], sums[2], np.uint64(own_base - 1))
            table[row_of[slot] - 1, FINITE] += U1
        if wide:
            add_row(table[row_of[slot] - 1], partials[source + FLOAT_PARTIAL_WORDS : source + sizes[row]])
    return len(slots)


@kernel
def absorb_moments(
    words: Words, width: int, x_base: int, y_base: int, slots: Slots, partials: Words, starts: Int64s, misfits: Bools
) -> None:
    """Takes in all partials but the sums of the `misfits`: those it marks, and counts as one wide row each. Sums that
    follow the words of a partial are the caller's, too."""
    shifted = np.zeros(SHIFTED_WORDS, np.uint64)
    for row in range(len(slots)):
        at, source = int(slots[row]) * width, starts[row] + BASES_WORDS
        by_x = int(np.int64(partials[source - 2])) - x_base
        by_y = int(np.int64(partials[source - 1])) - y_base
        own = partials[source : source + width]
        fits = _shift_sums(own, width, by_x, by_y, shifted)
        misfits[row] = not fits
        words[at] += own[0]
        words[at + SPECIAL_AT] += own[SPECIAL_AT]
        words[at + WIDE_AT] += own[WIDE_AT] + np.uint64(not fits)
        if fits:
            add_words(words, at + X_AT, shifted, X_AT, SUM_WORDS)
            add_words(words, at + XY_AT, shifted, XY_AT, PRODUCT_WORDS)
            if width > ONE_ARGUMENT_WORDS:
                add_words(words, at + Y_AT, shifted, Y_AT, SUM_WORDS)
            if width > COVARIANCE_WORDS:
                add_words(words, at + XX_AT, shifted, XX_AT, PRODUCT_WORDS)
                add_words(words, at + YY_AT, shifted, YY_AT, PRODUCT_WORDS)


@kernel
def _shift_sums(own: Words, width: int, by_x: int, by_y: int, shifted: Words) -> bool:
    """All sums of a partial in the units of the state, or False."""
    is_zero = True
    for index in range(X_AT, width):
        is_zero = is_zero and own[index] == U0
    if is_zero or (by_x == 0 and by_y == 0):
        shifted[:width] = own
        return True
    fits = shift_words(own, X_AT, SUM_WORDS, by_x, ROOM_FOR_SUMS, shifted)
    fits = fits and shift_words(own, XY_AT, PRODUCT_WORDS, by_x + by_y, ROOM_FOR_PRODUCTS, shifted)
    if fits and width > ONE_ARGUMENT_WORDS:
        fits = shift_words(own, Y_AT, SUM_WORDS, by_y, ROOM_FOR_SUMS, shifted)
    if fits and width > COVARIANCE_WORDS:
        fits = shift_words(own, XX_AT, PRODUCT_WORDS, 2 * by_x, ROOM_FOR_PRODUCTS, shifted)
        fits = fits and shift_words(own, YY_AT, PRODUCT_WORDS, 2 * by_y, ROOM_FOR_PRODUCTS, shifted)
    return fits
