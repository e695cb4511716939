"""Joins held up against brute force: all kinds, per event and at slides, NULL keys, ties, events out of order, self
joins, several sides, any cut of the batches, tiny budgets and restarts."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import App
from properties.join_oracle import Case, Condition, Joined, Row, Side, answers

LATENESS = 3
SECOND = 1_000_000


def _get(row: Joined, side: int, column: str) -> Any:
    own = row[side]
    return None if own is None else own[column]


def equal(i: int, j: int, column: str) -> Condition:
    def holds(row: Joined) -> bool | None:
        one, other = _get(row, i, column), _get(row, j, column)
        return None if one is None or other is None else one == other

    return Condition(f"x{i}.{column} = x{j}.{column}", holds, frozenset({i, j}))


def less(i: int, j: int) -> Condition:
    def holds(row: Joined) -> bool | None:
        one, other = _get(row, i, "v"), _get(row, j, "v")
        return None if one is None or other is None else one <= other

    return Condition(f"x{i}.v <= x{j}.v", holds, frozenset({i, j}))


def band(i: int, j: int, seconds: int) -> Condition:
    def holds(row: Joined) -> bool | None:
        one, other = _get(row, i, "t"), _get(row, j, "t")
        return None if one is None or other is None else other - seconds <= one <= other

    text = f"x{i}.t BETWEEN x{j}.t - INTERVAL '{seconds}' SECONDS AND x{j}.t"
    return Condition(text, holds, frozenset({i, j}))


def large(i: int) -> Condition:
    def holds(row: Joined) -> bool | None:
        value = _get(row, i, "v")
        return None if value is None else value >= 2

    return Condition(f"x{i}.v >= 2", holds, frozenset({i}))


def missing(i: int) -> Condition:
    return Condition(f"x{i}.n IS NULL", lambda row: _get(row, i, "n") is None, frozenset({i}))


def conditions(upto: int, draw: Any) -> tuple[Condition, ...]:
    """Some conditions over the sides up to and with one, most often with an equality."""
    other = draw(st.integers(0, upto - 1))
    found = []
    kind = draw(st.integers(0, 9))
    if kind < 6:
        found.append(equal(other, upto, "k" if kind < 4 else "s"))
    if kind in (3, 6):
        found.append(band(upto, other, draw(st.integers(0, 4))))
    if kind in (2, 7):
        found.append(less(other, upto))
    if kind in (1, 5, 8):
        found.append(large(draw(st.sampled_from([other, upto]))))
    if kind == 0:
        found.append(equal(draw(st.integers(0, upto - 1)), upto, "s"))
    return tuple(found)


@st.composite
def cases(draw: Any, outer: bool, slides: bool) -> Case:
    count = draw(st.sampled_from([2, 2, 2, 3]))
    slide = draw(st.sampled_from([2, 3, 5])) if slides else None
    sides: list[Side] = []
    for place in range(count):
        by_rows = draw(st.booleans())
        rows = draw(st.integers(1, 6)) if by_rows else None
        seconds = None if by_rows else draw(st.integers(slide or 1, 9))
        kind = draw(st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"])) if outer and place else "INNER"
        on = conditions(place, draw) if place and (kind != "INNER" or draw(st.booleans())) else ()
        if kind != "INNER" and not on:
            on = (equal(0, place, "k"),)
        sides.append(Side(draw(st.sampled_from("aab" if place else "ab")), rows, seconds, kind, on))
    where = list(conditions(count - 1, draw)) if draw(st.booleans()) else []
    if draw(st.integers(0, 3)) == 0:
        where.append(large(draw(st.integers(0, count - 1))))
    if outer and draw(st.integers(0, 3)) == 0:
        where.append(missing(draw(st.integers(0, count - 1))))
    if any(side.kind in ("RIGHT", "FULL") for side in sides):  # no comma before these
        sides = [
            s if s.on or not p else Side(s.stream, s.rows, s.seconds, s.kind, (large(0),)) for p, s in enumerate(sides)
        ]
    emit = draw(st.sampled_from(["", "", "", "RSTREAM", "ISTREAM", "DSTREAM"]))
    return Case(tuple(sides), tuple(where), emit, slide, slides and draw(st.integers(0, 2)) == 0)


def make_streams(seed: int) -> dict[str, list[Row]]:
    rng = random.Random(seed)
    streams: dict[str, list[Row]] = {}
    for name in ("a", "b"):
        times = sorted(rng.randrange(0, 24) for _ in range(rng.choice([0, 1, 8, 16])))
        streams[name] = [
            {
                "t": t,
                "n": n,
                "k": rng.choice([None, 1, 1, 2, 3]),
                "s": rng.choice([None, "p", "q"]),
                "v": rng.choice([None, 0, 1, 2, 3]),
            }
            for n, t in enumerate(times)
        ]
    return streams


PROGRAM = "".join(
    f"CREATE STREAM {name} (t TIMESTAMP NOT NULL, n INT NOT NULL, k INT, s STRING, v INT, "
    f"EVENT TIME t LATENESS {LATENESS} SECONDS SEQUENCE n);\n"
    for name in ("a", "b")
)


def pushes(streams: dict[str, list[Row]], rng: random.Random) -> list[tuple[str, list[dict[str, Any]]]]:
    """The streams out of order within their lateness, cut into batches and shuffled together."""
    found: list[tuple[float, str, list[dict[str, Any]]]] = []
    for name, rows in streams.items():
        late = sorted(rows, key=lambda row: row["t"] + rng.uniform(0, LATENESS))
        start = 0
        while start < len(late):
            stop = start + rng.choice([0, 1, 1, 2, 7, 100])
            batch = [row | {"t": row["t"] * SECOND} for row in late[start:stop]]
            found.append((late[start]["t"] + rng.uniform(-9, 9) + 100 * start, name, batch))
            start = stop
    order = sorted(range(len(found)), key=lambda i: (found[i][0], i))
    by_stream: dict[str, list[list[dict[str, Any]]]] = {}
    for _, name, batch in found:
        by_stream.setdefault(name, []).append(batch)
    return [(found[i][1], by_stream[found[i][1]].pop(0)) for i in order]


def results(app: App, query: str = "q1") -> list[tuple[Any, ...]]:
    table = app.results(query)
    columns = [c.cast("int64") if str(c.type).startswith("timestamp") else c for c in table.columns]
    return list(zip(*(c.to_pylist() for c in columns), strict=True)) if table.num_rows else []


def in_order(case: Case, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of one event's changes in the order of the oracle."""
    if case.slide is not None or case.emit not in ("ISTREAM", "DSTREAM"):
        return rows
    ordered = []
    start = 0
    for row in range(1, len(rows) + 1):
        if row == len(rows) or rows[row][:2] != rows[start][:2]:
            ordered += sorted(rows[start:row], key=lambda r: repr(r[2:]))
            start = row
    return ordered


