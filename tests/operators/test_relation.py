"""Windows without aggregation: rows of windows, of partitions and of sessions, against recomputation by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, EVENT TIME t);"
Event = tuple[int, str | None, int]


def run(query: str, events: list[Event], cuts: list[int], directory: Path | None = None) -> list[tuple[Any, ...]]:
    """(start, end, values...) of q1, pushed in pieces; with a directory restarted between them."""
    found: list[tuple[Any, ...]] = []
    app = ps.App(STREAM + query, checkpoint=directory)
    edges = sorted({0, *(min(cut, len(events)) for cut in cuts), len(events)})
    for start, stop in zip(edges, [*edges[1:], None], strict=True):
        if stop is None:
            app.finish()
        elif start < stop:
            app.push("s", [{"t": t, "k": k, "v": v} for t, k, v in events[start:stop]])
        table = app.results("q1")
        times = [table.column(i).cast("timestamp[us]").cast("int64").to_pylist() for i in (0, 1)]
        found += list(zip(*times, *(c.to_pylist() for c in table.columns[2:]), strict=True))
        if directory is not None and stop is not None:
            app.checkpoint()
            app.close()
            app = ps.App(STREAM + query, checkpoint=directory)
    app.close()
    return found


streams = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([None, "a", "b"]), st.integers(0, 9)), min_size=1, max_size=25
).map(lambda events: sorted(events, key=lambda e: e[0]))
cuts = st.lists(st.integers(0, 25), max_size=3)


def order(key: str | None) -> tuple[bool, str]:
    return (key is not None, key or "")


@settings(max_examples=60, deadline=None)
@given(streams, cuts, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_every_mth_event_of_a_partition_shows_its_last_rows(
    events: list[Event], cut: list[int], rows: int, every: int, full: bool
) -> None:
    every = min(every, rows)
    text = f"SELECT k, v FROM s [PARTITION BY k ROWS {rows} SLIDE {every}{' WHEN FULL' if full else ''}] WHERE v < 8"
    expected = []
    parts: dict[str | None, list[Event]] = {}
    for event in events:
        part = parts.setdefault(event[1], [])
        part.append(event)
        window = part[-rows:]
        if len(part) % every == 0 and (len(part) >= rows or not full):
            expected += [(window[0][0], event[0], k, v) for _, k, v in window if v < 8]
    assert run(text, events, cut) == expected


@settings(max_examples=40, deadline=None)
@given(streams, cuts, st.integers(1, 4))
def test_the_event_itself_is_the_default(events: list[Event], cut: list[int], rows: int) -> None:
    expected = []
    parts: dict[str | None, list[Event]] = {}
    for event in events:
        part = parts.setdefault(event[1], [])
        part.append(event)
        expected.append((part[-rows:][0][0], event[0], event[2]))
    assert run(f"SELECT v FROM s [PARTITION BY k ROWS {rows}]", events, cut) == expected


@settings(max_examples=40, deadline=None)
@given(streams, cuts, st.integers(1, 3), st.integers(1, 20))
def test_a_time_slide_shows_every_partition(events: list[Event], cut: list[int], rows: int, slide: int) -> None:
    text = f"SELECT v FROM s [PARTITION BY k ROWS {rows} SLIDE {slide} MICROSECONDS]"
    expected = []
    boundary = events[0][0] // slide * slide + slide
    while boundary <= events[-1][0] // slide * slide + slide:
        for key in sorted({e[1] for e in events if e[0] < boundary}, key=order):
            window = [e for e in events if e[1] == key and e[0] < boundary][-rows:]
            expected += [(window[0][0], boundary, v) for _, _, v in window]
        boundary += slide
    assert run(text, events, cut) == expected


@settings(max_examples=60, deadline=None)
@given(streams, cuts, st.integers(1, 15), st.booleans())
def test_sessions_show_their_rows_when_they_close(
    events: list[Event], cut: list[int], gap: int, partitioned: bool
) -> None:
    by = "PARTITION BY k " if partitioned else ""
    sessions: list[list[Event]] = []
    current: dict[str | None, list[Event]] = {}
    for event in events:
        key = event[1] if partitioned else None
        if key not in current or event[0] >= current[key][-1][0] + gap:
            current[key] = []
            sessions.append(current[key])
        current[key].append(event)
    sessions.sort(key=lambda s: (s[-1][0] + gap, order(s[0][1]) if partitioned else (False, "")))
    expected = [(s[0][0], s[-1][0] + gap, k, v) for s in sessions for _, k, v in s if v < 8]
    assert run(f"SELECT k, v FROM s [{by}SESSION {gap} MICROSECONDS] WHERE v < 8", events, cut) == expected


@pytest.mark.parametrize(
    "window",
    [
        "PARTITION BY k ROWS 2 SLIDE 2",
        "PARTITION BY k ROWS 2 SLIDE 10 MICROSECONDS",
        "SESSION 4 MICROSECONDS",
        "PARTITION BY k SESSION 7 MICROSECONDS",
        "RANGE 20 MICROSECONDS SLIDE 5 MICROSECONDS",
        "ROWS 3 SLIDE 2",
    ],
)
def test_a_restart_changes_nothing(window: str, tmp_path: Path) -> None:
    events: list[Event] = [(i * i % 7 + 3 * i, [None, "a", "b"][i % 3], i) for i in range(30)]
    events.sort(key=lambda e: e[0])
    query = f"SELECT ISTREAM k, v FROM s [{window}]"
    assert run(query, events, [5, 11, 20], tmp_path) == run(query, events, [])


def test_strings_that_are_null_leave_too() -> None:
    """NULL has no code to give back."""
    events: list[Event] = [(i, None, i) for i in range(5)] + [(100 + i, f"k{i}", i) for i in range(5)]
    rows = run("SELECT k FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]", events, [1, 2, 3, 4])
    assert [row[2] for row in rows] == [None] * 5 + [f"k{i}" for i in range(5)]


def test_rows_of_sessions_go_with_them() -> None:
    with ps.App(STREAM + "SELECT k, v FROM s [PARTITION BY k SESSION 1 SECOND]", memory="20MB") as app:
        app.subscribe("q1", lambda rows: None)
        for start in range(0, 50_000, 1_000):
            events = range(start, start + 1_000)
            app.push("s", [{"t": i * 10_000 + start * 2_000, "k": f"k{i % 7}", "v": i} for i in events])
        assert app.metrics.memory_peak < 400_000
        assert app.metrics.results > 48_000


@pytest.mark.parametrize("window", ["PARTITION BY k ROWS 5000 SLIDE 5000", "PARTITION BY k SESSION 1 SECOND"])
def test_rows_that_do_not_fit_the_budget_are_paged(window: str) -> None:
    """Two partitions of long texts; every row comes back, in its order."""
    count = 20_000
    with ps.App(STREAM + f"SELECT k, v FROM s [{window}]", memory="200KB", block_size=1024) as app:
        for start in range(0, count, 500):
            app.push("s", [{"t": i, "k": "x" * 50 + str(i % 2), "v": i} for i in range(start, start + 500)])
        app.finish()
        rows = app.results("q1")
        assert app.metrics.blocks_read > 0
        assert app.metrics.memory_peak <= 200_000
    values = rows.column("v").to_pylist()
    if "ROWS" in window:  # the partitions take turns: 5,000 rows of one, then of the other
        assert values == [i for end in (10_000, 20_000) for part in (0, 1) for i in range(end - 10_000 + part, end, 2)]
    else:
        assert values == [*range(0, count, 2), *range(1, count, 2)]
