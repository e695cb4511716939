"""Every strategy names the queries that the definition names: at position p those whose slide divides p."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.windows.sliding.calendar import Calendar
from penstock.windows.sliding.strategy import Work
from penstock_bench.sliding.graph import Graph
from penstock_bench.sliding.optimised import Limits, Optimised
from penstock_bench.sliding.plain import Plain
from penstock_bench.sliding.strategy import SlidingStrategy

Make = Callable[[int, bool], SlidingStrategy]

STRATEGIES: dict[str, Make] = {
    "plain": lambda start, local: Plain(start, local_time=local),
    "graph": lambda start, local: Graph(start, local_time=local),
    "optimised": lambda start, local: Optimised(None, start, local_time=local),
    "optimised by tests": lambda start, local: Optimised(Limits(0.001, 0.01, push_weight=0), start, local_time=local),
    "calendar": lambda start, local: Calendar(start, local_time=local),
}

SLIDES = st.one_of(st.integers(1, 40), st.integers(1, 5000), st.sampled_from([60, 1000, 5040, 10_000, 1_000_000]))
REGISTER = st.tuples(st.just("register"), st.integers(0, 30), SLIDES)
REMOVE = st.tuples(st.just("remove"), st.integers(0, 30), st.just(0))
ADVANCE = st.tuples(st.just("advance"), st.integers(0, 700), st.just(0))
LEAP = st.tuples(st.just("advance"), st.integers(0, 200_000), st.just(0))


def pairs(strategy: SlidingStrategy, upto: int) -> list[tuple[int, int]]:
    found = strategy.candidates(upto)
    assert (np.diff(found.positions) >= 0).all(), "positions come in order"
    return sorted(zip(found.positions.tolist(), found.queries.tolist(), strict=True))


def by_definition(slides: dict[int, int], after: int, upto: int) -> list[tuple[int, int]]:
    """Multiples, enumerated query by query."""
    return sorted((p, q) for q, slide in slides.items() for p in range(after // slide * slide + slide, upto + 1, slide))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(REGISTER, REMOVE, ADVANCE, LEAP), max_size=40),
    st.integers(-(10**5), 10**6),
    st.sampled_from([1, 1000]),
    st.booleans(),
)
def test_candidates_are_those_of_the_definition(
    steps: list[tuple[str, int, int]], start: int, unit: int, local: bool
) -> None:
    """Queries come and go between batches that are cut anywhere; by the local clock slides may have a coarse unit."""
    strategies = {name: make(start, local) for name, make in STRATEGIES.items()}
    unit = unit if local else 1
    slides: dict[int, int] = {}
    position = start
    for what, number, slide in steps:
        if what == "register" and number not in slides:
            slides[number] = slide * unit
            for strategy in strategies.values():
                strategy.register(number, slide * unit)
        elif what == "remove" and number in slides:
            del slides[number]
            for strategy in strategies.values():
                strategy.remove(number)
        elif what == "advance":
            expected = by_definition(slides, position, position + number)
            for name, strategy in strategies.items():
                assert pairs(strategy, position + number) == expected, name
            position += number


@pytest.mark.parametrize("make", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_batch_may_be_cut_anywhere(make: Make) -> None:
    random = np.random.default_rng(5)
    queries, slides = np.arange(3000), random.integers(2, 801, 3000)
    whole, in_parts = make(0, False), make(0, False)
    whole.register_many(queries, slides)
    in_parts.register_many(queries, slides)
    cuts = [0, *sorted(random.integers(0, 5000, 60).tolist()), 5000]
    parts = [pair for _, upto in pairwise(cuts) for pair in pairs(in_parts, upto)]
    assert parts == pairs(whole, 5000)
    assert in_parts.work.operations == whole.work.operations


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 3000)), min_size=1, max_size=20),
    st.lists(st.integers(0, 100_000), max_size=12),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_the_calendar_knows_offsets_and_what_was_overtaken(
    queries: list[tuple[int, int]], leaps: list[int], start: int, local: bool
) -> None:
    by_position, by_query = Calendar(start, local_time=local), Calendar(start, local_time=local)
    for query, (slide, offset) in enumerate(queries):
        by_position.register(query, slide, offset)
        by_query.register(query, slide, offset)
    position = start
    for leap in leaps:
        upto = position + leap
        expected = sorted(
            (p, q)
            for q, (slide, offset) in enumerate(queries)
            for p in range(position + 1 + (offset - position - 1) % slide, upto + 1, slide)
        )
        firsts = [position + 1 + (offset - position - 1) % slide for slide, offset in queries]
        assert by_position.next_due == by_query.next_due == min(firsts)
        assert pairs(by_position, upto) == expected
        assert by_query.overtaken(upto).tolist() == sorted({q for _, q in expected})
        position = upto


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("register"), st.integers(0, 9), st.sampled_from([7, 60, 4096, 4097, 6000, 50_000])),
            st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
            st.tuples(st.sampled_from(["candidates", "overtaken"]), st.integers(0, 9000), st.just(0)),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_both_ways_to_ask_the_calendar_take_turns(steps: list[tuple[str, int, int]], local: bool) -> None:
    """On one page and across pages, with slides that are shorter and longer than a page."""
    calendar = Calendar(-7000, local_time=local)
    slides: dict[int, int] = {}
    for what, number, slide in steps:
        if what == "register" and number not in slides:
            calendar.register(number, slide, offset=number)
            slides[number] = slide
        elif what == "remove" and number in slides:
            calendar.remove(number)
            del slides[number]
        elif what in ("candidates", "overtaken"):
            after, upto = calendar.position, calendar.position + number
            expected = sorted(
                (p, q) for q, s in slides.items() for p in range(after + 1 + (q - after - 1) % s, upto + 1, s)
            )
            if what == "candidates":
                assert pairs(calendar, upto) == expected
            else:
                assert calendar.overtaken(upto).tolist() == sorted({q for _, q in expected})


def test_a_clock_that_is_set_back_overtakes_nobody() -> None:
    calendar = Calendar(100, local_time=True)
    calendar.register(1, 10)
    assert calendar.overtaken(90).tolist() == []
    assert calendar.position == 100
    assert calendar.overtaken(110).tolist() == [1]


def test_silence_costs_the_calendar_nothing() -> None:
    calendar = Calendar(0, local_time=True)
    calendar.register(1, 10**12 + 1)
    assert pairs(calendar, 10**12 + 5) == [(10**12 + 1, 1)]
    assert calendar.work.positions < 100_000


def test_long_slides_of_the_calendar_through_several_turns_of_its_wheel() -> None:
    """More slides than the wheel had buckets for, some of them longer than a turn (4 million positions)."""
    random = np.random.default_rng(3)
    slides = {q: int(s) for q, s in enumerate(random.integers(4097, 9_000_000, 1500))}
    calendar = Calendar()
    calendar.register_many(np.arange(700), np.array([slides[q] for q in range(700)]))
    first = {q: slide for q, slide in slides.items() if q < 700}
    assert pairs(calendar, 5_000_000) == by_definition(first, 0, 5_000_000)
    for query in range(700, 1500):
        calendar.register(query, slides[query])
    assert pairs(calendar, 12_000_000) == by_definition(slides, 5_000_000, 12_000_000)


def test_work_per_tuple_of_the_calendar_does_not_grow_with_the_queries() -> None:
    slides = np.arange(2, 801)
    taken = []
    for copies in (1, 20):
        calendar = Calendar()
        calendar.register_many(np.arange(copies * len(slides)), np.tile(slides, copies))
        calendar.due(10_000)
        taken.append(calendar.work.operations)
    assert taken[0] == taken[1]


@pytest.mark.parametrize("make", STRATEGIES.values(), ids=list(STRATEGIES))
def test_what_cannot_be_is_refused_and_changes_nothing(make: Make) -> None:
    strategy = make(0, False)
    strategy.register(1, 2)
    with pytest.raises(InputError, match="slide of 0"):
        strategy.register(2, 0)
    with pytest.raises(InputError, match="registered already"):
        strategy.register(1, 3)
    with pytest.raises(InputError, match="registered already"):
        strategy.register_many(np.array([5, 1]), np.array([3, 3]))
    with pytest.raises(InputError, match="registered already"):
        strategy.register_many(np.array([5, 5]), np.array([3, 3]))
    with pytest.raises(InputError, match="number of a query"):
        strategy.register(-1, 3)
    with pytest.raises(InputError, match="not registered"):
        strategy.remove(5)
    assert pairs(strategy, 4) == [(2, 1), (4, 1)]
    with pytest.raises(InputError, match="4"):
        strategy.candidates(3)


def test_operations_are_counted_as_the_paper_counts() -> None:
    assert Work(1, 7, 3).operations == 7 + 3 * 11
    graph = Graph()
    graph.register(0, 2)
    graph.register(1, 4)
    graph.candidates(4)  # the root, 2, is tested four times, 4 where 2 is due; due are 2 twice and 4 once
    assert (graph.work.tests, graph.work.pushes) == (6, 3)
