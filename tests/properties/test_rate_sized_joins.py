"""Joins over rate-sized windows against a simulation of the definition, event by event, however they are fed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.windows.spec import RateSized

from .rate_oracle import by_definition

Event = tuple[int, int, int]
"""A time, a key (-1 is NULL) and a value that tells the events apart."""

LATENESS = 20
STREAMS = "".join(
    f"CREATE STREAM {name} (t TIMESTAMP NOT NULL, k INT, v INT, EVENT TIME t LATENESS {LATENESS} MICROSECONDS);"
    for name in "ab"
)


@dataclass(frozen=True)
class Side:
    """Its stream, and its window: rate sized, a number of rows, or a time if that is negative."""

    stream: str
    window: RateSized | int

    @property
    def text(self) -> str:
        window = self.window
        if isinstance(window, int):
            return f"[ROWS {window}]" if window > 0 else f"[RANGE {-window} MICROSECONDS]"
        trigger = f" ON CHANGE OF {window.percent} PERCENT" if window.percent else ""
        return (
            f"[RATE SIZED {window.micros} MICROSECONDS SAMPLE {window.sample} MICROSECONDS"
            f" EVERY {window.every} MICROSECONDS{trigger}]"
        )


def simulated(events: dict[str, list[Event]], sides: tuple[Side, Side]) -> list[tuple[int, int]]:
    """The values of all pairs, one arriving event after the other."""
    streams = list(dict.fromkeys(side.stream for side in sides))
    order = sorted(((e[0], place, n), s, e) for place, s in enumerate(streams) for n, e in enumerate(events[s]))
    tails = [_tails([(key[0], stream == side.stream) for key, stream, _ in order], side.window) for side in sides]
    rows: list[list[Event]] = [[], []]
    pairs = []
    for number, (_, stream, event) in enumerate(order):
        own = [side.stream == stream for side in sides]
        for place in (0, 1):
            if own[place]:
                rows[place].append(event)
        held = [rows[place][tails[place][number] :] for place in (0, 1)]
        for left in held[0]:
            for right in held[1]:
                takes_part = (own[0] and left is event) or (own[1] and right is event)
                if takes_part and left[1] == right[1] >= 0:
                    pairs.append((left[2], right[2]))
    return pairs


def _tails(events: list[tuple[int, bool]], window: RateSized | int) -> list[int]:
    if isinstance(window, RateSized):
        return by_definition(events, window)
    tails = []
    own: list[int] = []
    for time, is_own in events:
        if is_own:
            own.append(time)
        tails.append(max(0, len(own) - window) if window > 0 else sum(t <= time + window for t in own))
    return tails


def computed(
    events: dict[str, list[Event]], sides: tuple[Side, Side], cuts: random.Random, directory: Path | None
) -> list[tuple[int, int]]:
    text = (
        STREAMS + f"CREATE QUERY pairs AS SELECT x.v AS x, y.v AS y FROM {sides[0].stream} {sides[0].text} AS x,"
        f" {sides[1].stream} {sides[1].text} AS y WHERE x.k = y.k;"
    )
    arriving = {s: sorted(own, key=lambda e: e[0] + cuts.random() * LATENESS) for s, own in events.items()}
    app = ps.App(text, checkpoint=directory, memory="4MB", block_size=4096)
    found = []
    while any(arriving.values()):
        stream = cuts.choice([s for s, own in arriving.items() if own])
        count = cuts.choice([1, 1, 3, 20])
        batch, arriving[stream] = arriving[stream][:count], arriving[stream][count:]
        app.push(stream, [{"t": t, "k": None if k < 0 else k, "v": v} for t, k, v in batch])
        if directory is not None and cuts.random() < 0.2:
            found += app.results("pairs").to_pylist()
            app.checkpoint()
            app.close()
            app = ps.App(text, checkpoint=directory, memory="4MB", block_size=4096)
    app.finish()
    found += app.results("pairs").to_pylist()
    app.close()
    return [(row["x"], row["y"]) for row in found]


@st.composite
def streams(draw: st.DrawFn) -> dict[str, list[Event]]:
    """Rates change, and some times are equal; ties go by arrival, so equal times keep their order here."""
    found = {}
    for stream in "ab":
        time, events = draw(st.integers(-50, 50)), []
        for gap, count in draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=6)):
            for _ in range(count):
                time += gap
                events.append((time, draw(st.integers(-1, 2)), len(events) + (1000 if stream == "b" else 0)))
        found[stream] = events
    return found


RATE_SIZED = st.builds(
    lambda d, every, depth, percent: RateSized(d, every * depth, every, percent),
    st.integers(1, 150),
    st.integers(1, 40),
    st.integers(1, 5),
    st.sampled_from([0, 0, 20]),
)


@settings(max_examples=60, deadline=None)
@given(
    streams(),
    RATE_SIZED,
    st.one_of(RATE_SIZED, st.integers(1, 6), st.integers(-80, -1)),
    st.sampled_from(["ab", "ba", "aa"]),
    st.randoms(use_true_random=False),
)
def test_a_join_is_as_defined(
    events: dict[str, list[Event]], first: RateSized, second: RateSized | int, names: str, cuts: random.Random
) -> None:
    sides = Side(names[0], first), Side(names[1], second)
    distinct = {s: _apart(own) for s, own in events.items()}
    assert computed(distinct, sides, cuts, None) == simulated(distinct, sides)


def _apart(events: list[Event]) -> list[Event]:
    """Arrival may swap equal times of a stream, which ties then follow; so there are none."""
    times: set[int] = set()
    return [event for event in events if not (event[0] in times or times.add(event[0]))]  # type: ignore[func-returns-value]


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_changes_nothing(tmp_path: Path, seed: int) -> None:
    cuts = random.Random(seed)
    events = {}
    for stream in "ab":
        times = sorted(cuts.sample(range(600), 60) + cuts.sample(range(200, 300), 40))
        events[stream] = _apart([(t, cuts.randrange(3), n) for n, t in enumerate(times)])
    sides = Side("a", RateSized(100, 50, 10)), Side("b", RateSized(40, 40, 20, 10))
    assert computed(events, sides, cuts, tmp_path) == simulated(events, sides)


def test_a_constant_rate_gives_what_a_time_window_gives() -> None:
    events: dict[str, list[Event]] = {
        "a": [(10 * n, n % 7, n) for n in range(200)],
        "b": [(10 * n + 5, n % 5, n) for n in range(200)],
    }
    cuts = random.Random(1)
    # Eleven rows, whether a row of the side itself or of the other has come last.
    timed = computed(events, (Side("a", -106), Side("b", -106)), cuts, None)
    sized = computed(events, (Side("a", RateSized(106, 100, 10)), Side("b", RateSized(106, 100, 10))), cuts, None)
    assert sized == timed
    assert len(timed) > 500


def test_conditions_on_one_side_do_not_change_its_rate() -> None:
    """Rows are counted before WHERE, as in a window of rows."""
    sized = "[RATE SIZED 10 MICROSECONDS SAMPLE 10 MICROSECONDS EVERY 5 MICROSECONDS]"
    text = STREAMS + f"SELECT x.v AS x, y.v AS y FROM a {sized} x, b {sized} y WHERE x.k = y.k AND x.v % 2 = 0;"
    with ps.App(text) as app:
        for stream in "ab":
            app.push(stream, [{"t": t, "k": t % 4, "v": t} for t in range(100)])
        app.finish()
        pairs = {(row["x"], row["y"]) for row in app.results("q1").to_pylist()}
    assert pairs == {(x, y) for x in range(0, 100, 2) for y in range(100) if abs(x - y) < 10 and x % 4 == y % 4}
