"""Joins whose rows go to shards, at any moment and with every kind of condition: answers are those of brute force."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.operators.joins import core, paged, shards
from penstock.operators.joins.core import JoinCore
from penstock.operators.joins.paged import PagedJoin
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.runs import OrderedRuns
from properties import test_expression_keys as by_expressions
from properties.join_oracle import Case, Side
from properties.test_joins import SETTINGS, band, check, check_together, equal, large, less, missing

pytestmark = pytest.mark.filterwarnings("ignore:.*compared with all rows")


@dataclass
class Paging:
    """How often events were played, shards divided and results put on the device. Rows go to shards after so many
    pieces."""

    after: int = 0
    played: int = 0
    divided: int = 0
    put_out: int = 0


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> Paging:
    """Rows go to shards however few they are, and shards are small, and runs of results as well."""
    monkeypatch.setattr(core, "_LEAST_FREE", 0)
    monkeypatch.setattr(core, "_MANY_ROWS", 1 << 60)
    monkeypatch.setattr(core, "_LEAST_BYTES", 0)
    monkeypatch.setattr(paged, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 12)
    counts = Paging()
    page = JoinCore._page

    def page_after(self: JoinCore) -> None:
        self.pieces = getattr(self, "pieces", 0) + 1
        if self.pieces > counts.after:
            page(self)

    monkeypatch.setattr(JoinCore, "_page", page_after)
    for kind, method, name in (
        (PagedJoin, "play", "played"),
        (RowLog, "divide", "divided"),
        (OrderedRuns, "_page_out", "put_out"),
    ):
        _count(monkeypatch, kind, method, counts, name)
    return counts


def _count(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, counts: Paging, name: str) -> None:
    original = getattr(kind, method)

    def counted(self: Any, *rest: Any) -> Any:
        if method != "play" or self.waits_since is not None:
            setattr(counts, name, getattr(counts, name) + 1)
        return original(self, *rest)

    monkeypatch.setattr(kind, method, counted)


@st.composite
def keyed(draw: Any, outer: bool) -> Case:
    """Joins at every event over windows of time, of which every side has a key in common with one before it."""
    count = draw(st.sampled_from([2, 2, 2, 3]))
    column = draw(st.sampled_from(["k", "k", "s"]))
    sides: list[Side] = []
    for place in range(count):
        kind = draw(st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"])) if outer and place else "INNER"
        on = []
        if place:
            other = draw(st.integers(0, place - 1))
            on.append(equal(other, place, column))
            if draw(st.integers(0, 2)) == 0:
                on.append(equal(other, place, "s" if column == "k" else "k"))
            if draw(st.integers(0, 2)) == 0:
                on.append(band(place, other, draw(st.integers(0, 4))))
            if draw(st.integers(0, 3)) == 0:
                on.append(less(other, place))
            if draw(st.integers(0, 3)) == 0:
                on.append(large(draw(st.sampled_from([other, place]))))
        stream = draw(st.sampled_from("aab" if place else "ab"))
        sides.append(Side(stream, None, draw(st.integers(1, 9)), kind, tuple(on)))
    where = [large(draw(st.integers(0, count - 1)))] if draw(st.integers(0, 3)) == 0 else []
    if outer and draw(st.integers(0, 3)) == 0:
        where.append(missing(draw(st.integers(0, count - 1))))
    return Case(tuple(sides), tuple(where), "", None)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_joins_in_shards_are_those_of_brute_force(outer: bool, examples: int, paging: Paging) -> None:
    cases = 0

    @settings(max_examples=examples, **SETTINGS)
    @given(keyed(outer), st.integers(0, 10**6), st.integers(0, 8))
    def run(case: Case, seed: int, after: int) -> None:
        nonlocal cases
        paging.after, before = after, paging.played
        check(case, seed)
        cases += paging.played > before

    run()
    assert cases > examples // 4, f"rows were in shards in {cases} of {examples} cases"
    assert paging.divided > 0


def test_restarts_and_small_budgets_change_nothing(tmp_path: Path, paging: Paging) -> None:
    @settings(max_examples=60, **SETTINGS)
    @given(st.booleans().flatmap(keyed), st.integers(0, 10**6), st.integers(0, 4))
    def run(case: Case, seed: int, after: int) -> None:
        paging.after = after
        check(case, seed, Path(tempfile.mkdtemp(dir=tmp_path)), "1MB")

    run()
    assert paging.played > 0


@pytest.mark.parametrize("outer", [False, True])
def test_what_fails_in_shards_is_rejected_as_in_memory(outer: bool, paging: Paging) -> None:
    def pages(case: Case) -> bool:
        conditions = (*case.sides[1].on, *(() if outer else case.where))
        in_time = all(side.rows is None for side in case.sides)
        return in_time and not case.emit and any(condition.is_key for condition in conditions)  # type: ignore[attr-defined]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(by_expressions.cases(outer, slides=False).filter(pages), st.integers(0, 10**6), st.integers(0, 8))
    def run(case: Case, seed: int, after: int) -> None:
        paging.after = after
        by_expressions.run(case, seed)

    run()
    assert paging.played > 0


@st.composite
def similar(draw: Any) -> list[Case]:
    """The same join several times, with windows of other sizes."""
    first: Case = draw(keyed(draw(st.booleans())))
    found = [first, first]
    for _ in range(2):
        sides = tuple(replace(side, seconds=draw(st.integers(1, 9))) for side in first.sides)
        found.append(replace(first, sides=sides))
    return found


def test_queries_that_share_a_join_in_shards_answer_as_if_alone(tmp_path: Path, paging: Paging) -> None:
    @settings(max_examples=40, **SETTINGS)
    @given(similar(), st.integers(0, 10**6), st.integers(0, 4))
    def run(asked: list[Case], seed: int, after: int) -> None:
        paging.after = after
        check_together(asked, seed, Path(tempfile.mkdtemp(dir=tmp_path)))

    run()
    assert paging.played > 0
