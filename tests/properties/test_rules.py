"""Where rules fire, held up against a recomputation in plain Python: any streams, cuts, restarts and strategies."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, x BIGINT, EVENT TIME t LATENESS 3 SECONDS);"
SECOND = 1_000_000

Event = dict[str, Any]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Story:
    """Events in the order in which they arrive, where pushes are cut, and after which push the app starts anew."""

    events: list[Event]
    cuts: list[int]
    restart: int


@st.composite
def stories(draw: st.DrawFn) -> Story:
    count = draw(st.integers(1, 24))
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 7]), min_size=count, max_size=count))
    times, now = [], 0
    for step in steps:
        now += step
        # Within the lateness, so nothing is late.
        times.append(max(now - draw(st.integers(0, 2)), 0))
    events = [
        {
            "t": t * SECOND,
            "k": draw(st.sampled_from(["a", "b", None])),
            "x": draw(st.one_of(st.none(), st.integers(0, 4))),
        }
        for t in times
    ]
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=4)))
    return Story(events, cuts, draw(st.integers(0, len(cuts))))


def fired(story: Story, rule: str, columns: list[str], **options: Any) -> list[Row]:
    rows: list[Row] = []

    def take(app: App) -> None:
        table = app.results("out")
        rows.extend(zip(*(table.column(c).to_pylist() for c in columns), strict=True) if len(table) else [])

    edges = [0, *story.cuts, len(story.events)]
    with tempfile.TemporaryDirectory() as place:
        app = App(STREAM + rule, checkpoint=place, **options)
        for number in range(len(edges) - 1):
            app.push("s", story.events[edges[number] : edges[number + 1]])
            if number == story.restart:
                take(app)
                app.checkpoint()
                app.close()
                app = App(STREAM + rule, checkpoint=place, **options)
        app.finish()
        take(app)
        assert app.rejects == []
        app.close()
    return rows


def in_order(story: Story) -> list[Event]:
    return sorted(story.events, key=lambda event: event["t"])


def rises(looked: list[tuple[Any, bool]]) -> list[int]:
    """The places at which a key's condition holds and did not when the key was last looked at."""
    held: dict[Any, bool] = {}
    found = []
    for place, (key, holds) in enumerate(looked):
        if holds and not held.get(key, False):
            found.append(place)
        held[key] = holds
    return found


def key_order(key: str | None) -> tuple[bool, str]:
    return key is not None, key or ""


def total(events: list[Event]) -> int | None:
    values = [e["x"] for e in events if e["x"] is not None]
    return sum(values) if values else None


def hot(events: list[Event]) -> bool:
    """HAVING SUM(x) > 4."""
    return (total(events) or 0) > 4


@settings(max_examples=40, deadline=None)
@given(stories(), st.booleans())
def test_an_event_passes_and_the_one_before_did_not(story: Story, by_key: bool) -> None:
    rule = f"WHEN SELECT k, x FROM s WHERE x > 2 {'BY k' if by_key else ''} THEN EMIT INTO out"
    events = in_order(story)
    looked = [(e["k"] if by_key else None, e["x"] is not None and e["x"] > 2) for e in events]
    expected = [(events[i]["k"], events[i]["x"]) for i in rises(looked)]
    assert fired(story, rule, ["k", "x"]) == expected


WINDOWS_AT_EVENTS: dict[str, Callable[[list[Event], int], list[Event]]] = {
    "[RANGE 3 SECONDS]": lambda events, i: [e for e in events[: i + 1] if e["t"] > events[i]["t"] - 3 * SECOND],
    "[ROWS 4]": lambda events, i: events[max(0, i - 3) : i + 1],
    "[PARTITION BY k ROWS 3]": lambda events, i: [e for e in events[: i + 1] if e["k"] == events[i]["k"]][-3:],
}


