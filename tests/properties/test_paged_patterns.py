"""Patterns whose events go to shards, at any moment: matches are those of `pattern_oracle`, in its order."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock import App
from penstock.errors import QueryError
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.patterns import matcher, paged, pattern, shards
from penstock.operators.patterns import search as pattern_search
from penstock.operators.patterns.paged import PagedPattern
from penstock.operators.patterns.pattern import Pattern
from penstock.operators.patterns.served import Served
from properties import test_recognize as recognize
from properties.pattern_oracle import Group, Item, Row, items
from properties.test_patterns import (
    REFUSED,
    SECOND,
    Problem,
    Story,
    compared,
    in_order,
    mentioned_in_order,
    problems,
    run,
    stories,
)

SETTINGS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@dataclass
class Paging:
    """How often events were played, shards divided, results put on the device and events found that had served.
    Events go to shards after so many calls."""

    after: int = 0
    played: int = 0
    divided: int = 0
    put_out: int = 0
    served: int = 0


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> Paging:
    """Events go to shards however few they are, and shards are small."""
    monkeypatch.setattr(pattern, "_LEAST_FREE", 0)
    monkeypatch.setattr(pattern, "_MANY_EVENTS", 1 << 60)
    monkeypatch.setattr(pattern, "_LEAST_BYTES", 0)
    monkeypatch.setattr(paged, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 12)
    counts = Paging()
    page = Pattern._page

    def page_after(self: Pattern, *given: Any) -> None:
        self.calls = getattr(self, "calls", 0) + 1  # type: ignore[attr-defined]
        if self.calls > counts.after:  # type: ignore[attr-defined]
            page(self, *given)

    monkeypatch.setattr(Pattern, "_page", page_after)
    for kind, method, name in (
        (PagedPattern, "play", "played"),
        (RowLog, "divide", "divided"),
        (OrderedRuns, "_page_out", "put_out"),
        (Served, "note", "served"),
    ):
        _count(monkeypatch, kind, method, counts, name)
    return counts


def _count(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, counts: Paging, name: str) -> None:
    original = getattr(kind, method)

    def counted(self: Any, *rest: Any) -> Any:
        if (method != "play" or self.waits) and (method != "note" or len(self._positions)):
            setattr(counts, name, getattr(counts, name) + 1)
        return original(self, *rest)

    monkeypatch.setattr(kind, method, counted)


SHAPES = (
    "SEQ(A, A)", "SEQ(A, B)", "SEQ(A, !B, A)", "SEQ(A, !B)", "SEQ(!B, A, A)", "SEQ(!A, B, !A)", "SEQ(A, A+, B)",
    "SEQ(A, B+)", "SEQ(A+, B)", "SEQ(A, A+, !B)", "AND(A, B)", "SEQ(AND(A, B), !C)", "SEQ(OR(A, B), C)",
    "OR(SEQ(A, !B), SEQ(B, A))", "SEQ(OR(A, B), !C)", "SEQ(A, OR(B, SEQ(A, B)))", "SEQ(A, B, A)",
)  # fmt: skip


def shaped(shape: str, ones: list[bool]) -> Group:
    """A pattern out of how it looks; those elements have ONE that may have it and for which it is said."""
    tokens = re.findall(r"SEQ|AND|OR|[!A-C+(),]", shape)
    once = iter(ones)
    count = 0

    def part() -> Any:
        nonlocal count
        token = tokens.pop(0)
        if token in ("SEQ", "AND", "OR"):
            parts = []
            while tokens.pop(0) != ")":
                parts.append(part())
            return Group(token, tuple(parts))
        role = "!" if token == "!" else ""
        stream = tokens.pop(0) if role else token
        if tokens[0] == "+":
            role = tokens.pop(0)
        count += 1
        return Item(f"e{count}", stream, role, next(once) and role != "!")

    return mentioned_in_order(part())


@st.composite
def keyed(draw: st.DrawFn) -> Problem:
    """Patterns whose elements all have a key in common."""
    if draw(st.booleans()):
        problem = draw(problems().filter(lambda one: len(list(items(one.pattern))) > 1))
    else:
        shape = shaped(draw(st.sampled_from(SHAPES)), draw(st.lists(st.booleans(), min_size=4, max_size=4)))
        problem = Problem(shape, draw(st.integers(2, 9)), ())
        one, other, *_ = [item for item in items(shape) if item.role == ""] * 2
        if one is not other and draw(st.integers(0, 3)) == 0:
            problem = replace(problem, conditions=(compared(one.name, other.name, "x", "<>"),))
    columns = draw(st.sampled_from([("k",), ("k",), ("s",), ("k", "s")]))
    equal = [
        compared(one.name, other.name, column, "=")
        for column in columns
        for one, other in pairwise(items(problem.pattern))
    ]
    known = {condition.sql for condition in equal}
    return replace(problem, conditions=(*equal, *(c for c in problem.conditions if c.sql not in known)))


@st.composite
def crowded(draw: st.DrawFn) -> Story:
    """Few keys, many events and many pushes: matches go through several of these."""
    story = draw(stories())
    rows, now = [], 0
    for number in range(draw(st.integers(8, 18))):
        now += draw(st.sampled_from([0, 0, 1, 1, 2]))
        key, text = draw(st.sampled_from([(1, "u"), (1, "u"), (2, "v"), (3, "w"), (4, "y"), (5, "z")]))
        row = {"t": now * SECOND, "n": number, "k": key, "s": text, "x": draw(st.integers(0, 3))}
        rows.append((draw(st.sampled_from("AAABBC")), row))
    cuts = sorted(draw(st.sets(st.integers(0, len(rows)), max_size=9)) | {0, len(rows)})
    return replace(story, rows=rows, cuts=cuts)


def check(problem: Problem, story: Story) -> bool:
    try:
        with patch.object(pattern_search, "_ROOM", story.room), patch.object(matcher, "_FIRST", story.stride):
            found = run(problem, story)
    except QueryError as error:
        if not any(words in str(error) for words in REFUSED):
            raise
        event("refused")
        return False
    expected = problem.expected(in_order(story))
    event("matches" if expected else "no match")
    assert found == expected, problem.sql
    return bool(expected)


@pytest.mark.parametrize("examples", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_patterns_in_shards_are_those_of_the_definition(examples: int, paging: Paging) -> None:
    cases = 0

    @settings(max_examples=examples, **SETTINGS)
    @given(keyed(), stories() | crowded(), st.sampled_from([0, 0, 1, 2, 4]))
    def search(problem: Problem, story: Story, after: int) -> None:
        nonlocal cases
        paging.after, before = after, paging.played
        cases += check(problem, story) and paging.played > before

    search()
    assert cases > examples // 10, f"events were in shards in {cases} of {examples} cases"
    assert paging.divided > 0
    assert paging.served > 0


@st.composite
def pushes(draw: st.DrawFn) -> list[list[Row]]:
    """Few keys, and many small pushes in the order of time."""
    found, now, number = [], 0, 0
    for _ in range(draw(st.integers(2, 10))):
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            now += draw(st.sampled_from([0, 1, 1, 2]))
            x = draw(st.sampled_from([0, 1, 2, 3, None]))
            rows.append({"t": now * SECOND, "k": draw(st.sampled_from([1, 1, 2])), "x": x, "n": number})
            number += 1
        found.append(rows)
    return found


@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_rows_are_recognized_in_shards(tmp_path: Path, paging: Paging, examples: int) -> None:
    @settings(max_examples=examples, **SETTINGS)
    @given(recognize.patterns(), pushes(), st.integers(0, 2), st.integers(0, 9))
    def search(asked: recognize.Pattern, pushed: list[list[Row]], after: int, restart: int) -> None:
        paging.after = after
        directory, found = tempfile.mkdtemp(dir=tmp_path), []
        app = App(recognize.STREAM + asked.sql, checkpoint=directory)
        for number, rows in enumerate(pushed):
            app.push("s", rows)
            if number == restart:
                found += app.results("q").to_pylist()
                app.checkpoint()
                app.close()
                app = App(recognize.STREAM + asked.sql, checkpoint=directory, memory="16MB")
        app.finish()
        found += app.results("q").to_pylist()
        app.close()
        assert [tuple(row.values()) for row in found] == asked.expected([row for rows in pushed for row in rows])

    search()
    assert paging.played > 0
    assert paging.served > 0 or examples < 1000, "few matches leave events behind that have served"


FAILING = (
    "SELECT x.n, y.n AS m FROM PATTERN SEQ(s x, s y) WHERE x.k = y.k AND 6 / y.x > x.x WITHIN 9 SECONDS",
    "SELECT x.n FROM PATTERN SEQ(ONE s x, !s y) WHERE x.k = y.k AND 6 / y.x > x.x AND 8 / x.x > 2 WITHIN 4 SECONDS",
    "SELECT y.n, SUM(c.x / y.x) AS z FROM PATTERN SEQ(s+ c, s y) WHERE c.k = y.k AND 3 / c.x > 0 WITHIN 5 SECONDS",
)


def test_what_fails_in_shards_is_rejected_as_in_memory(paging: Paging) -> None:
    def answers(query: str, pushed: list[list[Row]], after: int) -> tuple[list[Row], list[str]]:
        paging.after = after
        with App(recognize.STREAM + f"CREATE QUERY q AS {query};") as app:
            for rows in pushed:
                app.push("s", rows)
            app.finish()
            return app.results("q").to_pylist(), sorted(map(repr, app.rejects))

    @settings(max_examples=60, **SETTINGS)
    @given(st.sampled_from(FAILING), pushes(), st.integers(0, 2))
    def search(query: str, pushed: list[list[Row]], after: int) -> None:
        assert answers(query, pushed, after) == answers(query, pushed, 1 << 60)

    search()
    assert paging.played > 0
