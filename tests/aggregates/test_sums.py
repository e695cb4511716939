"""SUM, AVG and COUNT against math.fsum and Python's integers, on values chosen to break float sums."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from checks import FAILED, History, Player, Step, Window, check_history, check_state, make_history
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates.state import Argument, Want
from penstock.aggregates.sums import SumState

WANTS = (Want("SUM"), Want("AVG"), Want("COUNT"))

HUGE_AND_TINY = [1e300, -1e300, 1e-300, -1e-300, 5e-324, -5e-324, 1.7976931348623157e308, 1.0, -1.0, 0.0, -0.0]
BOUNDARIES = [2.0**53, -(2.0**53), 2.0**53 + 2, 1.0, 0.5, 2.0**-53, 2.0**-54, -(2.0**-54), 3.0, 2.0**-106, 2.0**-1]
SUBNORMAL = [5e-324, 1e-323, -1.5e-323, 2.2250738585072014e-308, -2.2250738585072009e-308, 4.4e-310, 0.0]
GREATEST = [1.7976931348623157e308, -1.7976931348623157e308, math.nan, math.inf, 8.98846567431158e307]
SPECIAL = [math.nan, math.inf, -math.inf, 1.0, 1e16, 1e-16, -1e16, 1e308, 0.1]


def make_float_state() -> SumState:
    return SumState(integer=False, wants=WANTS)


def make_integer_state() -> SumState:
    return SumState(integer=True, wants=WANTS)


def exact_sum(values: Sequence[float]) -> float:
    if any(math.isnan(v) for v in values) or (math.inf in values and -math.inf in values):
        return math.nan
    infinite = [v for v in values if math.isinf(v)]
    if infinite:
        return infinite[0]
    try:
        return math.fsum(values)
    except OverflowError:
        # Either the sum is beyond the range, or only fsum's partial sums are: exact integers tell.
        units = sum(int(math.ldexp(math.frexp(v)[0], 53)) << (math.frexp(v)[1] + 1074) for v in values)
        try:
            return units / (1 << (1074 + 53))
        except OverflowError:
            return math.inf if units > 0 else -math.inf


def float_oracle(window: Window) -> list[object]:
    values = [float(v) for (v,) in window if v is not None]
    if not values:
        return [None, None, 0]
    total = exact_sum(values)
    return [total, total / len(values), len(values)]


def integer_oracle(window: Window) -> list[object]:
    values = [v for (v,) in window if isinstance(v, int)]
    if not values:
        return [None, None, 0]
    total = sum(values)
    return [total if -(2**63) <= total < 2**63 else FAILED, float(total) / len(values), len(values)]


def some_null(rng: np.random.Generator, count: int) -> np.ndarray | None:
    return rng.random(count) < 0.7 if rng.random() < 0.5 else None


@pytest.mark.parametrize(
    "pool",
    [HUGE_AND_TINY, BOUNDARIES, SUBNORMAL, GREATEST, SPECIAL],
    ids=["huge", "ties", "subnormal", "greatest", "special"],
)
def test_adversarial_floats(pool: list[float]) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return (Argument(rng.choice(np.array(pool), count), some_null(rng, count)),)

    check_state(make_float_state, draw, float_oracle)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_of_every_size(dtype: type) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        spread = rng.choice([1, 10, 37])
        values = rng.normal(size=count) * 10.0 ** rng.integers(-spread, spread + 1, count)
        return (Argument(values.astype(dtype), some_null(rng, count)),)

    check_state(make_float_state, draw, float_oracle)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers(dtype: type) -> None:
    limits = np.iinfo(dtype)
    pool = np.array([limits.min, limits.min + 1, -1, 0, 1, limits.max - 1, limits.max], dtype=dtype)

    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return (Argument(rng.choice(pool, count), some_null(rng, count)),)

    check_state(make_integer_state, draw, integer_oracle)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=40),
    st.integers(0, 2**32),
    st.integers(1, 5),
)
def test_any_floats(values: list[float], seed: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = (Argument(np.array(values, dtype=np.float64), None),)
    check_history(make_float_state, make_history(rng, arguments, slots), float_oracle, rng)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), st.integers(0, 2**32), st.integers(1, 5))
def test_any_integers(values: list[int], seed: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = (Argument(np.array(values, dtype=np.int64), None),)
    check_history(make_integer_state, make_history(rng, arguments, slots), integer_oracle, rng)


def rows_of_slots(slots: list[int], values: list[float]) -> History:
    arguments = (Argument(np.array(values), None),)
    return History(np.array(slots, dtype=np.int32), arguments, np.arange(len(values)), ())


def sums_of_one_slot(values: list[float], steps: list[Step]) -> list[float]:
    player = Player(make_float_state(), rows_of_slots([0] * len(values), values))
    player.play(steps)
    return [struct.unpack("<d", total)[0] for total, _, _ in player.answers]


def test_cancellation_leaves_the_smallest() -> None:
    """
    1e16  1  1e-16  -1e16  -1
    |---------------------->   1e-16
    """
    assert sums_of_one_slot([1e16, 1.0, 1e-16, -1e16, -1.0], [Step(5, 0, (0,))]) == [1e-16]


def test_negative_zeros_sum_to_what_fsum_says() -> None:
    (total,) = sums_of_one_slot([-0.0, -0.0], [Step(2, 0, (0,))])
    assert struct.pack("<d", total) == struct.pack("<d", math.fsum([-0.0, -0.0]))


def test_beyond_the_range_is_infinite_until_it_leaves() -> None:
    greatest = 1.7976931348623157e308
    steps = [Step(2, 0, (0,)), Step(1, 1, (0,)), Step(0, 1, (0,))]
    assert sums_of_one_slot([greatest, greatest, 1.0], steps) == [math.inf, greatest, 1.0]


def test_a_long_slide_does_not_drift() -> None:
    rng = np.random.default_rng(3)
    count, size = 50_000, 1_000
    values = rng.normal(size=count) * 10.0 ** rng.integers(-20, 20, count)
    steps = [Step(1, int(i >= size), (0,) if i % 997 == 0 or i == count - 1 else ()) for i in range(count)]
    ends = [i for i, step in enumerate(steps) if step.emits]
    want = [math.fsum(values[max(0, i - size + 1) : i + 1]) for i in ends]
    assert sums_of_one_slot(values.tolist(), steps) == want


def test_wide_rows_are_given_back() -> None:
    values = [1.0, 1e300, 1e-300, math.nan, math.inf]
    player = Player(make_float_state(), rows_of_slots([0, 1, 2, 3, 4], values))
    player.play([Step(1, 0, ())])
    narrow = player.state.nbytes
    player.play([Step(4, 0, ())])
    assert player.state.nbytes > narrow
    player.play([Step(0, 5, (0, 1, 2, 3, 4))])
    assert player.state.nbytes == narrow


@pytest.mark.parametrize("functions", [["AVG"], ["COUNT", "SUM"], ["SUM"]])
def test_serves_what_is_wanted_in_order(functions: list[str]) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return (Argument(rng.integers(-100, 100, count), None),)

    def oracle(window: Window) -> list[object]:
        served = dict(zip(["SUM", "AVG", "COUNT"], integer_oracle(window), strict=True))
        return [served[function] for function in functions]

    check_state(lambda: SumState(True, [Want(f) for f in functions]), draw, oracle, rounds=3)