@pytest.mark.parametrize("window", WINDOWS_AT_EVENTS)
@pytest.mark.parametrize("grouped", [True, False])
@settings(max_examples=25, deadline=None)
@given(story=stories())
def test_the_group_of_an_event_rises(story: Story, window: str, grouped: bool) -> None:
    """Every event that passes WHERE looks at its group, whether its key is shown or not."""
    select = "SELECT k, SUM(x) AS total" if grouped else "SELECT 1 AS k, SUM(x) AS total"
    group = "GROUP BY k" if grouped or "PARTITION" in window else ""
    rule = f"WHEN {select} FROM s {window} WHERE x IS NOT NULL {group} HAVING SUM(x) > 4 THEN EMIT INTO out"
    events = in_order(story)
    looked, rows = [], []
    for i, event in enumerate(events):
        if event["x"] is None:
            continue
        inside = [e for e in WINDOWS_AT_EVENTS[window](events, i) if e["x"] is not None]
        if grouped:
            inside = [e for e in inside if e["k"] == event["k"]]
        looked.append((event["k"] if grouped or "PARTITION" in window else None, hot(inside)))
        rows.append((event["k"] if grouped else 1, total(inside)))
    assert fired(story, rule, ["k", "total"]) == [rows[i] for i in rises(looked)]


