"""Streams made of streams: a query over the rows of another, and several streams put together."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases import Moment, Table
from conformance.compare import assert_same
from conformance.description import Aggregate, Event, Query, Range, Stream, TimeSlide, Window, column
from conformance.oracle import Outcome, answer, arrivals, derived, expected
from conformance.runtimes import Drive, Run, drive_embedded
from properties.counter import COUNTER
from properties.generate import COLUMNS, event_lists, last_rows, per_event, queries, sliding
from properties.test_windows import SEARCH, drives, with_room_for

UNIT = 1_000

INNER = (Aggregate("COUNT", (), "events"), Aggregate("SUM", (column("x"),), "total"))
OUTER = (
    Aggregate("SUM", (column("events"),), "all_events"),
    Aggregate("SUM", (column("total"),), "grand_total"),
    Aggregate("MAX", (column("total"),), "most"),
    Aggregate("LAST", (column("k"),), "latest"),
)

some_windows = st.one_of(sliding(UNIT), per_event(UNIT), last_rows(UNIT)).map(
    lambda window: replace(window, partition_by=())
)


def check(run: Run, query: Query, outcome: Outcome, what: str) -> None:
    rows = [(Moment(start), Moment(end), *values) for start, end, *values in outcome.rows]
    assert_same(run.table("answer"), Table(("window_start", "window_end", *query.names), rows), what)
    assert run.rejects == outcome.rejected
    COUNTER.add(outcome)


@settings(SEARCH)
@given(
    event_lists(UNIT, 2),
    st.integers(1, 10).flatmap(lambda slide: st.tuples(st.just(slide), st.integers(slide, 20))),
    some_windows,
    st.booleans(),
    drives,
)
def test_a_query_over_a_query(
    events: list[Event], inner: tuple[int, int], window: Window, as_subquery: bool, drive: Drive
) -> None:
    """INSERT INTO and a subquery in FROM mean the same."""
    stream = Stream("s", COLUMNS, lateness=2 * UNIT)
    slide, extent = inner
    first = Query("s", Window(Range(extent * UNIT), TimeSlide(slide * UNIT)), (column("k"),), INNER)
    second = Query("sums", window, aggregates=OUTER)
    outcome = answer(second, derived(first, expected(stream, first, events).rows), "event_time")
    if as_subquery:
        text = f"{stream.sql()};\nCREATE QUERY answer AS {second.sql().replace('FROM sums', f'FROM ({first.sql()})')}"
    else:
        text = f"{stream.sql()};\nINSERT INTO sums {first.sql()};\nCREATE QUERY answer AS {second.sql()}"
    with tempfile.TemporaryDirectory() as directory:
        drive = replace(drive, directory=Path(directory))
        run = drive_embedded(text, [("s", event) for event in events], ("answer",), (), drive)
    check(run, second, outcome, text)


@settings(SEARCH)
@given(event_lists(UNIT, 2), event_lists(UNIT, 2), some_windows.flatmap(queries), drives, st.randoms())
def test_a_union_of_two_streams(
    left: list[Event], right: list[Event], query: Query, drive: Drive, chance: random.Random
) -> None:
    """The order is time, then which stream, then arrival; how the two arrive in between does not matter."""
    streams = [Stream(name, COLUMNS, lateness=1_000_000 * UNIT) for name in ("l", "r")]
    parts = [arrivals(stream, events)[0] for stream, events in zip(streams, (left, right), strict=True)]
    merged = sorted((*parts[0], *parts[1]), key=lambda event: event["t"])
    outcome = answer(query, merged, "t")
    both = "(SELECT * FROM l UNION ALL SELECT * FROM r)"
    text = ";\n".join(
        (
            *(stream.sql() for stream in streams),
            f"CREATE QUERY answer AS {query.sql().replace('FROM s', 'FROM ' + both)}",
        )
    )
    waiting = [[("l", event) for event in left], [("r", event) for event in right]]
    mixed = []
    while any(waiting):
        mixed.append(chance.choice([queue for queue in waiting if queue]).pop(0))
    with tempfile.TemporaryDirectory() as directory:
        drive = replace(with_room_for(query, drive), directory=Path(directory))
        run = drive_embedded(text, mixed, ("answer",), (), drive)
    check(run, query, outcome, text)
