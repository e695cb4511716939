"""Joins and look-ups by expressions, also such that fail on some rows: answers and rejects against brute force.

A pair is rejected where its conditions, from left to right and up to the first FALSE, come to one that fails. What is
never computed does not fail: rows that fail a condition over their own side which cannot fail, and pairs that differ in
an equality which cannot fail.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import App
from properties.join_oracle import Case, Condition, Joined, Row, Side, difference, evaluations, windows
from properties.test_joins import SECOND, in_order, pushes, results

MOST = 2**31 - 1
Value = Any


class Failed(Exception):
    pass


@dataclass(frozen=True)
class Term:
    """SQL with {x} for the side, its value for a row of that side, and the columns that it reads."""

    sql: str
    value: Callable[[Row], Value]
    columns: str
    fails: bool


def column(row: Row | None, name: str) -> Value:
    return None if row is None else row[name]


def fitting(value: int | None) -> int | None:
    if value is not None and not -MOST - 1 <= value <= MOST:
        raise Failed
    return value


def plus(row: Row | None, name: str, more: int) -> Value:
    value = column(row, name)
    return None if value is None else fitting(value + more)


def cast(row: Row | None) -> Value:
    text = column(row, "s")
    if text is not None and not text.lstrip("-").isdigit():
        raise Failed
    return None if text is None else fitting(int(text))


def divided(row: Row | None) -> Value:
    value = column(row, "v")
    if value == 0:
        raise Failed
    return None if value is None else 4 // value


def tens(row: Row | None) -> Value:
    value = column(row, "k")
    return None if value is None else abs(value) // 2 * 2 * (1 if value >= 0 else -1)


TERMS = [
    Term("{x}.k", lambda r: column(r, "k"), "k", False),
    Term("{x}.v", lambda r: column(r, "v"), "v", False),
    Term("{x}.k + 1", lambda r: plus(r, "k", 1), "k", True),
    Term("{x}.k - 2", lambda r: plus(r, "k", -2), "k", True),
    Term("CAST({x}.s AS INT)", cast, "s", True),
    Term("CAST(4 DIV {x}.v AS INT)", divided, "v", True),
    Term("{x}.k DIV 2 * 2", tens, "k", False),
]


@dataclass(frozen=True)
class Part(Condition):
    columns: frozenset[str]
    fails: bool
    is_key: bool


def compared(one: Term, i: int, other: Term, j: int, sign: str = "=") -> Part:
    def holds(row: Joined) -> bool | None:
        left = one.value(row[i])  # type: ignore[arg-type]
        if left is None:
            return None  # what stands right of it is not computed
        right = other.value(row[j])  # type: ignore[arg-type]
        if right is None:
            return None
        return bool(left == right if sign == "=" else left <= right)

    text = f"{one.sql.format(x=f'x{i}')} {sign} {other.sql.format(x=f'x{j}')}"
    read = frozenset({f"x{i}.{one.columns}", f"x{j}.{other.columns}"})
    fails = one.fails or other.fails
    return Part(text, holds, frozenset({i, j}), read, fails, sign == "=" and i != j and not fails)


@st.composite
def parts(draw: Any) -> tuple[Part, ...]:
    """A key that can fail, with or without others before and behind it."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        one, other = draw(st.sampled_from(TERMS)), draw(st.sampled_from(TERMS))
        i = draw(st.integers(0, 1))
        sign = draw(st.sampled_from(["=", "=", "=", "<="]))
        j = i if sign == "<=" and draw(st.integers(0, 2)) == 0 else 1 - i
        found.append(compared(one, i, other, j, sign))
    return tuple(found)


@st.composite
def cases(draw: Any, outer: bool, slides: bool) -> Case:
    slide = draw(st.sampled_from([2, 3])) if slides else None
    sides = []
    for place in range(2):
        rows = draw(st.integers(1, 6)) if draw(st.booleans()) else None
        seconds = None if rows else draw(st.integers(slide or 1, 9))
        kind = draw(st.sampled_from(["LEFT", "RIGHT", "FULL"])) if outer and place else "INNER"
        on = draw(parts()) if place else ()
        sides.append(Side(draw(st.sampled_from("ab")), rows, seconds, kind, on))
    where = () if outer or draw(st.booleans()) else draw(parts())
    return Case(tuple(sides), where, draw(st.sampled_from(["", "", "RSTREAM", "ISTREAM"])), slide)


PROGRAM = "".join(
    f"CREATE STREAM {name} (t TIMESTAMP NOT NULL, n INT NOT NULL, k INT, s STRING, v INT, "
    "EVENT TIME t LATENESS 3 SECONDS SEQUENCE n);\n"
    for name in "ab"
)


def make_streams(seed: int) -> dict[str, list[Row]]:
    rng = random.Random(seed)
    return {
        name: [
            {
                "t": t,
                "n": n,
                "k": rng.choice([None, 1, 2, 3, 3, MOST]),
                "s": rng.choice([None, "1", "2", "3", "what"]),
                "v": rng.choice([None, 0, 1, 2, 4]),
            }
            for n, t in enumerate(sorted(rng.randrange(0, 18) for _ in range(rng.choice([0, 1, 8, 14]))))
        ]
        for name in "ab"
    }


def holds(conditions: Sequence[Part], row: Joined) -> bool:
    """AND; raises `Failed` where it comes to what fails."""
    unknown = False
    for condition in conditions:
        found = condition.holds(row)
        if found is False:
            return False
        unknown |= found is None
    return not unknown


