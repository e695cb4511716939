"""Windows that change between rows and panes at any moment answer as if they had never changed.

changing     App(q1; q2; q3), told "panes", "window", "panes" ... between pushes
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from conformance.cases import Table
from conformance.compare import assert_same
from conformance.description import Event, Query, Range, Stream, TimeSlide, Window
from conformance.runtimes import Drive, joined, plain, pushes
from penstock.errors import QueryError
from properties.generate import COLUMNS, event_lists
from properties.test_panes import UNIT, alike, paned
from properties.test_shared import alone, answer, play, program, stories
from properties.test_windows import SEARCH, drives

STRATEGIES = st.sampled_from(("panes", "window", "panes", "window", "auto"))


@st.composite
def short(draw: st.DrawFn) -> Window:
    """Windows that are short enough for changes to end."""
    extent = draw(st.integers(2, 8))
    slide = draw(st.integers(1, extent - 1))
    offset = draw(st.integers(0, slide - 1))
    return Window(Range(extent * UNIT), TimeSlide(slide * UNIT, offset * UNIT), when_full=draw(st.integers(0, 3)) == 0)


@st.composite
def families(draw: st.DrawFn) -> list[Query]:
    """Queries of one family, for the most part; some show what is new or gone."""
    emit = draw(st.sampled_from((None, None, "ISTREAM", "DSTREAM")))
    return [replace(query, emit=emit) if draw(st.integers(0, 3)) else query for query in draw(alike(short()))]


@st.composite
def moments(draw: st.DrawFn, events: int) -> dict[int, str]:
    """Which strategy is asked for before which event."""
    places = draw(st.lists(st.integers(0, max(1, events - 1)), min_size=2, max_size=6))
    return {place: draw(STRATEGIES) for place in places}


@settings(SEARCH)
@given(families(), st.sampled_from((0, 2)), st.data(), drives)
def test_windows_that_change_answer_by_the_contract(
    chosen: list[Query], lateness: int, data: st.DataObject, drive: Drive
) -> None:
    """Any batches, budgets and restarts; now and then for one query and those like it."""
    stream = Stream("s", COLUMNS, lateness=lateness * UNIT)
    events: list[Event] = data.draw(event_lists(UNIT, lateness, 100))
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    asked = data.draw(st.lists(st.tuples(STRATEGIES, st.sampled_from((None, None, *named))), min_size=4, max_size=12))
    with tempfile.TemporaryDirectory() as directory:
        drive = replace(paned(named, drive), directory=Path(directory), strategy="window")
        tables, rejects = run(program(stream, named), list(named), events, asked, drive)
    rejected = 0
    for name, query in named.items():
        rows, failed = answer(stream, query, events)
        assert_same(tables[name], rows, f"results of {query.sql()}")
        rejected += failed
    assert rejects == rejected


def run(
    text: str, queries: list[str], events: list[Event], asked: list[tuple[str, str | None]], drive: Drive
) -> tuple[dict[str, Table], int]:
    """The strategies are asked for before every second push, and the app is restarted in the middle if at all."""

    def start() -> ps.App:
        return ps.App(
            text,
            memory=drive.memory,
            block_size=drive.block_size,
            checkpoint=drive.directory,
            strategy=drive.strategy,
        )

    came: dict[str, list[Table]] = {query: [] for query in queries}
    restarted, done = drive.restart_at is None, 0
    coming = iter(asked)
    app = start()
    try:
        for turn, (_, batch) in enumerate(pushes([("s", event) for event in events], drive.batches or (7,) * 20)):
            if turn % 2:
                ask(app, next(coming, None))
            app.push("s", batch)
            for query in queries:
                came[query].append(plain(app.results(query)))
            done += len(batch)
            if not restarted and drive.restart_at is not None and done >= drive.restart_at:
                app.checkpoint()
                app.push("s", events[done : done + drive.lost])
                app.close()
                app, restarted = start(), True
        app.finish()
        for query in queries:
            came[query].append(plain(app.results(query)))
        return {query: joined(tables) for query, tables in came.items()}, app.metrics.rejected
    finally:
        app.close()


def ask(app: ps.App, asked: tuple[str, str | None] | None) -> None:
    """What cannot be made of panes says so."""
    if asked is not None:
        try:
            app.set_strategy(*asked)
        except QueryError:
            assert asked[0] == "panes"


@settings(SEARCH)
@given(families(), st.data(), drives)
def test_queries_come_and_go_while_windows_change(chosen: list[Query], data: st.DataObject, drive: Drive) -> None:
    stream = Stream("s", COLUMNS)
    events = sorted(data.draw(event_lists(UNIT, 0)), key=lambda event: event["t"])
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    story = replace(data.draw(stories(named, len(events))), strategies=data.draw(moments(len(events))))
    with tempfile.TemporaryDirectory() as directory:
        came = play(stream, named, story, events, replace(paned(named, drive), directory=Path(directory)))
    for life, table in came:
        assert_same(table, alone(stream, life, events), f"{life.query.sql()} from {life.begin} to {life.end}")