def check(case: Case, seed: int, directory: Path | None = None, memory: str = "64MB") -> None:
    streams = make_streams(seed)
    rng = random.Random(seed + 1)
    program = PROGRAM + f"CREATE QUERY q1 AS {case.sql};"
    options: dict[str, Any] = {"memory": memory, "block_size": 1024}
    app = App(program, checkpoint=directory, **options)
    try:
        steps = pushes(streams, rng)
        restart = rng.randrange(len(steps) + 1) if directory is not None else -1
        for number, (name, batch) in enumerate(steps):
            if number == restart:
                app.checkpoint()
                app.close()
                app = App(program, checkpoint=directory, **options)
            app.push(name, batch)
        app.finish()
        expected = [(start * SECOND, end * SECOND, *rest) for start, end, *rest in answers(case, streams)]
        assert in_order(case, results(app)) == in_order(case, expected), case.sql
    finally:
        app.close()


pytestmark = pytest.mark.filterwarnings("ignore:.*compared with all rows")


def check_together(asked: list[Case], seed: int, directory: Path) -> None:
    """Queries over one join: they share what they can, one goes in the middle, and the others go on from a checkpoint
    without it."""
    streams = make_streams(seed)
    rng = random.Random(seed + 1)
    texts = [f"CREATE QUERY q{number} AS {case.sql};" for number, case in enumerate(asked)]
    app = App(PROGRAM + "".join(texts), checkpoint=directory, block_size=1024)
    dropped = rng.randrange(len(asked))
    try:
        steps = pushes(streams, rng)
        drop_at, restart = rng.randrange(len(steps) + 1), rng.randrange(len(steps) + 1)
        kept = list(range(len(asked)))
        for number, (name, batch) in enumerate(steps):
            if number == drop_at:
                app.drop_query(f"q{dropped}")
                kept.remove(dropped)
            if number == restart:
                app.checkpoint()
                app.close()
                app = App(PROGRAM + "".join(texts[n] for n in kept), checkpoint=directory, block_size=1024)
            app.push(name, batch)
        app.finish()
        for number in kept:
            case = asked[number]
            expected = [(start * SECOND, end * SECOND, *rest) for start, end, *rest in answers(case, streams)]
            assert in_order(case, results(app, f"q{number}")) == in_order(case, expected), case.sql
    finally:
        app.close()


SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@st.composite
def similar(draw: Any) -> list[Case]:
    """The same join several times, with windows of other sizes, or shown otherwise."""
    first: Case = draw(cases(draw(st.booleans()), draw(st.booleans())))
    found = [first, first]
    for _ in range(2):
        sides = []
        for side in first.sides:
            rows = None if side.rows is None else draw(st.integers(1, 6))
            seconds = None if side.seconds is None else draw(st.integers(first.slide or 1, 9))
            sides.append(replace(side, rows=rows, seconds=seconds))
        found.append(replace(first, sides=tuple(sides), emit=draw(st.sampled_from(["", "RSTREAM", "DSTREAM"]))))
    return found


def test_queries_that_share_a_join_answer_as_if_alone(tmp_path: Path) -> None:
    @settings(max_examples=40, **SETTINGS)
    @given(similar(), st.integers(0, 10**6))
    def run(asked: list[Case], seed: int) -> None:
        check_together(asked, seed, Path(tempfile.mkdtemp(dir=tmp_path)))

    run()


@pytest.mark.parametrize("slides", [False, True])
@pytest.mark.parametrize("outer", [False, True])
def test_joins_are_those_of_brute_force(outer: bool, slides: bool) -> None:
    @settings(max_examples=60, **SETTINGS)
    @given(cases(outer, slides), st.integers(0, 10**6))
    def run(case: Case, seed: int) -> None:
        check(case, seed)

    run()


def test_restarts_and_tiny_budgets_change_nothing(tmp_path: Path) -> None:
    @settings(max_examples=40, **SETTINGS)
    @given(st.tuples(st.booleans(), st.booleans()).flatmap(lambda kinds: cases(*kinds)), st.integers(0, 10**6))
    def run(case: Case, seed: int) -> None:
        check(case, seed, Path(tempfile.mkdtemp(dir=tmp_path)), "300KB")

    run()
