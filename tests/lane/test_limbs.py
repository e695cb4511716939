"""Sums of a strip in limbs against fractions: results, and the words that the state has behind the strip.

Exponents that are close together take the limbs, others do not; both must give the same.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.lane import sums, words
from penstock.lane.limbs import sum_in_limbs
from penstock.lane.memory import address_of

BASE = 1000
UNIT = Fraction(2) ** (BASE - 1075)


def doubles(least: int, spread: int) -> st.SearchStrategy[float]:
    """Doubles of a stretch of exponents, zeros among them; some have few bits, so that units differ."""
    mantissas = st.one_of(st.integers(2**52, 2**53 - 1), st.sampled_from([2**52, 2**52 + 1, 2**53 - 1, 3 * 2**51]))
    exponents = st.integers(BASE + least, BASE + min(97, least + spread))
    whole = st.builds(
        lambda m, e, sign: sign * float(m) * 2.0 ** (e - 1075), mantissas, exponents, st.sampled_from((-1, 1))
    )
    return st.one_of(whole, st.sampled_from([0.0, -0.0]))


@st.composite
def strips(draw: st.DrawFn) -> tuple[list[float], list[float], list[float], list[int]]:
    """What stays in the window, the rows of the tail's block that leave, the rows that enter, and how many of the tail
    have left with each of them."""
    values = doubles(draw(st.integers(0, 97)), draw(st.sampled_from([0, 3, 20, 33, 34, 60, 97])))
    stays, tail = draw(st.lists(values, max_size=8)), draw(st.lists(values, max_size=12))
    entering = draw(st.lists(values, min_size=1, max_size=12))
    left = sorted(draw(st.integers(0, len(tail))) for _ in entering)
    return stays, tail, entering, left


@given(strip=strips(), at=st.integers(0, 3))
def test_a_strip_gives_the_sums_of_fractions(
    strip: tuple[list[float], list[float], list[float], list[int]], at: int
) -> None:
    stays, tail, entering, left = strip
    window = [*stays, *tail]
    state = np.array([len(window), *in_words(sum(map(Fraction, window)))], np.uint64)
    totals, averages, counts = np.zeros(len(entering)), np.zeros(len(entering)), np.zeros(len(entering), np.int64)
    run(state, entering, [0.0] * at + tail, [at + gone for gone in left], at, totals, averages, counts)
    for row, gone in enumerate(left):
        now = [*stays, *tail[gone:], *entering[: row + 1]]
        expected = float(sum(map(Fraction, now)))
        assert totals[row].hex() == expected.hex()
        assert averages[row] == expected / len(now)
        assert counts[row] == len(now)
    behind = [*stays, *entering]
    assert state.tolist() == [len(behind), *in_words(sum(map(Fraction, behind)))]


def test_more_rows_leave_than_there_is_room_for() -> None:
    tail = [float(value) for value in range(3 * words.STRIP_ROWS)]
    state = np.array([len(tail), *in_words(Fraction(sum(tail)))], np.uint64)
    totals, averages, counts = np.zeros(1), np.zeros(1), np.zeros(1, np.int64)
    run(state, [2.5], tail, [len(tail)], 0, totals, averages, counts)
    assert totals.tolist() == [2.5]
    assert state.tolist() == [1, *in_words(Fraction(5, 2))]


def in_words(total: Fraction | int) -> list[int]:
    units = total / UNIT
    assert units.denominator == 1
    return [units.numerator >> 64 * at & (1 << 64) - 1 for at in range(3)]


def run(
    state: np.ndarray, entering: list[float], tail: list[float], left: list[int], at: int, *results: np.ndarray
) -> None:
    """One strip; the rows of the tail's block before `at` have left already."""
    context, instruction = np.zeros(words.CONTEXT_WORDS, np.int64), np.zeros(words.INSTRUCTION_WORDS, np.int64)
    kept, gone = np.zeros(words.KEPT_WORDS * words.STRIP_ROWS, np.int64), np.array(left)
    values, tail_values = np.array(entering), np.array(tail)
    context[words.KEPT], context[words.LEFT] = address_of(kept), address_of(gone)
    context[words.UPTO], context[words.TAIL_AT], context[words.TAIL_UPTO] = len(entering), at, len(tail)
    instruction[sums.WORDS], instruction[sums.BASE] = address_of(state), BASE
    instruction[sums.VALUES], instruction[sums.TAIL_VALUES] = address_of(values), address_of(tail_values)
    places = (sums.SUMS, sums.AVERAGES, sums.COUNTS)
    instruction[list(places)] = [address_of(result) for result in results]
    assert sum_in_limbs(address_of(context), address_of(instruction)) == words.GOES_ON
