"""Variances, covariances and correlations against rational arithmetic."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from checks import History, Player, Step, Window, check_history, check_state, make_history
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates.moments import ComomentsState, MomentsState
from penstock.aggregates.state import Argument, Want

ONE = ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP")
TWO = ("COVAR_POP", "COVAR_SAMP", "CORR")

HUGE_AND_TINY = [1e300, -1e300, 1e-300, -1e-300, 5e-324, 1e154, 1e-160, 1.7976931348623157e308, 1.0, -1.0, 0.0, -0.0]
CLOSE = [1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 1e8, 1e8 + 2.0**-26, 3.0, 0.1]
SPECIAL = [math.nan, math.inf, -math.inf, 1.0, 2.0, 1e300, 5.0]
POOLS = pytest.mark.parametrize("pool", [HUGE_AND_TINY, CLOSE, SPECIAL], ids=["huge", "close", "special"])


def make_moments(integer: bool = False) -> MomentsState:
    return MomentsState([Want(f) for f in ONE], integer)


def make_comoments(x_integer: bool = False, y_integer: bool = False) -> ComomentsState:
    return ComomentsState([Want(f) for f in TWO], x_integer, y_integer)


def nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def covariance(xs: list[Any], ys: list[Any], less: int) -> float | None:
    count = len(xs)
    if count <= less:
        return None
    if not all(math.isfinite(v) for v in xs + ys):
        return math.nan
    a, b = [Fraction(x) for x in xs], [Fraction(y) for y in ys]
    mean_a, mean_b = sum(a) / count, sum(b) / count
    return nearest(sum(((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)), Fraction(0)) / (count - less))


def root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def moments_oracle(window: Window) -> list[object]:
    values = [v for (v,) in window if v is not None]
    population, sample = covariance(values, values, 0), covariance(values, values, 1)
    return [population, sample, root(population), root(sample)]


def comoments_oracle(window: Window) -> list[object]:
    pairs = [(x, y) for x, y in window if x is not None and y is not None]
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    shared = covariance(xs, ys, 0)
    correlation: float | None = None
    if len(pairs) > 1 and shared is not None:
        x_variance, y_variance = covariance(xs, xs, 0), covariance(ys, ys, 0)
        assert x_variance is not None
        assert y_variance is not None
        if not all(math.isfinite(v) for v in xs + ys):
            correlation = math.nan
        elif x_variance > 0.0 and y_variance > 0.0:
            scale = math.sqrt(x_variance) * math.sqrt(y_variance)
            correlation = math.nan if math.isinf(shared) and math.isinf(scale) else shared / scale
    return [shared, covariance(xs, ys, 1), correlation]


def some_null(rng: np.random.Generator, count: int) -> np.ndarray | None:
    return rng.random(count) < 0.7 if rng.random() < 0.5 else None


@POOLS
def test_adversarial_variances(pool: list[float]) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return (Argument(rng.choice(np.array(pool), count), some_null(rng, count)),)

    check_state(make_moments, draw, moments_oracle, rounds=4, rows=60)


@POOLS
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_adversarial_covariances(pool: list[float]) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return tuple(Argument(rng.choice(np.array(pool), count), some_null(rng, count)) for _ in range(2))

    check_state(make_comoments, draw, comoments_oracle, rounds=4, rows=60)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_values_of_every_type(dtype: type) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        scale = 10.0 ** rng.integers(0, 9)
        return tuple(Argument((rng.normal(size=count) * scale).astype(dtype), some_null(rng, count)) for _ in range(2))

    def first(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return draw(rng, count)[:1]

    integer = np.issubdtype(dtype, np.integer)
    check_state(lambda: make_moments(integer), first, moments_oracle, rounds=4, rows=60)
    check_state(lambda: make_comoments(integer, integer), draw, comoments_oracle, rounds=4, rows=60)


INTEGERS = [2**53 + 1, 2**53, -(2**53) - 1, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 3, -3, 0]
"""Most of them a double does not tell from their neighbours."""


def test_integers_are_not_rounded_on_their_way() -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return (Argument(rng.choice(np.array(INTEGERS), count), some_null(rng, count)),)

    check_state(lambda: make_moments(True), draw, moments_oracle, rounds=6, rows=60)


@pytest.mark.parametrize(
    "pool", [INTEGERS, HUGE_AND_TINY, CLOSE, SPECIAL], ids=["integers", "huge", "close", "special"]
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_integers_beside_doubles(pool: list[Any], first: bool) -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        columns = (rng.choice(np.array(INTEGERS), count), rng.choice(np.array(pool), count))
        one, other = (Argument(values, some_null(rng, count)) for values in columns)
        return (one, other) if first else (other, one)

    integers = (True, pool is INTEGERS) if first else (pool is INTEGERS, True)
    check_state(lambda: make_comoments(*integers), draw, comoments_oracle, rounds=4, rows=60)


any_float = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=40, deadline=None)
@given(st.lists(any_float, max_size=25), st.integers(0, 2**32), st.integers(1, 4))
def test_any_variances(values: list[float], seed: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = (Argument(np.array(values, dtype=np.float64), None),)
    check_history(make_moments, make_history(rng, arguments, slots), moments_oracle, rng)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(any_float, any_float), max_size=25), st.integers(0, 2**32), st.integers(1, 4))
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_any_covariances(pairs: list[tuple[float, float]], seed: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    columns = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()
    arguments = (Argument(columns[0], None), Argument(columns[1], None))
    check_history(make_comoments, make_history(rng, arguments, slots), comoments_oracle, rng)


def test_covariance_without_correlation() -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return tuple(Argument(rng.normal(size=count), some_null(rng, count)) for _ in range(2))

    check_state(
        lambda: ComomentsState([Want("COVAR_SAMP"), Want("COVAR_POP")], False, False),
        draw,
        lambda window: comoments_oracle(window)[1::-1],
        rounds=4,
        rows=60,
    )


def rows_of_one_slot(values: np.ndarray) -> History:
    return History(np.zeros(len(values), dtype=np.int32), (Argument(values, None),), np.arange(len(values)), ())


def test_a_great_mean_does_not_drown_the_variance() -> None:
    """
    1e9+4  1e9+7  1e9+13  1e9+16      the textbook formula in doubles gives a negative variance
    |------------------------->   30
    """
    values = np.array([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16])
    history = rows_of_one_slot(values)
    player = Player(MomentsState([Want("VAR_SAMP")], False), history)
    player.play([Step(4, 0, (0,))])
    assert player.answers == [(struct.pack("<d", 30.0),)]


def test_a_wide_row_gives_its_memory_back() -> None:
    history = rows_of_one_slot(np.array([1.0, 1e300]))
    player = Player(make_moments(), history)
    player.play([Step(1, 0, ())])
    narrow = player.state.nbytes
    player.play([Step(1, 0, ())])
    assert player.state.nbytes > narrow
    player.play([Step(0, 2, (0,))])
    assert player.answers == [(None,) * 4]
    assert len(player.state.snapshot()["wide"]["slots"]) == 0


def test_more_rows_than_a_squared_count_can_hold() -> None:
    """Two rows (1 and 3), each 2**31 times: played once, then multiplied in the snapshot."""
    history = rows_of_one_slot(np.array([1.0, 3.0]))
    player = Player(make_moments(), history)
    player.play([Step(2, 0, ())])
    snapshot = player.state.snapshot()
    words = snapshot["words"].copy()
    for start, stop in ((0, 1), (3, 6), (6, 12)):
        total = int.from_bytes(words[start:stop].tobytes(), "little") << 31
        words[start:stop] = np.frombuffer(total.to_bytes(8 * (stop - start), "little"), dtype=np.uint64)
    player.state.restore({**snapshot, "words": words})
    player.play([Step(0, 0, (0,))])
    sample = float(Fraction(2**32, 2**32 - 1))
    assert player.answers == [tuple(struct.pack("<d", v) for v in (1.0, sample, 1.0, math.sqrt(sample)))]
