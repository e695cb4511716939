"""The hot loop of variances, covariances and correlations: it plays a whole schedule in one call.

Words per slot, of which a state keeps as many as it needs:

     0  rows              3  sum of x (3 words)     12  sum of y (3)      15  sum of x·x (6)
     1  of them, with     6  sum of x·y (6)                               21  sum of y·y (6)
        NaN or infinity
     2  of them, wide     |---- one argument ----|  |-- covariance --|   |-- correlation --|

With one argument y is x, so words 6..11 are the sum of squares. A wide row (see `wide_products`) is only counted
here: the loop stops after it, the caller adds it and calls again.

A value is given by its 64 bits: those of a double, or of an integer where the whole argument is of integers. Those are
in units of 1, whose base is `INTEGER_BASE`, and always narrow: no BIGINT is rounded on its way into the sums.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.aggregates.exact_product import change_product, covariance
from penstock.aggregates.exact_sum import change_integer, change_narrow, split
from penstock.aggregates.rounding import EXPONENT_BIAS, U0, U1
from penstock.aggregates.wide import Words
from penstock.arrays import Bools, Floats, Int64s, Slots
from penstock.jit import inline, kernel

ONE_ARGUMENT_WORDS, COVARIANCE_WORDS, CORRELATION_WORDS = 12, 15, 27
ROWS_AT, SPECIAL_AT, WIDE_AT, X_AT, XY_AT, Y_AT, XX_AT, YY_AT = 0, 1, 2, 3, 6, 12, 15, 21

INTEGERS = np.array([1, 1, 1, 3, 6, 3, 6, 6])
"""The lengths of the integers that follow each other in the words of a slot."""

DONE, ADDED_WIDE, REMOVED_WIDE, EMIT_WIDE = 0, 1, 2, 3
"""Why a call returned. After a wide row the cursor stands behind it; at a wide evaluation it stands on it."""

INTEGER_BASE = EXPONENT_BIAS
"""The base whose unit is 1."""

MOST_ROWS = 1 << 32
"""From here on a squared count does not fit a word; such a slot is evaluated like a wide one."""

_U63 = np.uint64(63)
_X, _XY, _Y, _XX, _YY = (np.uint64(at) for at in (X_AT, XY_AT, Y_AT, XX_AT, YY_AT))
_SPECIAL, _WIDE = np.uint64(SPECIAL_AT), np.uint64(WIDE_AT)


@inline
def _parts(bits: np.uint64, is_integer: bool, base: np.uint64) -> tuple[np.uint64, np.uint64, bool]:
    """A value's magnitude as mantissa · 2**shift units, and whether the narrow accumulators take it."""
    if is_integer:
        negative = bits >> _U63
        return (bits ^ (U0 - negative)) + negative, U0, True
    return split(bits, base)


@inline
def _add(
    words: Words,
    at: np.uint64,
    bits: np.uint64,
    is_integer: bool,
    mantissa: np.uint64,
    shift: np.uint64,
    leaving: np.uint64,
) -> None:
    """A value enters the sum at `at`, or leaves it."""
    if is_integer:
        change_integer(words, at, bits, leaving)
    else:
        change_narrow(words, at, mantissa, shift, (bits >> _U63) ^ leaving)


@inline
def _change(
    words: Words,
    width: int,
    slot: int,
    x: np.uint64,
    y: np.uint64,
    x_integer: bool,
    y_integer: bool,
    x_base: np.uint64,
    y_base: np.uint64,
    leaves: bool,
) -> bool:
    """A row (the bits of its values) enters or leaves; returns whether it is wide."""
    at = np.uint64(slot) * np.uint64(width)
    one = U0 - U1 if leaves else U1
    words[at] += one
    x_float, y_float = np.uint64(x).view(np.float64), np.uint64(y).view(np.float64)
    if not ((x_integer or np.isfinite(x_float)) and (y_integer or np.isfinite(y_float))):
        words[at + _SPECIAL] += one
        return False
    x_mantissa, x_shift, x_narrow = _parts(x, x_integer, x_base)
    y_mantissa, y_shift, y_narrow = _parts(y, y_integer, y_base)
    if not (x_narrow and y_narrow):
        words[at + _WIDE] += one
        return True
    leaving = np.uint64(leaves)
    _add(words, at + _X, x, x_integer, x_mantissa, x_shift, leaving)
    change_product(words, at + _XY, x_mantissa, y_mantissa, x_shift + y_shift, (x >> _U63) ^ (y >> _U63) ^ leaving)
    if width > ONE_ARGUMENT_WORDS:
        _add(words, at + _Y, y, y_integer, y_mantissa, y_shift, leaving)
    if width > COVARIANCE_WORDS:
        change_product(words, at + _XX, x_mantissa, x_mantissa, x_shift + x_shift, leaving)
        change_product(words, at + _YY, y_mantissa, y_mantissa, y_shift + y_shift, leaving)
    return False


