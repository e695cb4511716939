"""Rate-sized windows against their definition, written out in plain Python, however the evaluations are cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.joins.rate_sizing import ceil_ratio
from penstock.operators.joins.windows import RangeWindow, RateSizedWindow, SideRows
from penstock.windows.spec import RateSized

from .rate_oracle import Event, by_definition


def by_window(events: list[Event], spec: RateSized, cuts: list[int], restart: bool) -> list[int]:
    window = RateSizedWindow(spec)
    rows: list[int] = []
    first, tails = 0, []
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        run = events[start:stop]
        heads = len(rows) + np.cumsum([own for _, own in run], dtype=np.int64)
        rows += [time for time, own in run if own]
        if restart:
            saved = window.snapshot()
            window = RateSizedWindow(spec)
            window.restore(saved)
        times = np.array([time for time, _ in run], np.int64)
        found = window.tails(times, heads, SideRows(first, np.array(rows[first:], np.int64)))
        tails += found.tolist()
        first = tails[-1] if tails else 0
    return tails


GAPS = st.one_of(st.integers(0, 3), st.integers(0, 30), st.sampled_from([0, 10, 200, 10**7]))
STORIES = st.lists(st.tuples(GAPS, st.booleans()), max_size=60)
SPECS = st.builds(
    lambda d, every, depth, percent: RateSized(d, every * depth, every, percent),
    st.integers(1, 60),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from([0, 0, 10, 50, 300]),
)


@settings(max_examples=300, deadline=None)
@given(STORIES, SPECS, st.lists(st.integers(0, 60), max_size=5), st.booleans(), st.integers(-100, 100))
def test_windows_are_as_defined(
    story: list[tuple[int, bool]], spec: RateSized, cuts: list[int], restart: bool, start: int
) -> None:
    times = start + np.cumsum([gap for gap, _ in story], dtype=np.int64)
    if len(times) and times[-1] - times[0] > 10**6:  # the definition goes through every boundary
        spec = RateSized(spec.micros * 10**5, spec.sample * 10**5, spec.every * 10**5, spec.percent)
    events = [(int(time), own) for time, (_, own) in zip(times, story, strict=True)]
    cut = sorted(min(place, len(events)) for place in cuts)
    assert by_window(events, spec, cut, restart) == by_definition(events, spec)


@pytest.mark.parametrize("gap", [1, 7, 10, 25])
def test_a_constant_rate_gives_what_a_time_window_gives(gap: int) -> None:
    """Exactly where d is a multiple of the gap; else at most one row more."""
    spec, count = RateSized(100, 50, 10), 400
    events = sorted([(t, True) for t in range(0, gap * count, gap)] + [(t, False) for t in range(3, gap * count, 11)])
    times = np.array([time for time, _ in events])
    own = np.array([is_own for _, is_own in events])
    heads = np.cumsum(own)
    rows = SideRows(0, times[own])
    found = RateSizedWindow(spec).tails(times, heads, rows)
    exact = RangeWindow(100).tails(times, heads, rows)
    if 100 % gap == 0:
        at_own = own  # between two rows a time window may have lost one already
        assert (found[at_own] == exact[at_own]).all()
    assert ((exact - found >= 0) & (exact - found <= 1)).all()


@given(st.integers(0, 10**12), st.integers(1, 10**15), st.integers(1, 10**13))
def test_sizes_are_rounded_up_exactly(factor: int, other: int, divisor: int) -> None:
    if Fraction(factor * other, divisor) < 10**15:
        assert ceil_ratio(factor, other, divisor) == -(-factor * other // divisor)


def test_metrics_tell_sizes_and_what_is_held() -> None:
    window = RateSizedWindow(RateSized(10, 10, 5))
    times = np.array([*range(0, 40, 1), *range(40, 80, 10)])
    heads = np.arange(1, len(times) + 1)
    window.tails(times, heads, SideRows(0, times))
    metrics = window.sizer.metrics
    assert (metrics.events, metrics.boundaries, window.sizer.size) == (44, 14, 1)
    assert np.concatenate(metrics.sizes).tolist() == [0] + [10] * 8 + [1] * 5
    assert np.concatenate(metrics.held).tolist()[1:8] == [10, 10, 10, 10, 10, 10, 10]
    assert metrics.resizes == 2
    assert min(metrics.sampling, metrics.algorithm, metrics.resizing) > 0
