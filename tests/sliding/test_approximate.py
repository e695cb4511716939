"""Close slides as one: the stated error holds, and fewer groups are left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.windows.sliding.calendar import Calendar
from penstock_bench.sliding.approximate import Approximate
from penstock_bench.sliding.plain import Plain

TOLERANCES = st.floats(0, 0.9)


@given(TOLERANCES, st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
def test_the_slide_used_is_never_longer_and_shorter_by_the_tolerance_at_most(tol: float, slides: list[int]) -> None:
    close = Approximate(Plain(), max(tol, 0.001))
    for slide in slides:
        used = close.used(slide)
        assert (1 - max(tol, 0.001)) * slide * (1 - 1e-12) <= used <= slide
        assert used == slide or slide * max(tol, 0.001) >= 1
    assert [close.used(s) for s in slides] == [Approximate(Plain(), max(tol, 0.001)).used(s) for s in slides]


@given(TOLERANCES, st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_distances_between_evaluations_keep_the_bound(tolerance: float, slides: list[int]) -> None:
    close = Approximate(Calendar(), tolerance)
    for query, slide in enumerate(slides[::2]):
        close.register(query, slide)
    rest = np.array(slides[1::2], np.int64)
    close.register_many(len(slides[::2]) + np.arange(len(rest)), rest)
    found = close.candidates(2000)
    for query, slide in enumerate([*slides[::2], *slides[1::2]]):
        due = [0, *found.positions[found.queries == query].tolist()]
        distances = set(np.diff(due).tolist())
        assert len(distances) == 1
        assert (1 - tolerance) * slide - 1e-9 <= distances.pop() <= slide


def test_no_tolerance_is_exact() -> None:
    close, exact = Approximate(Plain(), 0), Plain()
    for strategy in (close, exact):
        strategy.register_many(np.arange(50), np.arange(1, 51))
    assert close.candidates(100).queries.tolist() == exact.candidates(100).queries.tolist()


def test_fewer_groups_are_left() -> None:
    inner = Calendar()
    close = Approximate(inner, 0.1)
    close.register_many(np.arange(1999), np.arange(2, 2001))
    assert len(inner.groups) == 54
    close.remove(5)
    assert inner.groups.queries == 1998
    assert close.position == 0
    close.candidates(10)
    assert close.work.positions == 10


def test_a_tolerance_is_a_part() -> None:
    with pytest.raises(InputError, match="tolerance"):
        Approximate(Plain(), 1.0)