@kernel
def play_moments(
    words: Words,
    width: int,
    x_base: int,
    y_base: int,
    x_integer: bool,
    y_integer: bool,
    add_slots: Slots,
    add_x: Words,
    add_y: Words,
    add_valid: Bools,
    add_masked: bool,
    remove_slots: Slots,
    remove_x: Words,
    remove_y: Words,
    remove_valid: Bools,
    remove_masked: bool,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    cursor: Int64s,
    scratch: Words,
    counts: Int64s,
    population: Floats,
    sample: Floats,
    correlation: Floats,
    defined: Bools,
) -> int:
    """Fills `counts` and those of the other columns that are not empty; `defined` is the validity of `correlation`."""
    x_unit, y_unit = np.uint64(x_base), np.uint64(y_base)
    x_exponent, y_exponent = x_base - EXPONENT_BIAS, y_base - EXPONENT_BIAS
    floats = not (x_integer or y_integer)  # these have a branch of their own: most moments are of doubles
    second = _Y if width > ONE_ARGUMENT_WORDS else _X
    step, entered = np.uint64(cursor[0]), np.uint64(cursor[1])
    left, emitted = np.uint64(cursor[2]), np.uint64(cursor[3])
    steps = np.uint64(len(add_upto))
    while step < steps:
        stop = np.uint64(add_upto[step])
        while entered < stop:
            slot = add_slots[entered]
            row = entered
            entered += U1
            if slot < 0 or (add_masked and not add_valid[row]):
                continue
            x_bits, y_bits = add_x[row], add_y[row]
            if floats:
                wide = _change(words, width, slot, x_bits, y_bits, False, False, x_unit, y_unit, False)
            else:
                wide = _change(words, width, slot, x_bits, y_bits, x_integer, y_integer, x_unit, y_unit, False)
            if wide:
                cursor[0], cursor[1], cursor[2], cursor[3] = step, entered, left, emitted
                return ADDED_WIDE
        stop = np.uint64(remove_upto[step])
        while left < stop:
            slot = remove_slots[left]
            row = left
            left += U1
            if slot < 0 or (remove_masked and not remove_valid[row]):
                continue
            x_bits, y_bits = remove_x[row], remove_y[row]
            if floats:
                wide = _change(words, width, slot, x_bits, y_bits, False, False, x_unit, y_unit, True)
            else:
                wide = _change(words, width, slot, x_bits, y_bits, x_integer, y_integer, x_unit, y_unit, True)
            if wide:
                cursor[0], cursor[1], cursor[2], cursor[3] = step, entered, left, emitted
                return REMOVED_WIDE
        stop = np.uint64(emit_upto[step])
        while emitted < stop:
            at = np.uint64(emit_slots[emitted]) * np.uint64(width)
            count = words[at]
            special = words[at + _SPECIAL] != U0
            if not special and (words[at + _WIDE] != U0 or count >= np.uint64(MOST_ROWS)):
                cursor[0], cursor[1], cursor[2], cursor[3] = step, entered, left, emitted
                return EMIT_WIDE
            counts[emitted] = np.int64(count)
            exact = not special
            otherwise = np.nan if special else 0.0
            x, y, xy = at + _X, at + second, at + _XY
            exponent = x_exponent + y_exponent
            squared = count * count
            if len(population) > 0:
                population[emitted] = otherwise
                if exact and count > U0:
                    population[emitted] = covariance(words, count, squared, x, y, xy, exponent, scratch)
            if len(sample) > 0:
                sample[emitted] = otherwise
                if exact and count > U1:
                    sample[emitted] = covariance(words, count, squared - count, x, y, xy, exponent, scratch)
            if len(correlation) > 0:
                correlation[emitted] = otherwise
                defined[emitted] = special and count > U1
                if exact and count > U1:
                    x_variance = covariance(words, count, squared, x, x, at + _XX, 2 * x_exponent, scratch)
                    y_variance = covariance(words, count, squared, y, y, at + _YY, 2 * y_exponent, scratch)
                    if x_variance > 0.0 and y_variance > 0.0:
                        shared = covariance(words, count, squared, x, y, xy, exponent, scratch)
                        correlation[emitted] = shared / (math.sqrt(x_variance) * math.sqrt(y_variance))
                        defined[emitted] = True
            emitted += U1
        step += U1
    cursor[:] = 0
    return DONE
