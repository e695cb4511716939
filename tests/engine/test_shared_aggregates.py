"""Queries that add up the same rows in the same groups have their states in common, and only while they are there.

q1  ──┐
q2  ──┼─▶ one aggregation: row count, SUM(v), MAX(v)
q3  ──┘
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.running import plan_at_work
from penstock.plan.physical import readers

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k INT NOT NULL, v BIGINT NOT NULL, EVENT TIME t);"
WINDOW = "FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS] GROUP BY k"
QUERIES = {
    "sums": f"SELECT k, SUM(v) AS a, COUNT(*) AS n {WINDOW}",
    "means": f"SELECT k, AVG(v) AS a, MAX(v) AS b {WINDOW}",
    "peaks": f"SELECT k, MAX(v) AS a, MIN(v) AS b {WINDOW} ORDER BY a DESC LIMIT 3",
    "again": f"SELECT k, AVG(v) AS a, MAX(v) AS b {WINDOW}",
    "news": f"SELECT ISTREAM k, SUM(v) AS a {WINDOW}",
    "gone": f"SELECT DSTREAM k, AVG(v) AS a, COUNT(*) AS n {WINDOW} HAVING COUNT(*) > 2",
}


def program(*names: str) -> str:
    return STREAM + ";".join(f"CREATE QUERY {name} AS {QUERIES[name]}" for name in names or QUERIES)


def events(first: int, last: int) -> list[dict[str, int]]:
    """Every half second; keys come and go."""
    return [{"t": n * 500_000, "k": n * n // 50 % 7, "v": n * 7919 % 101} for n in range(first, last)]


def alone(name: str, first: int, last: int) -> list[dict[str, object]]:
    with ps.App(program(name)) as app:
        app.push("s", events(first, last))
        return rows(app.results(name))


def rows(table: pa.Table) -> list[dict[str, object]]:
    return table.to_pylist()


def aggregations(app: ps.App) -> list[list[str]]:
    return [[name for name, _ in group] for group in readers.aggregations(plan_at_work(app._flow.running))]


def test_states_are_shared_and_answers_are_those_of_each_alone() -> None:
    with ps.App(program()) as app:
        assert aggregations(app) == [["sums", "means", "peaks", "again"], ["news", "gone"]]
        app.push("s", events(0, 300))
        for name in QUERIES:
            assert rows(app.results(name)) == alone(name, 0, 300), name


def test_a_query_more_of_an_aggregation_takes_no_memory() -> None:
    held = []
    for names in (("sums", "means", "peaks"), ("sums", "means", "peaks", "again")):
        with ps.App(program(*names)) as app:
            app.push("s", events(0, 300))
            for name in names:
                app.results(name)
            held.append(app.metrics.memory_bytes)
    assert held[0] == held[1]


def test_queries_leave_one_by_one() -> None:
    with ps.App(program()) as app:
        empty = app.metrics.memory_bytes
        app.push("s", events(0, 100))
        for at, name in enumerate(("sums", "again", "gone")):
            app.drop_query(name)
            app.push("s", events(100 + at * 50, 150 + at * 50))
        for name in ("means", "peaks", "news"):
            assert rows(app.results(name)) == alone(name, 0, 250), name
            app.drop_query(name)
        assert app.metrics.memory_bytes < empty


def test_a_query_that_comes_later_has_an_aggregation_of_its_own() -> None:
    with ps.App(program("sums", "means")) as app:
        app.push("s", events(0, 100))
        app.add_query(program("peaks", "again").removeprefix(STREAM))
        assert aggregations(app) == [["sums", "means"], ["peaks", "again"]]
        app.push("s", events(100, 200))
        for name, first in (("sums", 0), ("means", 0), ("peaks", 100), ("again", 100)):
            assert rows(app.results(name)) == alone(name, first, 200), name


def test_a_restart_with_fewer_and_with_more_queries(tmp_path: Path) -> None:
    """The states of those that are left go on; who comes anew begins with none, beside them."""
    came: dict[str, list[dict[str, object]]] = {name: [] for name in QUERIES}
    stays = ("means", "news")
    lives = [(tuple(QUERIES), 0, 103), (stays, 103, 151), (tuple(QUERIES), 151, 222), (tuple(QUERIES), 222, 300)]
    for names, first, last in lives:
        with ps.App(program(*names), checkpoint=tmp_path) as app:
            app.push("s", events(first, last))
            for name in names:
                came[name] += rows(app.results(name))
            app.checkpoint()
            last_aggregations = aggregations(app)
    for name in stays:
        assert came[name] == alone(name, 0, 300), name
    for name in set(QUERIES) - set(stays):
        assert came[name] == alone(name, 0, 103) + alone(name, 151, 300), name
    assert sorted(map(sorted, last_aggregations)) == [["again", "peaks", "sums"], ["gone"], ["means"], ["news"]]


def test_between_evaluations_only_what_changed_is_held() -> None:
    with ps.App(program("news")) as app:
        app.push("s", events(0, 201))
        (aggregation,) = app._flow._aggregations.values()
        held = aggregation._evaluation._held
        assert len(held.slots) == 1  # the group of the one event since the boundary at 100 s
        app.push("s", events(201, 205))
        assert rows(app.results("news")) == alone("news", 0, 205)


def test_what_is_kept_of_changed_groups_is_in_the_budget() -> None:
    """Ten thousand groups of which nothing is known but that rows have come: a place in three tables, and a slot."""
    count = 10_000
    with ps.App("CREATE STREAM s (t BIGINT, k BIGINT, EVENT TIME t UNIT MICROSECONDS)") as app:
        app.add_query("SELECT ISTREAM k, COUNT(*) AS n FROM s [RANGE 9 HOURS SLIDE 1 HOUR] GROUP BY k")
        app.push("s", [{"t": n, "k": n} for n in range(count)])
        held = app._stores.budget.describe()
    kept = ("groups before they changed", "groups that rows have touched")
    assert sum(held[name] for name in held if name.endswith(kept)) >= (3 * 8 + 4) * count


@pytest.mark.parametrize("query", ["k, COUNT(*) AS n {} ORDER BY k", "k, COUNT(*) OVER [RANGE 1 HOUR] AS n {}"])
def test_relations_that_are_compared_are_in_the_budget(query: str) -> None:
    """Where whole evaluations are compared, the one before is kept: a thousand rows of two BIGINTs."""
    count = 1_000
    with ps.App("CREATE STREAM s (t BIGINT, k BIGINT, EVENT TIME t UNIT SECONDS)") as app:
        app.add_query("SELECT ISTREAM " + query.format("FROM s [RANGE 9 HOURS SLIDE 1 HOUR] GROUP BY k"))
        app.push("s", [{"t": n, "k": n} for n in range(count)])
        app.push("s", {"t": 3600, "k": 0})
        app.flush()
        held = app._stores.budget.describe()
    assert max(held[name] for name in held if name.endswith("rows that the next are compared with")) >= 16 * count
