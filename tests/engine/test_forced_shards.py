"""Corner cases of groups in shards: they go there with the first rows, and answers are those of groups in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.operators import shared_window
from penstock.operators.paged import shards
from penstock.operators.shared_aggregation import SharedAggregation

STREAM = """CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, n BIGINT, EVENT TIME t LATENESS 0 SECONDS);
"""


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Groups are in shards as soon as there are some. Has the names of the aggregations whose groups went there; there
    must be one."""
    names: list[str] = []
    page = SharedAggregation.page

    def noted(self: SharedAggregation) -> None:
        names.append(self.name)
        page(self)

    monkeypatch.setattr(shared_window, "_LEAST_FREE", 0)
    monkeypatch.setattr(shared_window, "_MANY_GROUPS", 1 << 60)
    monkeypatch.setattr(shared_window, "_LEAST_GROUP_BYTES", 0)
    monkeypatch.setattr(shards, "_BITS", 1)
    monkeypatch.setattr(SharedAggregation, "page", noted)
    yield names
    assert names


def rows(text: str, events: list[dict[str, Any]], batch: int = 1, **options: Any) -> list[list[dict[str, Any]]]:
    """Of each query; `batch` events are pushed together."""
    with ps.App(STREAM + text, memory="8MB", **options) as app:
        for start in range(0, len(events), batch):
            app.push("s", events[start] if batch == 1 else events[start : start + batch])
        app.finish()
        return [app.results(name).to_pylist() for name in app.queries]


def test_rows_of_a_block_that_are_all_in_no_group(paged: list[str]) -> None:
    """Another query stores them."""
    text = """CREATE QUERY some AS SELECT k, COUNT(*) AS c FROM s [RANGE 1 HOUR] WHERE n < 0 GROUP BY k;
    CREATE QUERY every AS SELECT k, COUNT(*) AS c FROM s [RANGE 1 HOUR] GROUP BY k;"""
    events = [{"t": t, "k": "a", "n": t % 100 - 10} for t in range(400)]
    some, every = rows(text, events, batch=100, block_size=512)
    assert [row["c"] for row in some] == [1 + t for t in range(4 * 10)]
    assert [row["c"] for row in every] == [1 + t for t in range(400)]


def test_a_text_that_is_computed_of_one_row(paged: list[str]) -> None:
    text = "CREATE QUERY q AS SELECT upper(k) AS name, COUNT(*) AS c FROM s [RANGE 1 HOUR] GROUP BY upper(k);"
    keys = ["a", None, "A", "b", None, "", "a"]
    [found] = rows(text, [{"t": t, "k": key, "n": 1} for t, key in enumerate(keys)])
    assert [(row["name"], row["c"]) for row in found] == [
        ("A", 1),
        (None, 1),
        ("A", 2),
        ("B", 1),
        (None, 2),
        ("", 1),
        ("A", 3),
    ]


@pytest.mark.parametrize(
    "outer",
    [
        "d",
        "(SELECT k, c FROM d)",
        "(SELECT k, COUNT(*) AS c FROM s [RANGE 3 MICROSECONDS SLIDE 3 MICROSECONDS] GROUP BY k)",
    ],
)
def test_rows_that_come_with_the_end_of_a_run(outer: str, paged: list[str]) -> None:
    """The last window of the inner query closes when the run ends. Its rows are events of the outer one."""
    text = f"""INSERT INTO d SELECT k, COUNT(*) AS c FROM s [RANGE 3 MICROSECONDS SLIDE 3 MICROSECONDS] GROUP BY k;
    CREATE QUERY q AS SELECT k, SUM(c) AS total FROM {outer} [RANGE 1 HOUR] GROUP BY k;"""
    with ps.App(STREAM + text, memory="8MB") as app:
        app.push("s", [{"t": t, "k": "a", "n": 1} for t in range(10)])
        app.finish()
        assert [row["total"] for row in app.results("q").to_pylist()] == [3, 6, 9, 10]


