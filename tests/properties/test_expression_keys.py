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
from penstock.plan.joins import build as joins_build
from penstock.plan.tables import lookups
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


SIDES = ("x0", "x1", "x2")


@dataclass(frozen=True)
class Part(Condition):
    columns: frozenset[str]
    fails: bool
    is_key: bool


def compared(one: Term, i: int, other: Term, j: int, sign: str = "=", names: Sequence[str] = SIDES) -> Part:
    def holds(row: Joined) -> bool | None:
        left = one.value(row[i])  # type: ignore[arg-type]
        if left is None:
            return None  # what stands right of it is not computed
        right = other.value(row[j])  # type: ignore[arg-type]
        if right is None:
            return None
        return bool(left == right if sign == "=" else left <= right)

    text = f"{one.sql.format(x=names[i])} {sign} {other.sql.format(x=names[j])}"
    read = frozenset({f"{names[i]}.{one.columns}", f"{names[j]}.{other.columns}"})
    fails = one.fails or other.fails
    return Part(text, holds, frozenset({i, j}), read, fails, sign == "=" and i != j and not fails)


@st.composite
def parts(draw: Any, sides: Sequence[int] = (0, 1), names: Sequence[str] = SIDES) -> tuple[Part, ...]:
    """Equalities, some of which can fail, and other conditions before and behind them."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        one, other = draw(st.sampled_from(TERMS)), draw(st.sampled_from(TERMS))
        i, j = draw(st.permutations(sides))[:2]
        sign = draw(st.sampled_from(["=", "=", "=", "<="]))
        j = i if sign == "<=" and draw(st.integers(0, 2)) == 0 else j
        found.append(compared(one, i, other, j, sign, names))
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
    own = [c for c in every if not c.fails and (c.sides == {1} or (c.sides == {0} and c in case.where))]
    own = own if kind in ("INNER", "LEFT") else []  # others keep their rows
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
    @settings(max_examples=60, **SETTINGS)
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


# Several sides: what is rejected depends on the order in which they are joined, which keys must not change.


@st.composite
def chains(draw: Any, outer: bool) -> Case:
    slide = draw(st.sampled_from([None, None, 3]))
    sides = []
    for place in range(3):
        kind = draw(st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"])) if outer and place else "INNER"
        on = draw(parts(range(place + 1))) if place and (outer or draw(st.booleans())) else ()
        rows = draw(st.integers(1, 5)) if draw(st.integers(0, 3)) == 0 else None
        sides.append(
            Side(draw(st.sampled_from("ab")), rows, None if rows else draw(st.integers(slide or 1, 7)), kind, on)
        )
    where = draw(parts(range(3))) if draw(st.booleans()) or not outer else ()
    return Case(tuple(sides), where, draw(st.sampled_from(["", "", "RSTREAM", "ISTREAM"])), slide)


def outcome(program: str, steps: Any) -> tuple[list[tuple[Any, ...]], Counter[Any]]:
    with App(program, block_size=1024) as app:
        for name, batch in steps:
            app.push(name, batch)
        app.finish()
        return results(app), counted(app)


@pytest.mark.parametrize("outer", [False, True])
def test_joins_of_several_sides_are_those_without_keys(outer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    narrowings = joins_build.narrowings

    @settings(max_examples=50, **SETTINGS)
    @given(chains(outer), st.integers(0, 10**6))
    def check(case: Case, seed: int) -> None:
        program = PROGRAM + f"CREATE QUERY q1 AS {case.sql};"
        steps = pushes(make_streams(seed), random.Random(seed))
        monkeypatch.setattr(joins_build, "narrowings", narrowings)
        answers, rejects = outcome(program, steps)
        monkeypatch.setattr(joins_build, "narrowings", lambda *_: ())
        compared, rejected = outcome(program, steps)
        assert in_order(case, answers) == in_order(case, compared), case.sql
        assert rejects == rejected, case.sql

    check()


# Tables: each event puts its row into a table, under one of five keys, and looks at the rows of all that came before.

TABLE = """
CREATE STREAM s (t TIMESTAMP NOT NULL, n INT NOT NULL, k INT, s STRING, v INT, EVENT TIME t SEQUENCE n);
CREATE TABLE T (id INT PRIMARY KEY, k INT, s STRING, v INT);
CREATE TABLE U (v INT, k INT, s STRING, PRIMARY KEY (v));
ON s UPSERT INTO T (id, k, s, v) VALUES (s.n % 5, s.k, s.s, s.v);
ON s WHERE s.v IS NOT NULL UPSERT INTO U (v, k, s) VALUES (s.v, s.k, s.s);
"""


@dataclass(frozen=True)
class TableCase:
    left: bool
    on: tuple[Part, ...]
    where: tuple[Part, ...]

    @property
    def sql(self) -> str:
        on = " AND ".join(f"({c.sql})" for c in self.on)
        where = f" WHERE {' AND '.join(f'({c.sql})' for c in self.where)}" if self.where else ""
        return f"SELECT s.n, T.id, T.k, T.s, T.v FROM s {'LEFT ' * self.left}JOIN T ON {on}{where}"


@st.composite
def table_cases(draw: Any) -> TableCase:
    on = draw(parts(names=("s", "T")))
    where = draw(parts(names=("s", "T"))) if draw(st.integers(0, 2)) == 0 else ()
    return TableCase(draw(st.booleans()), on, where)


def looked_up(case: TableCase, rows: list[Row]) -> tuple[list[tuple[Any, ...]], Counter[Any]]:
    """Answers, and who is rejected: events, or pairs of an event and a row."""
    table: dict[int, Row] = {}
    found: list[tuple[Any, ...]] = []
    rejects: Counter[Any] = Counter()
    for event in rows:
        table[event["n"] % 5] = {"id": event["n"] % 5, **event}
        pairs = [(event, table[key]) for key in sorted(table)]
        # Before the look-up, then with it, then behind it.
        first = [c for c in case.where if c.sides == {0} and not c.fails]
        if not all(c.holds((event, None)) for c in first):
            continue
        if case.left:
            joined = left_joined(case, event, pairs, rejects)
            rest: list[Part] = [c for c in case.where if c not in first]
        else:
            every = [*case.where, *case.on]
            joined = [pair for pair in pairs if all(c.holds(pair) for c in every if not c.fails)]
            rest = [c for c in every if c.fails]
        for pair in joined:
            try:
                if holds(rest, pair):
                    row = pair[1]
                    found.append((event["n"], *(None if row is None else row[c] for c in ("id", "k", "s", "v"))))
            except Failed:
                rejects[event["n"], None if pair[1] is None else pair[1]["id"]] += 1
    return found, rejects


def left_joined(case: TableCase, event: Row, pairs: Any, rejects: Counter[Any]) -> list[Joined]:
    """A column of the table that equals something of the event is a key: where that fails, the event is rejected."""
    keys: dict[str, Part] = {}
    for condition in case.on:
        one, _, other = condition.sql.partition(" = ")
        for own, by in ((one, other), (other, one)):
            if own in ("T.k", "T.v") and "s." in by:
                keys.setdefault(own, condition)
    then = [c for c in case.on if c not in keys.values()]
    matched: list[Joined] = []
    try:
        for key in keys.values():
            computed(key, event)
    except Failed:
        rejects[event["n"], None] += 1
        return []
    for pair in pairs:
        if not all(key.holds(pair) for key in keys.values()):
            continue
        try:
            if holds(then, pair):
                matched.append(pair)
        except Failed:
            rejects[event["n"], pair[1]["id"]] += 1
    return matched or [(event, None)]


def computed(key: Part, event: Row) -> None:
    """The event's side of a key, whatever the table has."""
    one, _, other = key.sql.partition(" = ")
    text = one if one.replace("CAST(4", "").find("s.") >= 0 and not one.startswith("T.") else other
    term = next(term for term in TERMS if term.sql.format(x="s") == text)
    term.value(event)


