"""Queries over the same rows and groups are one aggregation, and answer as if each were alone.

alone     App(q1)  App(q2)  App(q3)
shared    App(q1; q2; q3): one window, one set of states, three emissions
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.description import Query, Stream, column
from conformance.runtimes import Drive
from properties.generate import COLUMNS, CONDITIONS, event_lists, queries
from properties.test_shared import UNIT, WINDOWS, assert_answers, assert_undisturbed, room, stories
from properties.test_windows import SEARCH, drives


@st.composite
def alike(draw: st.DrawFn) -> list[Query]:
    """Queries that differ in their aggregates and in what they show, and now and then in more."""
    window = replace(draw(WINDOWS), partition_by=())
    keys = tuple(map(column, draw(st.sampled_from(((), ("k",), ("g",), ("k", "g"))))))
    where = draw(st.one_of(st.none(), st.sampled_from(CONDITIONS)))
    drain = draw(st.booleans())
    emits = st.sampled_from((None, "ISTREAM", "ISTREAM", "DSTREAM"))
    found: list[Query] = []
    for drawn in draw(st.lists(queries(window).filter(lambda query: bool(query.aggregates)), min_size=2, max_size=4)):
        query = drawn
        if draw(st.integers(0, 5)):
            query = replace(query, keys=keys, where=where, drain=drain and drawn.drain, emit=draw(emits))
        if any(name not in query.names for name, _ in query.order_by):
            query = replace(query, order_by=(), limit=None)
        found.append(query)
    if draw(st.booleans()):
        found.append(found[0])
    return found


@settings(SEARCH)
@given(alike(), st.data(), drives)
def test_queries_of_one_aggregation_answer_as_if_alone(chosen: list[Query], data: st.DataObject, drive: Drive) -> None:
    stream = Stream("s", COLUMNS)
    events = data.draw(event_lists(UNIT, 0))
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    assert_answers(stream, named, events, room(named, drive))


@settings(SEARCH)
@given(alike(), st.data(), drives)
def test_queries_leave_an_aggregation_and_change_without_disturbing_others(
    chosen: list[Query], data: st.DataObject, drive: Drive
) -> None:
    stream = Stream("s", COLUMNS)
    events = sorted(data.draw(event_lists(UNIT, 0)), key=lambda event: event["t"])
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    assert_undisturbed(stream, named, data.draw(stories(named, len(events))), events, room(named, drive))