def test_a_query_that_comes_when_its_groups_are_in_shards(paged: list[str]) -> None:
    """It has a window of its own. The stored one has slots of no group any more."""
    query = "SELECT k, n, COUNT(*) AS c FROM s [RANGE {length} MICROSECONDS] GROUP BY k, n"
    text = f"""CREATE QUERY q AS {query.format(length=50)};
    CREATE QUERY other AS SELECT k, COUNT(*) AS c FROM s [RANGE 50 MICROSECONDS] GROUP BY k;"""
    with ps.App(STREAM + text, memory="8MB") as app:
        app.push("s", [{"t": t, "k": "a", "n": t % 2} for t in range(20)])
        assert len(paged) == 2
        app.add_query(f"CREATE QUERY later AS {query.format(length=10)}")
        app.push("s", [{"t": t, "k": "a", "n": t % 2} for t in range(20, 40)])
        app.finish()
        assert [row["c"] for row in app.results("later").to_pylist()] == [min(1 + i // 2, 5) for i in range(20)]


def test_results_over_a_subquery_come_with_the_push(paged: list[str], tmp_path: Path) -> None:
    """And a checkpoint right behind it loses none of them."""
    inner = "SELECT k, COUNT(*) AS c FROM s [RANGE 3 MICROSECONDS SLIDE 3 MICROSECONDS] GROUP BY k"
    text = f"CREATE QUERY q AS SELECT k, SUM(c) AS total FROM ({inner}) [RANGE 1 HOUR] GROUP BY k;"
    for t in range(12):
        with ps.App(STREAM + text, memory="8MB", checkpoint=tmp_path) as app:
            app.push("s", [{"t": t, "k": "a", "n": 1}])
            assert [row["total"] for row in app.results("q").to_pylist()] == ([t] if t and t % 3 == 0 else [])
            app.checkpoint()


BY_THE_CLOCK = [
    "RANGE 9 SECONDS SLIDE 2 SECONDS ON WALL CLOCK",
    "RANGE 4 SECONDS SLIDE 4 SECONDS ON WALL CLOCK",
    "ROWS 7 SLIDE 2 SECONDS ON WALL CLOCK",
    "SINCE TIMESTAMP '1970-01-01 00:00:05' SLIDE 3 SECONDS ON WALL CLOCK",
]


def by_the_clock(text: str, directory: Path, restarts: bool) -> list[dict[str, Any]]:
    """Rows come before and after their ticks, also such as are older than the last tick, and some at equal times."""
    draws, clock, seconds = random.Random(7), ps.testing.TestClock(0), 1_000_000
    found: list[dict[str, Any]] = []
    last = 0
    app = ps.App(STREAM + text, memory="8MB", clock=clock, checkpoint=directory)
    for number in range(80):
        clock.advance(seconds=draws.randrange(0, 3))
        app.tick()
        for _ in range(draws.randrange(0, 5)):
            last = max(last, clock.now() + draws.randrange(-3, 4) * seconds)
            app.push("s", {"t": last, "k": draws.choice("abcdef"), "n": draws.randrange(6)})
        if restarts and number % 9 == 8:
            app.checkpoint()
            found += app.results("q").to_pylist()
            app.checkpoint()
            app.close()
            app = ps.App(STREAM + text, memory="8MB", clock=clock, checkpoint=directory)
    app.finish()
    found += app.results("q").to_pylist()
    app.close()
    return found


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("window", BY_THE_CLOCK)
def test_windows_by_the_local_clock(
    window: str, restarts: bool, paged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "SELECT k, COUNT(*) AS c, SUM(n) AS s, MAX(k) AS m"
    text = f"CREATE QUERY q AS {shown} FROM s [{window}] WHERE n <> 3 GROUP BY k;"
    in_shards = by_the_clock(text, tmp_path / "shards", restarts)
    assert paged
    monkeypatch.setattr(shared_window, "_LEAST_GROUP_BYTES", 1 << 60)
    assert in_shards == by_the_clock(text, tmp_path / "memory", restarts)
    assert len(in_shards) > 20