def test_tables_by_expressions() -> None:
    @settings(max_examples=80, **SETTINGS)
    @given(table_cases(), st.integers(0, 10**6), st.integers(1, 20))
    def check(case: TableCase, seed: int, size: int) -> None:
        rows = make_streams(seed)["a"]
        with App(TABLE + f"CREATE QUERY q1 AS {case.sql};") as app:
            for start in range(0, len(rows), size):
                app.push("s", [row | {"t": row["t"] * SECOND} for row in rows[start : start + size]])
            app.finish()
            found = [tuple(row.values()) for row in app.results("q1").to_pylist()]
            rejects = Counter((reject["row"]["s.n"], reject["row"].get("T.id")) for reject in app.rejects)
        assert (found, rejects) == looked_up(case, rows), case.sql

    check()


NARROWED = lookups.narrowed


@st.composite
def several_tables(draw: Any) -> str:
    names = ("s", "T", "U")
    text, where = "s", list(draw(parts(range(3), names)))
    for place in (1, 2):
        on = " AND ".join(c.sql for c in draw(parts(range(place + 1), names)))
        text += f" {draw(st.sampled_from(['', '', 'LEFT ']))}JOIN {names[place]} ON {on}"
    asked = f" WHERE {' AND '.join(c.sql for c in where)}" if draw(st.booleans()) else ""
    return f"SELECT s.n, T.id, U.v, PREV(T.k) AS p FROM {text}{asked}"


def outcomes_of(query: str, seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results and rejects with shorter ways, and without."""
    rows = [row | {"t": row["t"] * SECOND} for row in make_streams(seed)["a"]]
    outcomes = []
    for way in (NARROWED, lambda found, *_: tuple(found)):
        monkeypatch.setattr(lookups, "narrowed", way)
        with App(TABLE + f"CREATE QUERY q1 AS {query};") as app:
            for start in range(0, len(rows), size):
                app.push("s", rows[start : start + size])
            app.finish()
            outcomes.append((app.results("q1").to_pylist(), counted(app)))
    return outcomes


def test_several_tables_are_those_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=80, **SETTINGS)
    @given(several_tables(), st.integers(0, 10**6), st.integers(1, 20))
    def check(query: str, seed: int, size: int) -> None:
        with_keys, without = outcomes_of(query, seed, size, monkeypatch)
        assert with_keys == without, query

    check()


@pytest.mark.parametrize(
    "on",
    [
        "s.k + 1 = U.v AND s.k = U.k + 1 AND CAST(s.s AS INT) = U.k",
        "CAST(s.s AS INT) = U.k AND s.k + 1 = U.v",
    ],
)
def test_a_primary_key_leaves_out_no_equality_that_can_fail(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """U is found by its key v. The text of the first event is no number: its pairs are rejected, whatever its key."""
    with_keys, without = outcomes_of(f"SELECT s.n, U.v FROM s JOIN U ON {on}", 0, 1, monkeypatch)
    assert with_keys == without
    assert without[1]
