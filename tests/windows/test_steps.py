"""Steps of windows: drawings for the single rules, and all rules against brute force over random rows and cuts."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.spec import (
    CountSlide,
    EveryEvent,
    Extent,
    Range,
    Rows,
    Since,
    Slide,
    TimeSlide,
    WindowSpec,
    first_boundary_after,
    last_boundary_upto,
)
from penstock.windows.steps import BoundaryPolicy, EventPolicy, policy_for


class Seen(NamedTuple):
    """An evaluation: the window's end, and the rows that were in it."""

    end: int
    rows: tuple[int, ...]


class Window:
    """Plays a policy's steps on rows that are numbers, as an operator would."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.policy = policy_for(spec)
        self.times: list[int] = []
        self.begin = 0
        self.end = 0
        self.seen: list[Seen] = []

    def push(self, times: list[int], watermark: int) -> None:
        array = np.array(times, np.int64)
        self.policy.observe(array)
        self.times += times
        done = 0
        while True:
            steps = self.policy.steps(array[done:], self.end, watermark)
            first = self.end
            for k in range(len(steps)):
                self._step(first + int(steps.add_upto[k]), int(steps.leave_before[k]))
                if steps.evaluates[k]:
                    end = int(steps.window_end[k])
                    self.seen.append(Seen(end, tuple(range(self.begin, self.end))))
            done += int(steps.add_upto[-1]) if len(steps) else 0
            if steps.complete:
                assert self.end == len(self.times)
                return

    def _step(self, end: int, leave_before: int) -> None:
        assert end >= self.end, "rows enter once"
        self.end = end
        by_position = isinstance(self.spec.extent, Rows)
        while self.begin < self.end and (self.begin if by_position else self.times[self.begin]) < leave_before:
            self.begin += 1

    def answers(self) -> list[Seen]:
        """Evaluations with rows: empty ones may be passed over."""
        return [seen for seen in self.seen if seen.rows]


def by_hand(spec: WindowSpec, times: list[int], watermark: int) -> list[Seen]:
    """The contract, rule 3, for every boundary or row in turn."""
    answers = []
    if not times:
        return []
    if isinstance(spec.slide, TimeSlide):
        boundary = first_boundary_after(times[0], spec.slide)
        while boundary <= watermark:
            rows = [i for i, t in enumerate(times) if t < boundary]
            full = True
            if isinstance(spec.extent, Range):
                rows = [i for i in rows if times[i] >= boundary - spec.extent.micros]
                full = boundary - spec.extent.micros >= times[0]
            elif isinstance(spec.extent, Rows):
                full = len(rows) >= spec.extent.count
                rows = rows[-spec.extent.count :]
            if rows and (full or not spec.when_full):
                answers.append(Seen(boundary, tuple(rows)))
            boundary += spec.slide.micros
        return answers
    every = spec.slide.count if isinstance(spec.slide, CountSlide) else 1
    for i, t in enumerate(times):
        if (i + 1) % every:
            continue
        if isinstance(spec.extent, Range):
            rows = [j for j in range(i + 1) if times[j] > t - spec.extent.micros]
            full = (t - spec.extent.micros if spec.extent.micros > 1 else t) >= times[0]
        else:
            assert isinstance(spec.extent, Rows)
            rows = list(range(max(0, i + 1 - spec.extent.count), i + 1))
            full = len(rows) == spec.extent.count
        if full or not spec.when_full:
            answers.append(Seen(t, tuple(rows)))
    return answers


time_slides = st.integers(1, 9).flatmap(lambda s: st.builds(TimeSlide, st.just(s), st.integers(0, s - 1)))
extents: st.SearchStrategy[Extent] = st.one_of(st.builds(Range, st.integers(1, 30)), st.builds(Rows, st.integers(1, 6)))
slides: st.SearchStrategy[Slide] = st.one_of(
    time_slides, st.builds(CountSlide, st.integers(1, 4)), st.just(EveryEvent())
)
specs = st.builds(WindowSpec, extents, slides, st.just(()), st.booleans())
streams = st.lists(st.integers(-30, 200), max_size=40).map(sorted)


@settings(max_examples=300, deadline=None)
@given(specs, streams, st.lists(st.integers(0, 40), max_size=4), st.integers(0, 40))
def test_every_window_is_that_of_the_contract(spec: WindowSpec, times: list[int], cuts: list[int], beyond: int) -> None:
    """However the rows are cut into runs, and with the watermark as far as it may be."""
    window = Window(spec)
    edges = sorted({0, *(min(cut, len(times)) for cut in cuts), len(times)})
    for start, stop in pairwise(edges):
        window.push(times[start:stop], times[stop - 1])
    watermark = (times[-1] if times else 0) + beyond
    window.push([], watermark)
    assert window.answers() == by_hand(spec, times, watermark)


@settings(max_examples=100, deadline=None)
@given(specs, streams, st.integers(0, 40))
def test_a_restored_policy_goes_on(spec: WindowSpec, times: list[int], cut: int) -> None:
    window = Window(spec)
    cut = min(cut, len(times))
    if cut:
        window.push(times[:cut], times[cut - 1])
    fresh = policy_for(spec)
    fresh.restore(window.policy.snapshot())
    window.policy = fresh
    watermark = (times[-1] if times else 0) + 10
    window.push(times[cut:], watermark)
    assert window.answers() == by_hand(spec, times, watermark)


def test_sliding() -> None:
    """
    rows        1   4     8         14
    boundary 5  [1  4)
            10  [1  4     8  )
            15            [8        14 )      8 >= 15 - 10, 4 is not
    """
    window = Window(WindowSpec(Range(10), TimeSlide(5)))
    window.push([1, 4, 8, 14], 15)
    assert window.seen == [Seen(5, (0, 1)), Seen(10, (0, 1, 2)), Seen(15, (2, 3))]


def test_a_boundary_closes_when_the_watermark_reaches_it() -> None:
    """
    rows         3        9 | 10
    watermark    3        9 | 10                  10 is not in [0, 10), which closes now
    """
    window = Window(WindowSpec(Range(10), TimeSlide(10)))
    window.push([3, 9], 9)
    assert window.seen == []
    window.push([10], 10)
    assert window.seen == [Seen(10, (0, 1))]


def test_a_long_silence_costs_nothing() -> None:
    """
    rows        5                                   1_000_000_000_003
    boundary   10 20 ..                             1_000_000_000_010
    The boundary at 20, where the row vanishes, is kept (DSTREAM); those in the silence are not.
    """
    window = Window(WindowSpec(Range(10), TimeSlide(10)))
    window.push([5, 1_000_000_000_003], 1_000_000_000_010)
    assert window.seen[:2] == [Seen(10, (0,)), Seen(20, ())]
    assert window.seen[-1] == Seen(1_000_000_000_010, (1,))
    assert len(window.seen) <= 4


def test_more_boundaries_than_one_answer_holds() -> None:
    window = Window(WindowSpec(Range(50_000), TimeSlide(1)))
    window.push([0, 30_000], 60_000)
    assert len(window.answers()) == 60_000
    assert window.answers() == [
        Seen(b, tuple(i for i, t in enumerate((0, 30_000)) if b - 50_000 <= t < b)) for b in range(1, 60_001)
    ]


def test_since() -> None:
    """
    rows       1   5      12        25
    SINCE 5        [5     12 )                   the operator keeps 1 out
    """
    window = Window(WindowSpec(Since(5), TimeSlide(10)))
    window.push([5, 12, 25], 30)
    assert window.answers() == [Seen(10, (0,)), Seen(20, (0, 1)), Seen(30, (0, 1, 2))]


def test_ties_at_a_per_event_window() -> None:
    """
    rows       1  1  2           (e.t - 2, e.t], and only rows up to e
    """
    window = Window(WindowSpec(Range(2), EveryEvent()))
    window.push([1, 1, 2], 2)
    assert window.seen == [Seen(1, (0,)), Seen(1, (0, 1)), Seen(2, (0, 1, 2))]


def test_counting_goes_on_from_rows_before() -> None:
    """The query was added after four rows: every third is the 6th, the 9th, ..."""
    policy = policy_for(WindowSpec(Rows(10), CountSlide(3)), rows_before=4)
    assert isinstance(policy, EventPolicy)
    steps = policy.steps(np.arange(6), 0, 5)
    assert steps.add_upto[steps.evaluates].tolist() == [2, 5]


def test_the_end_of_a_bounded_run() -> None:
    """
    rows        3          17
    boundaries     10           20           30        40
    last               first after 17    empty from 40 on: 17 is in [10, 30) and [20, 40) is not
    """
    policy = BoundaryPolicy(WindowSpec(Range(20), TimeSlide(10)))
    assert policy.last_boundary(drain=False) is None
    policy.observe(np.array([3, 17]))
    policy.steps(np.array([3, 17]), 0, 17)
    assert policy.last_boundary(drain=False) == 20
    assert policy.last_boundary(drain=True) == 40
    assert policy.last_boundary(drain=False, last_time=35) == 40


def test_on_wall_clock_boundaries_begin_with_the_clock() -> None:
    """
    rows            2  3
    clock                       |1000             |1010
    boundaries                   (before the rows) first evaluation
    """
    window = Window(WindowSpec(Range(2000), TimeSlide(10, wall_clock=True)))
    window.push([2, 3], 1000)
    assert window.seen == []
    window.push([], 1010)
    assert window.seen == [Seen(1010, (0, 1))]


@given(st.integers(-(10**15), 10**15), time_slides)
def test_boundaries(time: int, slide: TimeSlide) -> None:
    before, after = last_boundary_upto(time, slide), first_boundary_after(time, slide)
    assert before <= time < after
    assert after - before == slide.micros
    assert (before - slide.offset) % slide.micros == 0