def expected(case: Case, streams: dict[str, list[Row]]) -> tuple[list[tuple[Any, ...]], Counter[Any]]:
    """Answers, and what is rejected: rows by the columns of the conditions, with how often."""
    names = list(dict.fromkeys(side.stream for side in case.sides))
    events = sorted(
        ((row["t"], names.index(name), row["n"], name, row) for name in names for row in streams[name]),
        key=lambda event: event[:3],
    )
    kind = case.sides[1].kind
    every: list[Part] = [*case.sides[1].on, *case.where]  # type: ignore[list-item]
    own = [c for c in every if len(c.sides) == 1 and not c.fails and (kind == "INNER" or _is_filter(c, kind))]
    first = [c for c in every if c.is_key]
    then = [c for c in every if c not in own and not c.is_key]
    read = sorted(frozenset().union(*(c.columns for c in then))) if then else []
    rejects: Counter[Any] = Counter()
    answers: list[tuple[Any, ...]] = []
    before: list[tuple[Any, ...]] = []
    for end, seen, arriving in evaluations(case, events):
        contents, start = windows(case, seen, end)
        of_event = arriving is not None and (not case.emit or (case.emit == "ISTREAM" and kind == "INNER"))
        relation: list[Joined] = []
        matched: tuple[set[int], set[int]] = (set(), set())
        for x in contents[0]:
            for y in contents[1]:
                if of_event and x is not arriving and y is not arriving:
                    continue
                if not all(c.holds((x, y)) for c in own) or not all(c.holds((x, y)) for c in first):
                    continue
                try:
                    if holds(then, (x, y)):
                        relation.append((x, y))
                        matched[0].add(id(x))
                        matched[1].add(id(y))
                except Failed:
                    row = {"x0": x, "x1": y}
                    rejects[tuple((name, row[name[:2]][name[3:]]) for name in read)] += 1
        shown = [arriving] if of_event else None
        if kind in ("LEFT", "FULL"):
            relation += [(x, None) for x in contents[0] if id(x) not in matched[0] and (not shown or x is arriving)]
        if kind in ("RIGHT", "FULL"):
            relation += [(None, y) for y in contents[1] if id(y) not in matched[1] and (not shown or y is arriving)]
        place = {id(event[4]): number for number, event in enumerate(seen)}
        relation.sort(key=lambda row: [-1 if part is None else place[id(part)] for part in row])
        values = [tuple(None if r is None else r[c] for r in row for c in ("n", "k", "s", "v")) for row in relation]
        if case.emit == "ISTREAM" and not of_event:
            values, before = difference(values, before), values
        if case.emit == "ISTREAM" and case.slide is None and of_event:
            values, before = arrived(case, contents, seen, values, before)
        answers += [(start * SECOND, end * SECOND, *row) for row in values]
    return answers, rejects


def arrived(
    case: Case, contents: Any, seen: Any, values: list[tuple[Any, ...]], before: list[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What has come to the relation of an inner join, as a multiset, and that relation."""
    relation = []
    every: list[Part] = [*case.sides[1].on, *case.where]  # type: ignore[list-item]
    for x in contents[0]:
        for y in contents[1]:
            try:
                if all(c.holds((x, y)) is True for c in every):
                    relation.append(tuple(r[c] for r in (x, y) for c in ("n", "k", "s", "v")))
            except Failed:
                pass
    return difference(relation, before), relation


def _is_filter(condition: Part, kind: str) -> bool:
    """Whether a part of ON that reads one side is asked of its rows alone: of the right one, if that keeps none."""
    return condition.sides == {1} and kind == "LEFT"


def run(case: Case, seed: int, directory: Path | None = None) -> None:
    streams = make_streams(seed)
    rng = random.Random(seed + 1)
    program = PROGRAM + f"CREATE QUERY q1 AS {case.sql};"
    rejects: Counter[Any] = Counter()
    app = App(program, checkpoint=directory, block_size=1024)
    try:
        steps = pushes(streams, rng)
        restart = rng.randrange(len(steps) + 1) if directory is not None else -1
        for number, (name, batch) in enumerate(steps):
            if number == restart:
                app.checkpoint()
                rejects += counted(app)
                app.close()
                app = App(program, checkpoint=directory, block_size=1024)
            app.push(name, batch)
        app.finish()
        answers, rejected = expected(case, streams)
        assert in_order(case, results(app)) == in_order(case, answers), case.sql
        assert rejects + counted(app) == rejected, case.sql
    finally:
        app.close()


def counted(app: App) -> Counter[Any]:
    return Counter(tuple(sorted(reject["row"].items())) for reject in app.rejects)


pytestmark = pytest.mark.filterwarnings("ignore:.*compared with all rows")
SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@pytest.mark.parametrize("slides", [False, True])
@pytest.mark.parametrize("outer", [False, True])
def test_joins_by_expressions(outer: bool, slides: bool) -> None:
    @settings(max_examples=120, **SETTINGS)
    @given(cases(outer, slides), st.integers(0, 10**6))
    def check(case: Case, seed: int) -> None:
        run(case, seed)

    check()


def test_joins_by_expressions_go_on_after_a_restart(tmp_path: Path) -> None:
    @settings(max_examples=60, **SETTINGS)
    @given(st.tuples(st.booleans(), st.booleans()).flatmap(lambda kinds: cases(*kinds)), st.integers(0, 10**6))
    def check(case: Case, seed: int) -> None:
        run(case, seed, Path(tempfile.mkdtemp(dir=tmp_path)))

    check()
