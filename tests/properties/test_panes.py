"""Windows made of panes answer as the contract says, and as windows of rows do, whoever comes, goes or changes.

panes     App(q1; q2; q3, strategy="panes"): each row is added once, each pane to all windows
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.description import Event, Query, Stream, Window
from conformance.runtimes import Drive
from properties.generate import COLUMNS, event_lists, queries, sliding
from properties.test_shared import aggregating, assert_answers, assert_undisturbed, room, stories
from properties.test_windows import HOLISTIC, SEARCH, drives

UNIT = 1_000
SLIDING = sliding(UNIT)


def has_one_window(query: Query) -> bool:
    """Another window in FROM may not go with those behind OVER."""
    return aggregating(query) and all(call.over is None for call in query.aggregates)


def can_be_paned(query: Query) -> bool:
    """Most of what is drawn should be: no percentiles and the like, and no strings."""
    calls = query.aggregates
    strings = any(term.sql == "k" for call in calls for term in call.args)
    return has_one_window(query) and not strings and not HOLISTIC & {call.function for call in calls}


def paned(named: dict[str, Query], drive: Drive) -> Drive:
    """With room for a pane row in a block."""
    block = max(1024, drive.block_size)
    return replace(room(named, drive), strategy="panes", block_size=block)


@st.composite
def alike(draw: st.DrawFn, windows: st.SearchStrategy[Window] = SLIDING) -> list[Query]:
    """Queries that differ in their windows, and some in more than that. One may ask for a part of what another does."""
    first = draw(windows.flatmap(queries).filter(can_be_paned))
    others = draw(st.lists(windows, min_size=1, max_size=4))
    found = [first, *(replace(first, window=window) for window in others)]
    if draw(st.booleans()):
        part = replace(first, aggregates=first.aggregates[-1:], having=None, order_by=(), limit=None)
        found.insert(0, replace(part, emit=draw(st.sampled_from((None, "ISTREAM")))))
    return [
        draw(queries(query.window).filter(has_one_window)) if draw(st.integers(0, 7)) == 0 else query for query in found
    ]


@settings(SEARCH)
@given(alike(), st.sampled_from((0, 2)), st.data(), drives)
def test_windows_of_panes_answer_by_the_contract(
    chosen: list[Query], lateness: int, data: st.DataObject, drive: Drive
) -> None:
    stream = Stream("s", COLUMNS, lateness=lateness * UNIT)
    events: list[Event] = data.draw(event_lists(UNIT, lateness))
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    assert_answers(stream, named, events, paned(named, drive))


@settings(SEARCH)
@given(alike(), st.data(), drives)
def test_queries_over_panes_come_and_go_and_change(chosen: list[Query], data: st.DataObject, drive: Drive) -> None:
    stream = Stream("s", COLUMNS)
    events = sorted(data.draw(event_lists(UNIT, 0)), key=lambda event: event["t"])
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    assert_undisturbed(stream, named, data.draw(stories(named, len(events))), events, paned(named, drive))
