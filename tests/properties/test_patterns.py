"""Patterns, held up against `pattern_oracle`: any pattern, streams, cuts, memory and restarts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from hypothesis import event, given
from hypothesis import strategies as st

from penstock import App
from penstock.errors import QueryError
from penstock.operators.patterns import matcher
from penstock.operators.patterns import search as pattern_search
from properties.pattern_oracle import Condition, Event, Group, Item, Row, items, matches

SECOND = 1_000_000
STREAMS = ("A", "B", "C")

Values = dict[str, Any]


def declared(lateness: int) -> str:
    return "".join(
        f"CREATE STREAM {name} (t TIMESTAMP, n BIGINT, k INT, s STRING, x BIGINT, "
        f"EVENT TIME t LATENESS {lateness} SECONDS);\n"
        for name in STREAMS
    )


@dataclass(frozen=True)
class Story:
    """Rows in the order in which they arrive, where pushes are cut, after which push the app starts anew (-1: never),
    the memory, and how many events join or are taken in one go."""

    rows: list[tuple[str, Row]]
    cuts: list[int]
    restart: int
    memory: str
    room: int
    stride: int


@st.composite
def stories(draw: st.DrawFn) -> Story:
    count = draw(st.integers(6, 14) | st.integers(1, 14))
    now, rows = 0, []
    for number in range(count):
        now += draw(st.sampled_from([0, 0, 0, 1, 1, 1, 2, 5]))
        late = draw(st.sampled_from([0, 0, 0, 1, 2]))
        row = {
            "t": max(0, now - late) * SECOND,
            "n": number,
            "k": draw(st.sampled_from([1, 1, 1, 1, 2, 2, None])),
            "s": draw(st.sampled_from(["u", "u", "u", "v", None])),
            "x": draw(st.sampled_from([0, 1, 2, 3, None])),
        }
        rows.append((draw(st.sampled_from("AAABBC")), row))
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=6)) | {0, count})
    restart = draw(st.sampled_from([-1, -1, 0, 1, 2]))
    memory = draw(st.sampled_from(["64MB", "1MB"]))
    return Story(rows, cuts, restart, memory, draw(st.sampled_from([1, 3, 1000])), draw(st.sampled_from([1, 3, 1000])))


def in_order(story: Story) -> list[Event]:
    """The total order: (time, first mention, arrival). Streams are mentioned in `STREAMS`' order by `Problem.sql`."""
    ordered = sorted(story.rows, key=lambda one: (one[1]["t"], STREAMS.index(one[0])))
    return [Event(i, row["t"], stream, row) for i, (stream, row) in enumerate(ordered)]


@dataclass(frozen=True)
class Problem:
    pattern: Group
    within: int
    conditions: tuple[Condition, ...]

    @property
    def outputs(self) -> list[str]:
        shown = ["7 AS seven"]
        for item in items(self.pattern):
            if item.role == "":
                shown += [f"{item.name}.n AS {item.name}_n", f"{item.name}.s AS {item.name}_s"]
            elif item.role == "+":
                shown += [
                    f"COUNT({item.name}.*) AS {item.name}_count",
                    f"SUM({item.name}.x) AS {item.name}_sum",
                    f"FIRST({item.name}.n) AS {item.name}_first",
                    f"LAST({item.name}.s) AS {item.name}_last",
                ]
        return shown

    @property
    def sql(self) -> str:
        where = " AND ".join(c.sql for c in self.conditions)
        return (
            f"SELECT {', '.join(self.outputs)} FROM PATTERN {self.pattern}"
            + (f" WHERE {where}" if where else "")
            + f" WITHIN {self.within} SECONDS"
        )

    def expected(self, events: list[Event]) -> list[tuple[Any, ...]]:
        rows = []
        for time, taken in matches(self.pattern, self.within * SECOND, list(self.conditions), events):
            row: list[Any] = [time, 7]
            for item in items(self.pattern):
                found = taken.get(item.name)
                if item.role == "":
                    row += [None, None] if found is None else [found.row["n"], found.row["s"]]  # type: ignore[union-attr]
                elif item.role == "+" and found is None:
                    row += [None] * 4
                elif item.role == "+":
                    assert isinstance(found, list)
                    values = [e.row["x"] for e in found if e.row["x"] is not None]
                    row += [len(found), sum(values) if values else None, found[0].row["n"], found[-1].row["s"]]
            rows.append(tuple(row))
        return rows


