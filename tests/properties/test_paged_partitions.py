"""Partitions that go to shards, at any moment: answers are the oracle's, and what fails is rejected as in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.description import TimeSlide
from conformance.runtimes import Drive
from penstock import App
from penstock.operators import partitioned_operator
from penstock.operators.paged import partition_shards, partitions, runs
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.partitions import PagedPartitions
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.partitioned_operator import PartitionedOperator
from properties.generate import PLAIN, Scenario, scenarios
from properties.test_windows import check, drives

SETTINGS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@dataclass
class Paging:
    """How often partitions were filled into shards, shards divided, rewritten and results put on the device. Partitions
    go to shards after so many calls."""

    after: int = 0
    filled: int = 0
    divided: int = 0
    rewritten: int = 0
    put_out: int = 0


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> Paging:
    """Partitions go to shards however few they are, and shards are small."""
    for name in ("_AMPLE", "_LEAST_FREE", "_LEAST_BYTES"):
        monkeypatch.setattr(partitioned_operator, name, 0)
    monkeypatch.setattr(partitioned_operator, "_MANY_PARTITIONS", 1 << 60)
    monkeypatch.setattr(partitions, "_BITS", 1)
    monkeypatch.setattr(partitions, "_LEAST_ROWS", 3)
    monkeypatch.setattr(partition_shards, "_SHARD", 1 << 6)
    monkeypatch.setattr(partition_shards, "_FIRST", 1 << 7)
    monkeypatch.setattr(partition_shards, "_HELD", 1 << 12)
    monkeypatch.setattr(runs, "_HEADS", 1 << 20)
    monkeypatch.setattr(runs, "_LEAST_MERGED", 2)
    counts = Paging()
    page = PartitionedOperator._page

    def page_after(self: PartitionedOperator) -> None:
        self.calls = getattr(self, "calls", 0) + 1  # type: ignore[attr-defined]
        if self.calls > counts.after:  # type: ignore[attr-defined]
            page(self)

    monkeypatch.setattr(PartitionedOperator, "_page", page_after)
    for kind, method, name in (
        (PagedPartitions, "fill", "filled"),
        (RowLog, "divide", "divided"),
        (RowLog, "replace", "rewritten"),
        (OrderedRuns, "_page_out", "put_out"),
    ):
        monkeypatch.setattr(kind, method, _counted(getattr(kind, method), counts, name))
    return counts


def _counted(method: Callable[..., object], counts: Paging, name: str) -> Callable[..., object]:
    def counted(*given: object) -> object:
        setattr(counts, name, getattr(counts, name) + 1)
        return method(*given)

    return counted


def _is_short(scenario: Scenario) -> bool:
    """Whether it is over partitions and has few boundaries of time: each reads all shards."""
    window, times = scenario.query.window, [event["t"] for event in scenario.events]
    spans = max(times, default=0) - min(times, default=0)
    return bool(window.partition_by) and (not isinstance(window.slide, TimeSlide) or spans < 60 * window.slide.micros)


@st.composite
def partitioned(draw: st.DrawFn) -> Scenario:
    """Aggregates and plain rows over partitions."""
    shapes = ("few", "few", "few", "few", "crowd", "wide")
    scenario = draw(scenarios("rows", most=30, shapes=shapes).filter(_is_short))
    query = replace(scenario.query, emit=None)
    if draw(st.integers(0, 2)) == 0:
        query = replace(query, keys=(), aggregates=(), having=None, columns=PLAIN)
    elif query.window.slide is None and draw(st.integers(0, 3)) == 0:
        query = replace(query, emit="RSTREAM")
    return replace(scenario, query=query)


@pytest.mark.parametrize("examples", [25, pytest.param(150, marks=pytest.mark.slow)])
def test_partitions_in_shards_give_the_answer_of_the_contract(examples: int, paging: Paging) -> None:
    cases = 0

    @settings(settings(max_examples=examples, **SETTINGS), phases=[Phase.generate])
    @given(partitioned(), drives, st.sampled_from([0, 0, 0, 1, 2, 5]))
    def holds(scenario: Scenario, drive: Drive, after: int) -> None:
        nonlocal cases
        paging.after, before = after, paging.filled
        # What is known of shards alone takes some dozens of kilobytes.
        check(scenario, replace(drive, memory="1MB") if drive.memory == "32KB" else drive)
        cases += paging.filled > before

    holds()
    assert cases > 0.2 * examples, f"partitions were in shards in {cases} of {examples} cases"
    assert paging.divided > 0, "no shard was divided"
    assert paging.rewritten > 0, "no old rows went"


STREAM = "CREATE STREAM s (t TIMESTAMP, k BIGINT, n BIGINT, x BIGINT, w STRING, EVENT TIME t);"

QUERIES = (
    # The number of rows is the partition's own; what is not a number is rejected.
    "SELECT k, n, SUM(x) AS s, MIN(x) AS m FROM s [PARTITION BY k, n ROWS n] GROUP BY k, n",
    "SELECT k, x FROM s [PARTITION BY k, n ROWS n WHEN FULL]",
    # What fails is rejected: WHERE, keys, arguments and results.
    """SELECT k, 6 / x AS g, COUNT(*) AS c, LAST(x) AS l
        FROM s [PARTITION BY k ROWS 3] WHERE 12 / n > 3 GROUP BY k, 6 / x""",
    """SELECT k, SUM(12 / x) FILTER (WHERE n > 1) AS s, 1 / (COUNT(*) - 2) AS e
        FROM s [PARTITION BY k ROWS 3] GROUP BY k""",
    "SELECT k, 12 / x AS q, w FROM s [PARTITION BY k ROWS 2] WHERE 6 / n > 1",
    """SELECT k, LAST(w) AS l, FIRST(w) AS f, MODE(w) AS m, COUNT(DISTINCT w) AS d
        FROM s [PARTITION BY k ROWS 4] GROUP BY k""",
    "SELECT w, k, ARG_MAX(w, x) AS a FROM s [PARTITION BY w ROWS 3 SLIDE 2] WHERE n > 0 GROUP BY w, k",
    """SELECT k, w, COUNT(*) AS c, SUM(x) AS s
        FROM s [PARTITION BY k ROWS 4 SLIDE 3] GROUP BY k, w ORDER BY s DESC, w LIMIT 2""",
    "SELECT DISTINCT k, x FROM s [PARTITION BY k ROWS 5 SLIDE 2]",
    "SELECT k, MAX(x) AS m, 1 / MAX(x) AS e FROM s [PARTITION BY k ROWS 3 SLIDE 2 SECONDS] GROUP BY k",
    "SELECT w, x FROM s [PARTITION BY w ROWS 2 SLIDE 3 SECONDS WHEN FULL] WHERE x < 3",
    # Other windows over what comes of it.
    "SELECT k, SUM(s) AS t FROM (SELECT k, SUM(x) AS s FROM s [PARTITION BY k ROWS 3] GROUP BY k) [ROWS 4] GROUP BY k",
)  # fmt: skip


@st.composite
def pushes(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    found, now = [], 0
    few = st.sampled_from([1, 1, 1, 2, 2, 3, 4, None])
    for _ in range(draw(st.integers(2, 8))):
        rows = []
        for _ in range(draw(st.integers(1, 6))):
            now += draw(st.sampled_from([0, 0, 1, 2]))
            x, n = draw(st.sampled_from([0, 1, 2, 3, None])), draw(st.sampled_from([0, 1, 2, 3, None]))
            w = draw(st.sampled_from(["a", "b", "", "é", None]))
            rows.append({"t": now * 1_000_000, "k": draw(few), "n": n, "x": x, "w": w})
        found.append(rows)
    return found


@pytest.mark.parametrize("examples", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_partitions_in_shards_answer_and_reject_as_in_memory(examples: int, paging: Paging) -> None:
    def answers(query: str, pushed: list[list[dict[str, Any]]], after: int, restart: int) -> tuple[Any, ...]:
        """With a restart before a push, under another budget."""
        paging.after = after
        text = f"{STREAM} INSERT INTO d {query}; CREATE QUERY q AS SELECT * FROM d;"
        found, rejects = [], []
        with tempfile.TemporaryDirectory() as directory:
            app = App(text, checkpoint=directory, memory="2MB")
            for number, rows in enumerate(pushed):
                if number == restart:
                    found += app.results("q").to_pylist()
                    rejects += list(map(repr, app.rejects))
                    app.checkpoint()
                    app.close()
                    app = App(text, checkpoint=directory, memory="16MB")
                app.push("s", rows)
            app.finish()
            found += app.results("q").to_pylist()
            rejects += list(map(repr, app.rejects))
            app.close()
        return found, sorted(rejects)

    @settings(settings(max_examples=examples, **SETTINGS), phases=[Phase.generate])
    @given(st.sampled_from(QUERIES), pushes(), st.integers(0, 3), st.integers(0, 8))
    def search(query: str, pushed: list[list[dict[str, Any]]], after: int, restart: int) -> None:
        assert answers(query, pushed, after, restart) == answers(query, pushed, 1 << 60, -1)

    search()
    assert paging.filled > 0
