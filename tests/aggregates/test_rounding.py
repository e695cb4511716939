"""Rounding of exact integers against rational arithmetic."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.aggregates.rounding import GREATEST_EXPONENT, LEAST_EXPONENT, nearest_double, round_three_words

WORD = (1 << 64) - 1


def nearest(value: Fraction) -> bytes:
    try:
        return struct.pack("<d", float(value))
    except OverflowError:
        return struct.pack("<d", math.inf if value > 0 else -math.inf)


three_words = st.one_of(
    st.integers(-(2**191), 2**191 - 1),
    st.builds(lambda shift, near: (1 << shift) + near, st.integers(0, 189), st.integers(-3, 3)),
    st.builds(lambda mantissa, shift: mantissa << shift, st.integers(-(2**55), 2**55), st.integers(0, 135)),
)


@settings(max_examples=400, deadline=None)
@given(three_words, st.integers(LEAST_EXPONENT, GREATEST_EXPONENT))
@example(-(2**191), GREATEST_EXPONENT)
@example(1, LEAST_EXPONENT)
@example((2**53 + 1) << 100, 0)
@example(((2**53 + 1) << 100) + 1, 0)
@example(-(((2**53 + 1) << 100) - 1), 0)
def test_three_words(integer: int, exponent: int) -> None:
    high, middle, low = (np.uint64((integer >> shift) & WORD) for shift in (128, 64, 0))
    assert struct.pack("<d", round_three_words(high, middle, low, exponent)) == nearest(
        integer * Fraction(2) ** exponent
    )


leading_word = st.one_of(
    st.integers(2**63, 2**64 - 1), st.builds(lambda m: m << 10, st.integers(2**53, 2**54 - 1)), st.just(2**64 - 1)
)


@settings(max_examples=400, deadline=None)
@given(leading_word, st.booleans(), st.one_of(st.integers(-1200, 1000), st.integers(-1150, -1070)), st.booleans())
@example(2**64 - 1, True, 960, False)
@example(2**63, False, -1138, True)
@example(2**63, True, -1138, False)
def test_the_whole_range(leading: int, rest: bool, exponent: int, negative: bool) -> None:
    exact = (leading + Fraction(rest, 3)) * Fraction(2) ** exponent
    seen = nearest_double(np.uint64(leading), rest, exponent, negative)
    assert struct.pack("<d", abs(seen)) == nearest(exact)
    assert math.copysign(1, seen) == (-1 if negative else 1)
