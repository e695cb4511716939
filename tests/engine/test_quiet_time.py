"""Time that passes without rows reaches the queries that wait for it, and no others."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.operators.project import Project
from penstock.operators.tables.scan import Scan

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


SCANNED = """
    CREATE STREAM s (t BIGINT, k INT, x INT, EVENT TIME t UNIT SECONDS);
    CREATE TABLE last (k INT PRIMARY KEY, x INT);
    INSERT INTO told SELECT k, x FROM s WHERE x > 100;
    ON told UPSERT INTO last (k, x) VALUES (told.k, told.x);
    CREATE QUERY shown AS SELECT k, MAX(x) AS x FROM last [SLIDE 10 SECONDS] GROUP BY k;
"""


def test_a_table_is_shown_when_the_time_of_a_quiet_stream_reaches_a_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    process = Scan.process
    monkeypatch.setattr(Scan, "process", lambda self, *args: calls.append(1) or process(self, *args))
    with ps.App(SCANNED) as app:
        app.push("s", {"t": 1, "k": 1, "x": 500})
        for t in range(2, 10):
            app.push("s", {"t": t, "k": 2, "x": 1})
        assert len(calls) == 1, "no boundary has been reached since"
        assert app.results("shown").num_rows == 0
        app.push("s", {"t": 10, "k": 2, "x": 1})
        assert app.results("shown").column("x").to_pylist() == [500]


MEETING = """
    CREATE STREAM s (t BIGINT, k INT, x INT, EVENT TIME t UNIT SECONDS);
    INSERT INTO large SELECT k, x FROM s WHERE x > 100;
    CREATE QUERY sums AS SELECT k, SUM(x) OVER [RANGE 10 SECONDS] AS new, SUM(x) AS total
    FROM large [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY k;
"""


def test_windows_that_meet_close_when_the_time_of_a_quiet_stream_has_come() -> None:
    with ps.App(MEETING) as app:
        app.push("s", {"t": 1, "k": 1, "x": 5000})
        for t in range(2, 10):
            app.push("s", {"t": t, "k": 1, "x": 1})
        assert app.results("sums").num_rows == 0
        app.push("s", {"t": 10, "k": 1, "x": 1})
        assert [list(row.values())[-2:] for row in app.results("sums").to_pylist()] == [[5000, 5000]]
        app.push("s", {"t": 21, "k": 1, "x": 1})
        assert [list(row.values())[-2:] for row in app.results("sums").to_pylist()] == [[None, 5000]]


COUNTED = """
    CREATE STREAM s (t BIGINT, k INT, x INT, EVENT TIME t UNIT SECONDS);
    CREATE TABLE seen (k INT PRIMARY KEY, n INT);
    ON s UPSERT INTO seen VALUES (s.k, COALESCE(seen.n, 0) + 1);
    CREATE QUERY asked AS SELECT s.k, seen.n, PREV(seen.n) AS before FROM s JOIN seen ON seen.k = s.k WHERE s.x = 0;
"""


def test_events_that_a_filter_refuses_count_for_those_behind_them() -> None:
    with ps.App(COUNTED) as app:
        for x in (1, 0, 1, 1, 1, 0, 1, 0):
            app.push("s", {"t": 1, "k": 1, "x": x})
        found = app.results("asked")
        assert found.column("n").to_pylist() == [2, 6, 8]
        assert found.column("before").to_pylist() == [1, 5, 7]
