"""Queries come and go while the app runs; nothing else is touched, and what they held is given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, w BIGINT, EVENT TIME t{});"
ROLLING = "CREATE QUERY rolling AS SELECT k, MAX(v) AS most, MEDIAN(v) AS mid FROM s [RANGE 1 HOUR] GROUP BY k"


def event(t: float, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"t": round(t * SECOND), "k": k, "v": v, "w": 10 * v}


def block_files(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*.blocks")}


def used(app: ps.App) -> int:
    """What queries hold, without their rows that wait to be read."""
    held = app._stores.budget.describe()
    return sum(size for name, size in held.items() if not name.endswith("-results"))


def test_an_added_query_begins_now_and_leaves_nothing(tmp_path: Path) -> None:
    with ps.App(STREAM.format("") + "SELECT SUM(v) AS n FROM s [ROWS 2]", checkpoint=tmp_path) as app:
        app.push("s", [event(1), event(2)])
        held, files = used(app), block_files(tmp_path)
        assert app.add_query(ROLLING) == "rolling"
        assert app.queries == ("q1", "rolling")
        app.push("s", [event(3, v=5), event(4, "b", 7), event(5, v=1)])
        assert app.results("rolling").column("most").to_pylist() == [5, 7, 5]
        assert used(app) > held
        assert block_files(tmp_path) > files
        app.drop_query("ROLLING")
        assert app.queries == ("q1",)
        assert used(app) == held
        assert block_files(tmp_path) == files
        app.push("s", event(6, v=100))
        assert app.results("q1").column("n").to_pylist() == [1, 2, 6, 12, 8, 101]


def test_names_are_free_again() -> None:
    with ps.App(STREAM.format("") + "SELECT v FROM s") as app:
        for _ in range(3):
            app.add_query(ROLLING)
            app.push("s", event(1))
            assert app.results("rolling").num_rows == 1
            app.drop_query("rolling")
        assert app.add_query("SELECT w FROM s") == "q2"
        with pytest.raises(ps.QueryError, match="q2"):
            app.add_query("CREATE QUERY q2 AS SELECT w FROM s")


def test_a_query_that_others_read_cannot_go_first() -> None:
    with ps.App(STREAM.format("") + "INSERT INTO sums SELECT k, SUM(v) AS n FROM s [ROWS 2] GROUP BY k") as app:
        app.add_query("CREATE QUERY top AS SELECT MAX(n) AS n FROM sums [ROWS 10]")
        app.push("s", [event(1), event(2), event(3, v=9)])
        assert app.results("top").column("n").to_pylist() == [1, 2, 10]
        with pytest.raises(ps.InputError, match="feeds top; drop those first"):
            app.drop_query("sums")
        app.drop_query("top")
        app.drop_query("sums")
        with pytest.raises(ps.QueryError, match="sums"):
            app.add_query("SELECT n FROM sums")
        app.add_query("INSERT INTO sums SELECT v AS n FROM s")
        app.push("s", event(4, v=3))
        assert app.results("sums").column("n").to_pylist() == [3]


def test_every_mth_counts_from_the_streams_first_event() -> None:
    """Contract, rule 3: m counts from the stream's first event, whenever the query was registered."""
    query = "SELECT COUNT(*) AS n, MAX(v) AS last FROM s [ROWS 10 SLIDE 3]"
    plain = "SELECT v FROM s [ROWS 2 SLIDE 2]"
    with ps.App(STREAM.format("") + query) as app:
        app.push("s", [event(i, v=i) for i in range(4)])
        app.add_query(query)
        app.add_query(plain)
        app.push("s", [event(i, v=i) for i in range(4, 10)])
        assert app.results("q1").column("last").to_pylist() == [2, 5, 8]
        assert app.results("q2").column("last").to_pylist() == [5, 8]
        assert app.results("q2").num_rows == 0
        assert app.results("q3").column("v").to_pylist() == [4, 5, 6, 7, 8, 9]


def test_streams_may_come_with_a_query() -> None:
    with ps.App(STREAM.format("") + "SELECT v FROM s") as app:
        app.add_query("CREATE STREAM r (t TIMESTAMP, v BIGINT, EVENT TIME t); CREATE QUERY rs AS SELECT v FROM r")
        app.push("r", event(1, v=5))
        assert app.results("rs").column("v").to_pylist() == [5]
        with pytest.raises(ps.QueryError, match="sinks"):
            app.add_query("CREATE SINK x TO 'x.jsonl'")
        with pytest.raises(ps.QueryError):
            app.add_query("")


def test_a_new_query_reads_a_column_that_none_read() -> None:
    with ps.App(STREAM.format("") + "SELECT v FROM s") as app:
        app.push("s", [event(2), event(1)])
        assert app.needed_columns("s") == ("t", "v")
        app.add_query("SELECT w FROM s")
        app.push("s", [event(3, v=3), event(1)])
        assert app.results("q2").column("w").to_pylist() == [30]
        assert app.metrics.late == 2
        assert app.needed_columns("s") == ("t", "v", "w")


def test_a_column_cannot_be_had_of_events_that_wait_without_it() -> None:
    with ps.App(STREAM.format(" LATENESS 5 SECONDS") + "SELECT v FROM s") as app:
        app.push("s", event(1))
        with pytest.raises(ps.InputError, match="do not have w"):
            app.add_query("CREATE QUERY first AS SELECT v FROM s; CREATE QUERY second AS SELECT w FROM s")
        assert app.queries == ("q1",)
        app.add_query("SELECT v + 1 AS v FROM s")
        app.finish()
        assert app.results("q2").column("v").to_pylist() == [2]


def test_nothing_stays_of_queries_that_do_not_fit(tmp_path: Path) -> None:
    with ps.App(STREAM.format("") + "SELECT v FROM s", memory="300KB", checkpoint=tmp_path) as app:
        held, files = used(app), block_files(tmp_path)
        text = "CREATE STREAM r (t TIMESTAMP, EVENT TIME t); " + "; ".join(
            f"CREATE QUERY big{i} AS SELECT {'SUM(v) AS n' if i % 2 else 'v'} FROM s [RANGE {i + 1} HOURS]"
            for i in range(9)
        )
        with pytest.raises(ps.BudgetError):
            app.add_query(text)
        assert used(app) == held
        assert block_files(tmp_path) == files
        app.push("s", event(2))


def test_sinks_take_several_queries(tmp_path: Path) -> None:
    with ps.App(
        STREAM.format("") + f"CREATE SINK out TO '{tmp_path}/out.jsonl'; INSERT INTO out SELECT v FROM s"
    ) as app:
        name = app.add_query("INSERT INTO out SELECT v + 1 AS v FROM s")
        heard: list[int] = []
        app.subscribe(name, lambda batch: heard.extend(batch.column("v").to_pylist()))
        app.push("s", event(1))
        assert heard == [2]
