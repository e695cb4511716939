"""From exact integers to the nearest double: the one place where a sum, a variance or a covariance is rounded.

All arithmetic is on unsigned 64-bit words. A magnitude is handed over as its leading word (normalised, top bit
set), whether anything not zero follows below it, and the exponent of that word's last bit. Rounding is to the
nearest double, ties to even, gradual underflow included; what exceeds the range becomes infinity.

Called by the kernels of sums and moments.
"""

from __future__ import annotations

import numpy as np

from penstock.jit import kernel, leading_zeros

U0 = np.uint64(0)
U1 = np.uint64(1)
U63 = np.uint64(63)
_DROPPED = np.uint64(11)
_DROPPED_MASK = np.uint64(0x7FF)
_JUST_UNDER_HALF = np.uint64(0x3FF)
_IMPLICIT = np.uint64(1 << 52)
_FRACTION_BITS = np.uint64(52)
_INFINITY = np.uint64(0x7FF << 52)
_NEVER_INFINITE = np.uint64(2045)

EXPONENT_BIAS = 1075
"""The biased exponent e of a double scales its 53-bit integer mantissa by 2**(e - 1075)."""


LEAST_EXPONENT, GREATEST_EXPONENT = 62 - 1022, 1024 - 63 - 128


@kernel
def nearest_double(leading: np.uint64, rest: bool, exponent: int, negative: bool) -> float:
    """±(leading + something in (0, 1) if `rest`) · 2**exponent, correctly rounded; `leading` ≥ 2**63."""
    biased = exponent + 11 + EXPONENT_BIAS
    sign = np.uint64(negative) << U63
    leading |= np.uint64(rest)
    if np.uint64(biased - 1) < _NEVER_INFINITE:
        bits = (np.uint64(biased) << _FRACTION_BITS) + _round_off(leading) - _IMPLICIT
    elif biased > 0:
        bits = _INFINITY
        if biased == 2046:
            bits = min(bits, (np.uint64(biased) << _FRACTION_BITS) + _round_off(leading) - _IMPLICIT)
    else:
        shift = np.uint64(1 - biased)
        if shift > U63:
            bits = U0
        else:
            lost = (leading & ((U1 << shift) - U1)) != U0
            bits = _round_off((leading >> shift) | np.uint64(lost))
    return np.uint64(bits | sign).view(np.float64)


@kernel
def _round_off(word: np.uint64) -> np.uint64:
    """Drops the last 11 bits, rounding half to even."""
    kept = word >> _DROPPED
    return kept + (((word & _DROPPED_MASK) + _JUST_UNDER_HALF + (kept & U1)) >> _DROPPED)


@kernel
def normalise(leading: np.uint64, following: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The 64 bits from the first set bit of `leading` on, and by how many places that shifted."""
    shift = leading_zeros(leading)
    return (leading << shift) | ((following >> U1) >> (U63 - shift)), shift


@kernel
def round_three_words(high: np.uint64, middle: np.uint64, low: np.uint64, exponent: int) -> float:
    """The two's complement integer of three words times 2**exponent, correctly rounded. Zero is +0.0.

    For exponents in LEAST_EXPONENT .. GREATEST_EXPONENT, where neither the scale nor the result leaves the normal
    range. The leading 62 bits or more, as a signed word whose last bit is set if anything not zero follows, are
    rounded by the processor's own conversion: that last bit lies far below the place of rounding.

    >>> round_three_words(np.uint64(0), np.uint64(0), np.uint64(3), -1)
    1.5
    """
    if high != np.uint64(np.int64(middle) >> 63):
        leading, following, last = high, middle, low
        exponent += 128
    elif middle != np.uint64(np.int64(low) >> 63):
        leading, following, last = middle, low, U0
        exponent += 64
    else:
        leading, following, last = low, U0, U0
    # The places that only repeat the sign are shifted out.
    repeated = (leading ^ np.uint64(np.int64(leading) >> 63)) | U1
    shift = leading_zeros(repeated) - U1
    word = (leading << shift) | ((following >> U1) >> (U63 - shift))
    word |= np.uint64(((following << shift) | last) != U0)
    scale = np.uint64(exponent - np.int64(shift) + 1023) << _FRACTION_BITS
    return np.float64(np.int64(word)) * np.uint64(scale).view(np.float64)
