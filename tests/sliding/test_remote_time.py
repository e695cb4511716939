"""The two algorithms for remote time: what the paper says of them, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock_bench.sliding.remote_time import Arrivals, Slid, SynchronisedTimers


def algorithm_2(timestamps: list[int], slides: dict[int, int]) -> list[tuple[int, int]]:
    """The paper's listing, with its list of windows that is kept sorted by the next slide."""
    due: list[tuple[int, int]] = []
    windows: list[list[int]] = []
    for place, timestamp in enumerate(timestamps):
        if place == 0:
            windows = sorted([slide + timestamp, query] for query, slide in slides.items())
            continue
        for window in windows:
            if window[0] > timestamp:
                break
            due.append((place, window[1]))
            window[0] = slides[window[1]] + timestamp
        windows.sort()
    return sorted(due)


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=60).map(sorted),
    st.dictionaries(st.integers(0, 20), st.integers(1, 200), max_size=8),
    st.integers(0, 60),
)
def test_algorithm_2_is_the_papers(timestamps: list[int], slides: dict[int, int], cut: int) -> None:
    arrivals = Arrivals()
    for query, slide in slides.items():
        arrivals.register(query, slide)
    whole = np.array(timestamps, np.int64)
    found: list[tuple[int, int]] = []
    for first, part in ((0, whole[:cut]), (len(whole[:cut]), whole[cut:])):
        positions, queries = arrivals.candidates(part)
        assert (np.diff(positions) >= 0).all()
        found += zip((positions + first).tolist(), queries.tolist(), strict=True)
    assert sorted(found) == algorithm_2(timestamps, slides)


def test_algorithm_2_waits_for_tuples_and_forgets_who_leaves() -> None:
    """The paper's drawback: with slides of 150 and tuples every 60, a slide is up to a tuple late."""
    arrivals = Arrivals()
    arrivals.register(1, 150)
    arrivals.register(2, 60)
    assert arrivals.candidates(np.array([0, 60, 120, 180])).positions.tolist() == [1, 2, 3, 3]
    arrivals.remove(2)
    assert arrivals.candidates(np.array([240, 300, 360])).positions.tolist() == [2]


def test_a_timer_slides_after_the_usual_delay_or_with_the_next_tuple() -> None:
    timers = SynchronisedTimers(alpha=0.5)
    timers.register("s", 7, 100)
    assert timers.arrive("s", now=1000, timestamp=0) == []
    assert timers.next_wake == 1100
    assert timers.arrive("s", now=1090, timestamp=50) == [], "40 late, so that λ is 20"
    assert timers.wake(1100) == []
    assert timers.next_wake == 1120
    assert timers.wake(1120) == [Slid(1120, "s", (7,))]
    assert timers.wake(1200) == []
    assert timers.arrive("s", now=1205, timestamp=205) == [Slid(1205, "s", (7,))], "a tuple in time ends the delay"
    assert timers.next_wake == 1300
    assert timers.wake(1310) == [Slid(1310, "s", (7,))], "on time, so that λ is 10"


def test_tuples_that_are_quicker_than_the_first_do_not_make_slides_early() -> None:
    timers = SynchronisedTimers(alpha=0)
    timers.register("s", 1, 100)
    timers.arrive("s", now=60, timestamp=0)
    assert timers.arrive("s", now=120, timestamp=100) == []
    assert timers.wake(160) == [Slid(160, "s", (1,))]


def test_one_timer_for_many_streams_that_come_and_go() -> None:
    timers = SynchronisedTimers(alpha=1)
    for number, stream in enumerate("abc"):
        timers.register(stream, number, 100)
        timers.register(stream, 10 + number, 100)
        assert timers.arrive(stream, now=10 * number, timestamp=0) == []
    timers.register("a", 5, 30)
    assert timers.next_wake == 100, "a slide that has just come begins with the next tuple"
    assert timers.arrive("a", now=50, timestamp=50) == []
    assert timers.next_wake == 60, "the second tick of 30 by the clock of a, which began at 0"
    timers.remove("b", 1)
    timers.remove("b", 11)
    assert timers.wake(125) == [
        Slid(60, "a", (5,)),
        Slid(90, "a", (5,)),
        Slid(100, "a", (0, 10)),
        Slid(120, "a", (5,)),
        Slid(120, "c", (2, 12)),
    ]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="alpha"):
        SynchronisedTimers(alpha=1.5)
    with pytest.raises(InputError, match="no stream 's'"):
        SynchronisedTimers().remove("s", 1)
