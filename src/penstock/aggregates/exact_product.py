"""Exact sums of products, and the one rounded division that makes a covariance of them.

A product of two narrow floats (see `exact_sum`) has at most 106 bits and a shift of at most 194 units; a sum of 2**41
of them fits a two's complement integer of six 64-bit words. With n rows, sums A and B and the sum of products P, all
in integer units, the covariance is (n·P - A·B) / (n·n) or / (n·(n-1)): numerator and divisor are computed exactly and
only their quotient is rounded. A variance is the covariance of a column with itself.

Called by the kernel of moments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.aggregates.rounding import U0, U1, U63, nearest_double, normalise
from penstock.aggregates.wide import Words
from penstock.jit import intrinsic, kernel, leading_zeros, numba_types

SUM_WORDS = 3
PRODUCT_WORDS = 6
SCRATCH_WORDS = 2 * SUM_WORDS + PRODUCT_WORDS + 2 * (PRODUCT_WORDS + 1)

# Where the parts of a computation stand in the scratch words.
_LEFT, _RIGHT, _PRODUCT, _MINUEND, _SUBTRAHEND = 0, 3, 6, 12, 19
_NUMERATOR_WORDS = PRODUCT_WORDS + 1
_U2 = np.uint64(2)
_U6 = np.uint64(6)
_U32 = np.uint64(32)
_HALF_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(1 << 32)


@intrinsic
def multiply(typing: Any, left: Any, right: Any) -> Any:
    """The high and the low word of left · right: one instruction of the processor that numba has no name for."""

    def generate(context: Any, builder: Any, signature: Any, factors: Any) -> Any:
        word = factors[0].type
        double = type(word)(128)
        product = builder.mul(builder.zext(factors[0], double), builder.zext(factors[1], double))
        high = builder.trunc(builder.lshr(product, double(64)), word)
        return context.make_tuple(builder, signature.return_type, (high, builder.trunc(product, word)))

    types = numba_types()
    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


@kernel
def divide(high: np.uint64, low: np.uint64, divisor: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Quotient and remainder of two words by one, where high < divisor and the divisor's top bit is set.

    Long division in digits of 32 bits: the estimate of a digit from the divisor's upper half is at most two too large.
    """
    divisor_high, divisor_low = divisor >> _U32, divisor & _HALF_MASK
    remainder = high
    quotient = U0
    for digit in (low >> _U32, low & _HALF_MASK):
        estimate = remainder // divisor_high
        left_over = remainder - estimate * divisor_high
        while left_over < _HALF and (estimate >= _HALF or estimate * divisor_low > (left_over << _U32) + digit):
            estimate -= U1
            left_over += divisor_high
        remainder = (remainder << _U32) + digit - estimate * divisor
        quotient = (quotient << _U32) + estimate
    return quotient, remainder


@kernel
def change_product(
    words: Words, at: np.uint64, left: np.uint64, right: np.uint64, shift: np.uint64, negative: np.uint64
) -> None:
    """The six words at `at` += ±left · right · 2**shift, for shift ≤ 194 unless the product is zero."""
    high, low = multiply(left, right)
    if high | low == U0:
        return
    bit = shift & U63
    skipped = shift >> _U6
    flip = U0 - negative
    carry = negative
    for index in range(np.int64(skipped), PRODUCT_WORDS):
        part = low << bit
        low, high = ((low >> U1) >> (U63 - bit)) | (high << bit), (high >> U1) >> (U63 - bit)
        bit = U0
        addend = part ^ flip
        partial = words[at + np.uint64(index)] + addend
        overflow = np.uint64(partial < addend)
        result = partial + carry
        carry = overflow | np.uint64(result < carry)
        words[at + np.uint64(index)] = result
        if high | low == U0 and carry == negative:
            return  # nothing changes further up: zero and no carry, or all ones and a carry


