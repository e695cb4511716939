"""ISTREAM and DSTREAM over every window that compares evaluations by what has changed: the oracle's answer.

Of all scenarios few have these outputs; here all of them do. Keys are few, so that rows are equal and groups come and
go within a push, and zeros have both signs where the select list has plain columns: those of equal rows that came first
are the ones that stayed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.compare import assert_same
from conformance.description import Aggregate, CountSlide, Query, Range, Rows, Stream, TimeSlide, Window, column
from conformance.oracle import expected
from conformance.runtimes import Drive
from penstock.operators import relation_changes
from properties.generate import COLUMNS, CONDITIONS, HAVING, UNITS, Scenario, event_lists, queries
from properties.test_windows import SEARCH, as_tables, drives, run

STREAM = Stream("s", COLUMNS)
EMITS = st.sampled_from(("ISTREAM", "DSTREAM"))


@st.composite
def windows(draw: st.DrawFn, unit: int, partitions: bool) -> Window:
    """Small ones, so that rows leave; at every event in most cases."""
    slides = (
        st.none(),
        st.none(),
        st.integers(1, 4).map(CountSlide),
        st.integers(1, 9).map(lambda n: TimeSlide(n * unit)),
    )
    slide = draw(st.one_of(*slides))
    full = draw(st.sampled_from((False, False, True)))
    if partitions:
        rows = draw(st.integers(slide.count if isinstance(slide, CountSlide) else 1, 5))
        return Window(Rows(rows), slide, draw(st.sampled_from((("k",), ("g",), ("k", "g")))), full)
    if draw(st.booleans()):
        rows = draw(st.integers(slide.count if isinstance(slide, CountSlide) else 1, 9))
        return Window(Rows(rows), slide, when_full=full)
    least = slide.micros // unit if isinstance(slide, TimeSlide) else 2
    return Window(Range(draw(st.integers(least, 12)) * unit), slide, when_full=full)


@st.composite
def aggregating(draw: st.DrawFn, partitions: bool) -> Scenario:
    unit = draw(st.sampled_from(UNITS))
    window = draw(windows(unit, partitions))
    query = draw(queries(window).filter(lambda query: query.aggregates))
    query = replace(query, emit=draw(EMITS), order_by=(), limit=None)
    return Scenario(STREAM, query, draw(event_lists(unit, 0)))


@st.composite
def grouping(draw: st.DrawFn, partitions: bool) -> Scenario:
    """A few groups and sums that overflow, which is rejected in every evaluation."""
    unit = draw(st.sampled_from(UNITS))
    window = draw(windows(unit, partitions))
    keys = tuple(dict.fromkeys((*window.partition_by, *draw(st.sampled_from((("g",), ("k",), ("g", "n")))))))
    sums = (Aggregate("SUM", (column("w"),), "a0"), Aggregate("COUNT", (), "events"))
    query = Query("s", window, tuple(map(column, keys)), aggregates=sums, emit=draw(EMITS))
    query = replace(query, where=draw(st.one_of(st.none(), st.sampled_from(CONDITIONS))))
    return Scenario(STREAM, replace(query, having=draw(st.sampled_from((None, HAVING)))), draw(event_lists(unit, 0)))


@st.composite
def plain(draw: st.DrawFn, partitions: bool) -> Scenario:
    """Rows as they are; x is one of few values, so that many are equal."""
    unit = draw(st.sampled_from(UNITS))
    window = draw(windows(unit, partitions))
    names = draw(st.sampled_from((("x",), ("g", "x"), ("k",), ("k", "n", "x"))))
    where = draw(st.one_of(st.none(), st.sampled_from(CONDITIONS)))
    query = Query("s", window, columns=tuple(map(column, names)), where=where, emit=draw(EMITS))
    few = st.sampled_from((None, 0.0, -0.0, float("nan"), 1.5))
    events = [event | {"x": draw(few)} for event in draw(event_lists(unit, 0))]
    return Scenario(STREAM, query, events)


def check(scenario: Scenario, drive: Drive) -> None:
    outcome = expected(scenario.stream, scenario.query, scenario.events)
    came = run(scenario, drive)
    assert_same(came.table("q1"), as_tables(scenario, outcome)[0], "results")
    assert came.rejects == outcome.rejected


@pytest.mark.parametrize("partitions", [False, True], ids=["one window", "partitions"])
@pytest.mark.parametrize("kind", [aggregating, grouping, plain], ids=["aggregates", "groups", "rows"])
def test_changes_are_the_difference_of_two_evaluations(kind: object, partitions: bool) -> None:
    assert callable(kind)

    @settings(SEARCH)
    @given(kind(partitions), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        check(scenario, drive)

    holds()


def test_few_rows_at_a_time_are_compared_like_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_changes, "_AT_ONCE", 3)

    @settings(SEARCH)
    @given(plain(False), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        check(scenario, drive)

    holds()
