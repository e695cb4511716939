"""From exact integers to the nearest double: the one place where a sum, a variance or a covariance is rounded.

All arithmetic is on unsigned 64-bit words. A magnitude is handed over as its leading word (normalised, top bit
set), whether anything not zero follows below it, and the exponent of that word's last bit. Rounding is to the
nearest double, ties to even, gradual underflow included; what exceeds the range becomes infinity.

Called by the kernels of sums and moments.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import leading_zeros

from penstock.jit import kernel

U0 = np.uint64(0)
U1 = np.uint64(1)
U63 = np.uint64(63)
_DROPPED = np.uint64(11)
_DROPPED_MASK = np.uint64(0x7FF)
_JUST_UNDER_HALF = np.uint64(0x3FF)
_IMPLICIT = np.uint64(1 << 52)
_FRACTION_BITS = np.uint64(52)
_INFINITY = np.uint64(0x7FF << 52)
_SIGN = np.uint64(1 << 63)

EXPONENT_BIAS = 1075
"""The biased exponent e of a double scales its 53-bit integer mantissa by 2**(e - 1075)."""


@kernel
def nearest_double(leading: np.uint64, rest: bool, exponent: int, negative: bool) -> float:
    """±(leading + something in (0, 1) if `rest`) · 2**exponent, correctly rounded; `leading` ≥ 2**63."""
    biased = exponent + 11 + EXPONENT_BIAS
    leading |= np.uint64(rest)
    if biased <= 0:
        shift = np.uint64(1 - biased)
        if shift > U63:
            leading = U1
        else:
            lost = (leading & ((U1 << shift) - U1)) != U0
            leading = (leading >> shift) | np.uint64(lost)
        biased = 0
    mantissa = leading >> _DROPPED
    mantissa += ((leading & _DROPPED_MASK) + _JUST_UNDER_HALF + (mantissa & U1)) >> _DROPPED
    if biased > 0:
        bits = (np.uint64(biased) << _FRACTION_BITS) + (mantissa - _IMPLICIT)
        if biased >= 2047 or bits > _INFINITY:
            bits = _INFINITY
    else:
        bits = mantissa
    return np.uint64(bits | (np.uint64(negative) << U63)).view(np.float64)


@kernel
def normalise(leading: np.uint64, following: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The 64 bits from the first set bit of `leading` on, and by how many places that shifted."""
    shift = leading_zeros(leading)
    return (leading << shift) | ((following >> U1) >> (U63 - shift)), shift


@kernel
def round_three_words(high: np.uint64, middle: np.uint64, low: np.uint64, exponent: int) -> float:
    """The two's complement integer of three words times 2**exponent, correctly rounded. Zero is +0.0.

    >>> round_three_words(np.uint64(0), np.uint64(0), np.uint64(3), -1)
    1.5
    """
    negative = high >= _SIGN
    flip = U0 - np.uint64(negative)
    low = (low ^ flip) - flip
    borrow = np.uint64(negative and low == U0)
    middle = (middle ^ flip) + borrow
    high = (high ^ flip) + (borrow & np.uint64(middle == U0))
    rest = False
    if high != U0:
        rest = low != U0
        exponent += 128
        leading, following = high, middle
    elif middle != U0:
        exponent += 64
        leading, following = middle, low
    elif low != U0:
        leading, following = low, U0
    else:
        return 0.0
    leading, shift = normalise(leading, following)
    return nearest_double(leading, rest or (following << shift) != U0, exponent - np.int64(shift), negative)