# -- patterns and conditions --------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = [0]

    def item(roles: str) -> Item:
        count[0] += 1
        role = draw(st.sampled_from(list(roles)))
        role = "" if role == "." else role
        one = role != "!" and draw(st.sampled_from([False, False, True]))
        return Item(f"e{count[0]}", draw(st.sampled_from("AAAABBC")), role, one)

    def part(depth: int) -> Item | Group:
        kind = draw(st.sampled_from(["item"] * 5 + ["OR", "AND", "SEQ"])) if depth < 2 else "item"
        if kind == "item":
            return item("...!+" if depth < 2 else "...")
        if kind == "AND":
            return Group("AND", tuple(item(".") for _ in range(2)))
        return Group(kind, tuple(part(depth + 1) for _ in range(2)))

    written = Group(
        draw(st.sampled_from(["SEQ"] * 6 + ["AND", "OR"])), tuple(part(1) for _ in range(draw(st.integers(1, 3))))
    )
    written = mentioned_in_order(written)
    there = list(items(written))
    conditions: list[Condition] = []
    if draw(st.booleans()):
        column = draw(st.sampled_from(["k", "k", "s"]))
        covered = there if draw(st.booleans()) else [i for i in there if i.role == ""]
        for one, other in pairwise(covered):
            conditions.append(compared(one.name, other.name, column, "="))
    plain = [i for i in there if i.role == ""]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        one = draw(st.sampled_from(there))
        choice = draw(st.sampled_from(["own", "pair", "pair", "aggregate"]))
        other = draw(st.sampled_from(plain)) if plain else one
        if choice == "own":
            conditions.append(own(one.name, draw(st.integers(0, 2))))
        elif choice == "pair" and other is not one:
            conditions.append(compared(one.name, other.name, "x", draw(st.sampled_from(["<", "<>", "<>", "="]))))
        elif choice == "aggregate" and one.role == "+":
            conditions.append(counted(one.name, draw(st.integers(1, 2))))
    return Problem(written, draw(st.integers(1, 9)), tuple(conditions))


def mentioned_in_order(written: Group) -> Group:
    """With its streams renamed so that they are first mentioned in the order of `STREAMS`."""
    renamed: dict[str, str] = {}
    for item in items(written):
        if item.stream not in renamed:
            renamed[item.stream] = STREAMS[len(renamed)]

    def changed(part: Item | Group) -> Any:
        if isinstance(part, Item):
            return replace(part, stream=renamed[part.stream])
        return Group(part.kind, tuple(map(changed, part.parts)))

    return changed(written)  # type: ignore[no-any-return]


def own(name: str, least: int) -> Condition:
    def holds(values: Values) -> bool:
        x = values[name]["x"]
        return x is not None and x >= least

    return Condition(f"{name}.x >= {least}", (name,), holds)


def compared(one: str, other: str, column: str, operator: str) -> Condition:
    def holds(values: Values) -> bool:
        a, b = values[one][column], values[other][column]
        if a is None or b is None:
            return False
        return bool(a < b if operator == "<" else a != b if operator == "<>" else a == b)

    equal = column if operator == "=" else None
    return Condition(f"{one}.{column} {operator} {other}.{column}", (one, other), holds, equal)


def counted(name: str, least: int) -> Condition:
    return Condition(f"COUNT({name}.*) >= {least}", (name,), lambda values: len(values[name]) >= least)


# -- running ------------------------------------------------------------------------------------------------


def run(problem: Problem, story: Story) -> list[tuple[Any, ...]]:
    text = f"{declared(2)}INSERT INTO m {problem.sql};\nCREATE QUERY shown AS SELECT * FROM m [NOW];"
    shown: list[tuple[Any, ...]] = []
    with tempfile.TemporaryDirectory() as directory:
        app = App(text, checkpoint=directory, memory=story.memory, block_size=512)
        try:
            for number, (start, stop) in enumerate(pairwise(story.cuts)):
                for stream in STREAMS:
                    mine = [row for name, row in story.rows[start:stop] if name == stream]
                    if mine:
                        app.push(stream, mine)
                if number == story.restart:
                    shown += _read(app)
                    app.checkpoint()
                    app.close()
                    app = App(text, checkpoint=directory, memory=story.memory, block_size=512)
            app.finish()
            shown += _read(app)
        finally:
            app.close()
    return shown


def _read(app: App) -> list[tuple[Any, ...]]:
    table = app.results("shown")
    ends = table.column("window_end").cast("int64").to_pylist()
    rows = table.drop_columns(["window_start", "window_end"]).to_pylist()
    return [(end, *row.values()) for end, row in zip(ends, rows, strict=True)]


REFUSED = (
    "neither negated",
    "follow each other",
    "must end with",
    "cannot stand in AND",
    "cannot compare",
    "64 orders",
)


@given(problems(), stories())
def test_any_pattern(problem: Problem, story: Story) -> None:
    try:
        with patch.object(pattern_search, "_ROOM", story.room), patch.object(matcher, "_FIRST", story.stride):
            found = run(problem, story)
    except QueryError as error:
        if not any(words in str(error) for words in REFUSED):
            raise
        event("refused")
        return
    expected = problem.expected(in_order(story))
    event("matches" if expected else "no match")
    assert found == expected, problem.sql