@kernel
def _magnitude(words: Words, at: np.uint64, count: int, scratch: Words, to: int) -> tuple[bool, int]:
    """The absolute value of a two's complement integer, into scratch; was it negative, how many words it takes."""
    negative = (words[at + np.uint64(count - 1)] >> U63) != U0
    flip = U0 - np.uint64(negative)
    carry = np.uint64(negative)
    used = 0
    for index in range(count):
        word = (words[at + np.uint64(index)] ^ flip) + carry
        carry &= np.uint64(word == U0)
        scratch[np.uint64(to + index)] = word
        used = index + 1 if word != U0 else used
    return negative, used


@kernel
def _numerator(
    words: Words, count: np.uint64, left: np.uint64, right: np.uint64, product: np.uint64, scratch: Words
) -> tuple[bool, int]:
    """|n·P - A·B| into the minuend's part of scratch; was it negative, how many words it takes."""
    for index in range(_MINUEND, SCRATCH_WORDS):
        scratch[np.uint64(index)] = U0
    negative, used = _magnitude(words, product, PRODUCT_WORDS, scratch, _PRODUCT)
    left_negative, left_used = _magnitude(words, left, SUM_WORDS, scratch, _LEFT)
    right_negative, right_used = _magnitude(words, right, SUM_WORDS, scratch, _RIGHT)
    carry = U0
    for index in range(used):
        high, low = multiply(scratch[np.uint64(_PRODUCT + index)], count)
        low += carry
        carry = high + np.uint64(low < carry)
        scratch[np.uint64(_MINUEND + index)] = low
    scratch[np.uint64(_MINUEND + used)] = carry
    for row in range(left_used):
        factor = scratch[np.uint64(_LEFT + row)]
        carry = U0
        for index in range(right_used):
            at = np.uint64(_SUBTRAHEND + row + index)
            high, low = multiply(factor, scratch[np.uint64(_RIGHT + index)])
            low += carry
            carry = high + np.uint64(low < carry)
            low += scratch[at]
            carry += np.uint64(low < scratch[at])
            scratch[at] = low
        scratch[np.uint64(_SUBTRAHEND + row + right_used)] = carry
    # Same signs: the magnitudes are subtracted, which is adding the complement.
    subtract = negative == (left_negative != right_negative)
    flip = U0 - np.uint64(subtract)
    carry = np.uint64(subtract)
    for index in range(_NUMERATOR_WORDS):
        at = np.uint64(_MINUEND + index)
        addend = scratch[at + np.uint64(_NUMERATOR_WORDS)] ^ flip
        partial = scratch[at] + addend
        overflow = np.uint64(partial < addend)
        result = partial + carry
        carry = overflow | np.uint64(result < carry)
        scratch[at] = result
    flipped, used = _magnitude(scratch, np.uint64(_MINUEND), _NUMERATOR_WORDS, scratch, _MINUEND)
    return negative != flipped, used


@kernel
def covariance(
    words: Words,
    count: np.uint64,
    divisor: np.uint64,
    left: np.uint64,
    right: np.uint64,
    product: np.uint64,
    exponent: int,
    scratch: Words,
) -> float:
    """(n·P - A·B) · 2**exponent / divisor, correctly rounded; A, B and P stand at `left`, `right` and `product`."""
    negative, used = _numerator(words, count, left, right, product, scratch)
    if used == 0:
        return 0.0
    top = np.uint64(_MINUEND + used - 1)
    first = scratch[top]
    second = scratch[top - U1] if used > 1 else U0
    third = scratch[top - _U2] if used > 2 else U0
    leading, shift = normalise(first, second)
    following = (second << shift) | ((third >> U1) >> (U63 - shift))
    rest = (following & U1) != U0 or (third << shift) != U0
    for index in range(_MINUEND, _MINUEND + used - 3):
        rest = rest or scratch[np.uint64(index)] != U0
    # One place to the right, so that the leading word is below the normalised divisor.
    widening = leading_zeros(divisor)
    quotient, remainder = divide(leading >> U1, (leading << U63) | (following >> U1), divisor << widening)
    rest = rest or remainder != U0
    spare = leading_zeros(quotient)
    exponent += 64 * (used - 2) + 1 + int(np.int64(widening) - np.int64(shift) - np.int64(spare))
    return nearest_double(quotient << spare, rest, exponent, negative)