def evaluations(window: str, events: list[Event]) -> list[list[Event]]:
    """The contents of the window at each evaluation of a bounded run."""
    if not events:
        return []
    if window == "[RANGE 3 SECONDS SLIDE 2 SECONDS]":
        last = events[-1]["t"] // (2 * SECOND) + 1
        bounds = [b * 2 * SECOND for b in range(events[0]["t"] // (2 * SECOND) + 1, last + 1)]
        return [[e for e in events if b - 3 * SECOND <= e["t"] < b] for b in bounds]
    if window == "[RANGE 2 SECONDS SLIDE 2 SECONDS]":
        last = events[-1]["t"] // (2 * SECOND) + 1
        bounds = [b * 2 * SECOND for b in range(events[0]["t"] // (2 * SECOND) + 1, last + 1)]
        return [[e for e in events if b - 2 * SECOND <= e["t"] < b] for b in bounds]
    if window == "[ROWS 4 SLIDE 2]":
        return [events[max(0, i - 4) : i] for i in range(2, len(events) + 1, 2)]
    assert window == "[RANGE 3 SECONDS] RSTREAM"
    return [[e for e in events[: i + 1] if e["t"] > events[i]["t"] - 3 * SECOND] for i in range(len(events))]


WINDOWS = [
    "[RANGE 3 SECONDS SLIDE 2 SECONDS]",
    "[RANGE 2 SECONDS SLIDE 2 SECONDS]",
    "[ROWS 4 SLIDE 2]",
    "[RANGE 3 SECONDS] RSTREAM",
]


def groups(inside: list[Event]) -> dict[str | None, list[Event]]:
    keys = sorted({e["k"] for e in inside}, key=key_order)
    return {key: [e for e in inside if e["k"] == key] for key in keys}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shown", ["k, SUM(x) AS total", "SUM(x) AS total", "k, SUM(x) AS total, MAX(k) AS text"])
@pytest.mark.parametrize("strategy", ["window", "panes"])
@settings(max_examples=6, deadline=None)
@given(story=stories())
def test_a_group_comes_into_the_relation(story: Story, window: str, shown: str, strategy: str) -> None:
    """Groups are told apart by their keys, whether these are shown or not."""
    extent, _, emit = window.partition("] ")
    rule = f"WHEN SELECT {emit} {shown} FROM s {extent.rstrip(']')}] GROUP BY k HAVING SUM(x) > 4 THEN EMIT INTO out"
    before: set[Any] = set()
    expected = []
    for inside in evaluations(window, in_order(story)):
        now = {key: own for key, own in groups(inside).items() if hot(own)}
        expected += [
            (key, total(own)) if "k," in shown else (total(own),) for key, own in now.items() if key not in before
        ]
        before = set(now)
    columns = ["k", "total"] if "k," in shown else ["total"]
    assert fired(story, rule, columns, strategy=strategy) == expected


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=6, deadline=None)
@given(story=stories())
def test_one_group_comes_and_goes(story: Story, window: str) -> None:
    extent, _, emit = window.partition("] ")
    rule = f"WHEN SELECT {emit} COUNT(*) AS n FROM s {extent.rstrip(']')}] HAVING COUNT(*) > 2 THEN EMIT INTO out"
    looked = [(None, len(inside) > 2) for inside in evaluations(window, in_order(story))]
    sizes = [len(inside) for inside in evaluations(window, in_order(story))]
    assert fired(story, rule, ["n"]) == [(sizes[i],) for i in rises(looked)]


@settings(max_examples=20, deadline=None)
@given(story=stories())
def test_the_first_of_an_order_changes(story: Story) -> None:
    window = "[RANGE 3 SECONDS SLIDE 2 SECONDS]"
    rule = f"WHEN SELECT k, COUNT(*) AS n FROM s {window} GROUP BY k ORDER BY n DESC, k LIMIT 1 THEN EMIT INTO out"
    before: set[Any] = set()
    expected = []
    for inside in evaluations(window, in_order(story)):
        now = sorted(groups(inside).items(), key=lambda group: (-len(group[1]), key_order(group[0])))[:1]
        expected += [(key, len(own)) for key, own in now if key not in before]
        before = {key for key, _ in now}
    assert fired(story, rule, ["k", "n"]) == expected


@settings(max_examples=20, deadline=None)
@given(story=stories())
def test_rows_come_into_a_window(story: Story) -> None:
    window = "[RANGE 3 SECONDS SLIDE 2 SECONDS]"
    before: Counter[Row] = Counter()
    expected = []
    for inside in evaluations(window, in_order(story)):
        now = Counter((e["k"], e["x"]) for e in inside if e["x"] is not None and e["x"] > 2)
        expected.append(now - before)
        before = now
    found = fired(story, f"WHEN SELECT k, x FROM s {window} WHERE x > 2 THEN EMIT INTO out", ["k", "x"])
    assert Counter(found) == sum(expected, Counter())


@settings(max_examples=20, deadline=None)
@given(story=stories())
def test_every_row(story: Story) -> None:
    rule = "WHEN SELECT k, x FROM s WHERE x > 2 EVERY THEN EMIT INTO out SELECT x, k"
    expected = [(e["k"], e["x"]) for e in in_order(story) if e["x"] is not None and e["x"] > 2]
    assert fired(story, rule, ["k", "x"]) == expected


@settings(max_examples=20, deadline=None)
@given(story=stories())
def test_each_partition_for_itself(story: Story) -> None:
    """At every second event of a key its last three are looked at."""
    rule = (
        "WHEN SELECT SUM(x) AS total FROM s [PARTITION BY k ROWS 3 SLIDE 2] GROUP BY k HAVING SUM(x) > 4 "
        "THEN EMIT INTO out"
    )
    seen: dict[Any, list[Event]] = {}
    looked, rows = [], []
    for event in in_order(story):
        own = seen.setdefault(event["k"], [])
        own.append(event)
        if len(own) % 2 == 0:
            looked.append((event["k"], hot(own[-3:])))
            rows.append((total(own[-3:]),))
    assert fired(story, rule, ["total"]) == [rows[i] for i in rises(looked)]


@settings(max_examples=20, deadline=None)
@given(story=stories())
def test_windows_of_several_lengths(story: Story) -> None:
    rule = (
        "WHEN SELECT k, SUM(x) OVER [RANGE 2 SECONDS] AS short FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k "
        "HAVING SUM(x) OVER [RANGE 2 SECONDS] > 2 THEN EMIT INTO out"
    )
    events = in_order(story)
    before: set[Any] = set()
    expected = []
    for b in range(events[0]["t"] // (2 * SECOND) + 1, events[-1]["t"] // (2 * SECOND) + 2):
        end = b * 2 * SECOND
        inside = [e for e in events if end - 2 * SECOND <= e["t"] < end]
        now = {key: total(own) for key, own in groups(inside).items() if (total(own) or 0) > 2}
        expected += [(key, short) for key, short in now.items() if key not in before]
        before = set(now)
    assert fired(story, rule, ["k", "short"]) == expected
