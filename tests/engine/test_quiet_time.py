"""Time that passes without rows reaches the queries that wait for it, and no others."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.operators.project import Project

CHAIN = """
    CREATE STREAM s (t BIGINT, k INT, x INT, EVENT TIME t UNIT SECONDS);
    INSERT INTO large SELECT k, x FROM s WHERE x > 100;
    INSERT INTO larger SELECT k, x FROM large WHERE x > 1000;
    CREATE QUERY sums AS SELECT k, SUM(x) AS total FROM larger [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k;
"""


def test_a_window_behind_quiet_queries_closes_when_time_has_come() -> None:
    with ps.App(CHAIN) as app:
        app.push("s", [{"t": 1, "k": 1, "x": 5000}, {"t": 2, "k": 1, "x": 1}])
        assert app.results("sums").num_rows == 0
        app.push("s", {"t": 9, "k": 1, "x": 1})
        assert app.results("sums").num_rows == 0
        app.push("s", {"t": 10, "k": 1, "x": 1})
        assert app.results("sums").column("total").to_pylist() == [5000]


def test_queries_are_not_called_where_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    process = Project.process
    monkeypatch.setattr(Project, "process", lambda self, *args: calls.append(1) or process(self, *args))
    with ps.App(CHAIN) as app:
        app.push("s", {"t": 1, "k": 1, "x": 1})
        app.push("s", {"t": 2, "k": 1, "x": 1})
        assert len(calls) == 2, "the first query alone"
        app.push("s", {"t": 3, "k": 1, "x": 5000})
        assert len(calls) == 4


LOOKED_UP = """
    CREATE STREAM s (t BIGINT, k INT, x INT, EVENT TIME t UNIT SECONDS);
    CREATE TABLE last (k INT PRIMARY KEY, x INT);
    INSERT INTO asked SELECT k FROM s WHERE x = 0;
    INSERT INTO told SELECT k, x FROM s WHERE x > 100;
    ON told UPSERT INTO last (k, x) VALUES (told.k, told.x);
    CREATE QUERY answers AS SELECT asked.k, last.x FROM asked JOIN last ON last.k = asked.k;
"""


def test_a_look_up_that_waits_for_a_quiet_stream_answers_in_the_same_push() -> None:
    with ps.App(LOOKED_UP) as app:
        app.push("s", {"t": 1, "k": 1, "x": 500})
        for t in range(2, 6):
            app.push("s", {"t": t, "k": 2, "x": 1})
        app.push("s", {"t": 6, "k": 1, "x": 0})
        assert app.results("answers").column("x").to_pylist() == [500]


def test_a_checkpoint_has_the_time_that_was_held(tmp_path: object) -> None:
    with ps.App(CHAIN, checkpoint=str(tmp_path)) as app:
        app.push("s", [{"t": 1, "k": 1, "x": 5000}, {"t": 9, "k": 1, "x": 1}])
        app.checkpoint()
    with ps.App(CHAIN, checkpoint=str(tmp_path)) as app:
        app.push("s", {"t": 11, "k": 1, "x": 1})
        assert app.results("sums").column("total").to_pylist() == [5000]
