"""Large texts are made into apps with work that grows as they do; counted in calls of Python functions, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import penstock as ps

STREAM = "CREATE STREAM s (t BIGINT, k INT, x DOUBLE, EVENT TIME t UNIT SECONDS);\n"


def union(n: int) -> str:
    return STREAM + "\nUNION ALL ".join(f"SELECT k, x FROM s WHERE k = {i}" for i in range(n))


def windows(n: int) -> str:
    window = "[RANGE {} SECONDS SLIDE 1 SECOND]"
    branches = (f"SELECT k, SUM(x) AS z FROM s {window.format(i + 1)} GROUP BY k" for i in range(n))
    return STREAM + "\nUNION ALL ".join(branches)


def queries(n: int) -> str:
    return STREAM + "".join(f"SELECT k, SUM(x) AS z FROM s [RANGE {i + 1} SECONDS] GROUP BY k;\n" for i in range(n))


def outputs(n: int) -> str:
    return STREAM + f"SELECT {', '.join(f'x + {i} AS c{i}' for i in range(n))} FROM s"


def join(n: int) -> str:
    equal = " AND ".join(f"a{i}.k = a{i + 1}.k" for i in range(n - 1))
    return STREAM + f"SELECT a0.x FROM {', '.join(f's [RANGE 1 HOUR] a{i}' for i in range(n))} WHERE {equal}"


def calls(text: str) -> int:
    """How many Python functions are called from the text to the second event, and by a look at the plan."""
    count = 0

    def note(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        with ps.App(text) as app:
            app.push("s", {"t": 1, "k": 1, "x": 2.0})
            app.push("s", {"t": 2, "k": 2, "x": 2.0})
            app.explain()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("text", [union, windows, queries, outputs], ids=lambda text: text.__name__)
def test_twice_the_text_is_about_twice_the_work(text: Callable[[int], str]) -> None:
    calls(text(80))  # what is made once: kernels that are loaded or compiled
    small, large = calls(text(40)), calls(text(80))
    assert large < 2.3 * small


def test_the_search_of_a_join_has_a_step_for_each_pair_of_sides_and_no_more_work() -> None:
    calls(join(40))
    small, large = calls(join(20)), calls(join(40))
    assert large < 4.3 * small


def lines(branches: int) -> int:
    """How many lines of Python an event takes that passes through so many branches of a union."""
    count = 0

    def note(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return note

    with ps.App(STREAM + "\nUNION ALL ".join(["SELECT k, x FROM s"] * branches)) as app:
        app.push("s", {"t": 1, "k": 1, "x": 0.5})
        sys.settrace(note)
        try:
            app.push("s", {"t": 2, "k": 2, "x": 0.5})
        finally:
            sys.settrace(None)
        app.finish()
        assert app.results("q1").column("k").to_pylist() == [1] * branches + [2] * branches
    return count


def test_an_event_in_a_union_looks_at_each_branch_once() -> None:
    """Each branch gives its rows by itself; what waits in the others is not gone through each time."""
    lines(200)
    small, large = lines(100), lines(200)
    assert large < 2.2 * small


def test_a_chain_of_queries_has_a_limit() -> None:
    text = (
        STREAM
        + "INSERT INTO d0 SELECT k FROM s;\n"
        + "".join(f"INSERT INTO d{i + 1} SELECT k FROM d{i};\n" for i in range(99))
    )
    with ps.App(text) as app:
        app.push("s", {"t": 1, "k": 1, "x": 0.5})
        assert app.results("d99").column("k").to_pylist() == [1]
        with pytest.raises(ps.QueryError, match="101 queries that read each other's rows"):
            app.add_query("SELECT k FROM d99")
