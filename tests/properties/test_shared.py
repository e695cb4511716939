"""Queries that share a stored window answer as if each were alone, whoever comes, goes or changes meanwhile.

alone     App(q1)        App(q2)        App(q3)
shared    App(q1; q2; q3): one window, rows stored once
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from conformance.cases import Moment, Table
from conformance.compare import assert_same
from conformance.description import CountSlide, Event, Query, Stream, Window
from conformance.oracle import expected
from conformance.runtimes import Drive, drive_embedded, joined, plain
from properties.counter import COUNTER
from properties.generate import COLUMNS, event_lists, last_rows, per_event, queries, range_by_count, sliding
from properties.test_windows import HOLISTIC, SEARCH, drives

UNIT = 1_000
WINDOWS = st.one_of(sliding(UNIT), per_event(UNIT), range_by_count(UNIT), last_rows(UNIT))


def aggregating(query: Query) -> bool:
    return bool(query.aggregates)


stored = WINDOWS.map(lambda window: replace(window, partition_by=())).flatmap(queries).filter(aggregating)
"""Queries whose windows are stored; a few tumbling ones, which are not, come along."""


def program(stream: Stream, named: dict[str, Query]) -> str:
    created = [f"CREATE QUERY {name} AS {query.sql()}" for name, query in named.items()]
    return ";\n".join([stream.sql(), *created])


def room(named: dict[str, Query], drive: Drive) -> Drive:
    """What is tight for one query is too little for five; blocks stay as small."""
    holistic = any(HOLISTIC & {call.function for call in query.aggregates} for query in named.values())
    tight = {"32KB": "2MB" if holistic else "200KB", "1MB": "4MB"}
    return replace(drive, memory=tight.get(drive.memory, drive.memory))


def answer(stream: Stream, query: Query, events: list[Event]) -> tuple[Table, int]:
    outcome = expected(stream, query, events)
    COUNTER.add(outcome)
    rows = [(Moment(start), Moment(end), *values) for start, end, *values in outcome.rows]
    return Table(("window_start", "window_end", *query.names), rows), outcome.rejected


def assert_answers(stream: Stream, named: dict[str, Query], events: list[Event], drive: Drive) -> None:
    """All queries, in one app, answer as the contract says."""
    with tempfile.TemporaryDirectory() as directory:
        drive = replace(drive, directory=Path(directory))
        came = drive_embedded(program(stream, named), [("s", e) for e in events], tuple(named), ("s",), drive)
    rejected = 0
    for name, query in named.items():
        rows, failed = answer(stream, query, events)
        assert_same(came.table(name), rows, f"results of {query.sql()}")
        rejected += failed
    assert came.rejects == rejected


@settings(SEARCH)
@given(st.lists(stored, min_size=2, max_size=5), st.sampled_from((0, 2)), st.data(), drives)
def test_several_queries_answer_as_if_alone(
    chosen: list[Query], lateness: int, data: st.DataObject, drive: Drive
) -> None:
    stream = Stream("s", COLUMNS, lateness=lateness * UNIT)
    events = data.draw(event_lists(UNIT, lateness))
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    assert_answers(stream, named, events, room(named, drive))


@dataclass
class Life:
    """A query from one event to another, or to the end."""

    query: Query
    begin: int
    end: int | None = None


@dataclass
class Story:
    """What happens before each event: queries come, go, windows are to be kept otherwise, and the app is restarted with
    the queries named."""

    comes: dict[int, dict[str, Query]]
    goes: dict[int, list[str]]
    restarts: dict[int, dict[str, Query]]
    strategies: dict[int, str] = field(default_factory=dict)


def moved(query: Query, window: Window) -> Query:
    """The same over another window, without those behind OVER, which need not go with it."""
    return replace(query, window=window, aggregates=tuple(replace(call, over=None) for call in query.aggregates))


@st.composite
def stories(draw: st.DrawFn, first: dict[str, Query], events: int) -> Story:
    places = st.integers(1, max(1, events - 1))
    late = stored.filter(lambda query: not isinstance(query.window.slide, CountSlide))
    alike = st.builds(moved, st.sampled_from(list(first.values())), sliding(UNIT))
    comes: dict[int, dict[str, Query]] = {}
    for i, query in enumerate(draw(st.lists(late | alike, max_size=3))):
        comes.setdefault(draw(places), {})[f"late{i}"] = query
    goes = {draw(places): draw(st.lists(st.sampled_from(sorted(first)), max_size=2, unique=True))}
    restarts = {}
    if draw(st.booleans()):
        again = {name: query for name, query in first.items() if draw(st.integers(0, 3))}
        for name in sorted(again):
            if draw(st.integers(0, 3)) == 0:
                again[name] = draw(late)
        restarts[draw(places)] = again
    return Story(comes, goes, restarts)


def play(
    stream: Stream, first: dict[str, Query], story: Story, events: list[Event], drive: Drive
) -> list[tuple[Life, Table]]:
    """Runs an app through the story; returns what each query said in its life."""
    lives = {name: Life(query, 0) for name, query in first.items()}
    ended: list[tuple[Life, Table]] = []
    rows: dict[str, list[Table]] = {name: [] for name in first}

    def start() -> ps.App:
        text = program(stream, {name: life.query for name, life in lives.items()})
        return ps.App(
            text,
            memory=drive.memory,
            block_size=drive.block_size,
            checkpoint=drive.directory,
            strategy=drive.strategy,
        )

    def collect() -> None:
        for name in lives:
            rows[name].append(plain(app.results(name)))

    def end(name: str, at: int) -> None:
        life = lives.pop(name)
        ended.append((replace(life, end=at), joined(rows.pop(name))))

    def begin(name: str, query: Query, at: int) -> None:
        lives[name] = Life(query, at)
        rows[name] = []

    app = start()
    try:
        for at, event in enumerate(events):
            for name, query in story.comes.get(at, {}).items():
                app.add_query(f"CREATE QUERY {name} AS {query.sql()}")
                begin(name, query, at)
            if at in story.strategies:
                app.set_strategy(story.strategies[at])
            for name in story.goes.get(at, []):
                if name in lives:
                    collect()
                    app.drop_query(name)
                    end(name, at)
            if at in story.restarts:
                collect()
                app.checkpoint()
                app.push("s", events[at : at + 3])
                app.close()
                again = story.restarts[at]
                texts = {name: query.sql() for name, query in again.items()}
                for name in [n for n in lives if not n.startswith("late") and lives[n].query.sql() != texts.get(n)]:
                    end(name, at)
                    if name in again:
                        begin(name, again[name], at)
                app = start()
            app.push("s", event)
        app.finish()
        collect()
    finally:
        app.close()
    return ended + [(life, joined(rows[name])) for name, life in lives.items()]


def alone(stream: Stream, life: Life, events: list[Event]) -> Table:
    """What the query says in an app of its own; the oracle's answer if it lives to the end."""
    if life.end is None:
        return answer(stream, life.query, events[life.begin :])[0]
    with ps.App(program(stream, {"q": life.query})) as app:
        app.push("s", events[life.begin : life.end])
        return plain(app.results("q"))


def assert_undisturbed(
    stream: Stream, named: dict[str, Query], story: Story, events: list[Event], drive: Drive
) -> None:
    """Through the story, every query says what it would say alone."""
    with tempfile.TemporaryDirectory() as directory:
        came = play(stream, named, story, events, replace(drive, directory=Path(directory)))
    for life, table in came:
        assert_same(table, alone(stream, life, events), f"{life.query.sql()} from {life.begin} to {life.end}")


@settings(SEARCH)
@given(st.lists(stored, min_size=2, max_size=4), st.data(), drives)
def test_queries_come_and_go_and_change_without_disturbing_others(
    chosen: list[Query], data: st.DataObject, drive: Drive
) -> None:
    stream = Stream("s", COLUMNS)
    events = sorted(data.draw(event_lists(UNIT, 0)), key=lambda event: event["t"])
    named = {f"q{i}": query for i, query in enumerate(chosen)}
    assert_undisturbed(stream, named, data.draw(stories(named, len(events))), events, room(named, drive))
